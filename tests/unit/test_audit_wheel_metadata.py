"""Requirements of released wheels, read from indexes of every form without downloading a wheel."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from audit_site import (
    config,
    request,
    services,
)
from audit_wheels import (
    EXPECTED,
    LINUX,
    MAC,
    REQUIRES,
    configured_by_the_test,
    html,
    index,
    metadata,
    values,
    wheel,
)

from megabuild.audit.model import Finding, Kind
from megabuild.audit.request import Local
from megabuild.audit.sources.wheel_metadata import read


@pytest.fixture(autouse=True)
def pip(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    return configured_by_the_test(monkeypatch)


@pytest.mark.parametrize("attribute", ["data-core-metadata", "data-dist-info-metadata"])
@pytest.mark.parametrize("hashed", [True, False])
def test_metadata_beside_the_wheel_is_read(
    pip: SimpleNamespace, tmp_path: Path, attribute: str, hashed: bool
) -> None:
    text = metadata(*REQUIRES)
    value = f"sha256={hashlib.sha256(text).hexdigest()}" if hashed else "true"
    page = html({LINUX: f'{attribute}="{value}"'})
    with index(pip, page, **{f"{LINUX}.metadata": text}) as site:
        outcome = read(request(services(tmp_path)))
        assert [path for path, _ in site.asked] == ["/simple/thing/", f"/files/{LINUX}.metadata"]
    assert values(outcome) == EXPECTED
    assert not outcome.trouble
    assert len(text) < outcome.received < 4000


@pytest.mark.parametrize("key", ["core-metadata", "dist-info-metadata"])
def test_an_index_may_answer_in_json(pip: SimpleNamespace, tmp_path: Path, key: str) -> None:
    text = metadata(*REQUIRES)
    file = {
        "filename": LINUX,
        "url": f"../../files/{LINUX}",
        "hashes": {},
        key: {"sha256": hashlib.sha256(text).hexdigest()},
        "upload-time": "2026-07-08T16:04:22Z",
    }
    page = json.dumps({"meta": {"api-version": "1.1"}, "name": "thing", "files": [file]}).encode()
    with index(pip, page, **{f"{LINUX}.metadata": text}) as site:
        outcome = read(request(services(tmp_path)))
        assert "application/vnd.pypi.simple.v1+json" in site.headers[0]["accept"]
    assert values(outcome) == EXPECTED
    origin = outcome.findings[0].origin
    assert origin.file == f"{LINUX}/thing-1.2.dist-info/METADATA"
    assert (origin.line, origin.date) == (4, "2026-07-08T16:04:22Z")
    assert origin.url == ""  # where pip looks is not told
    assert outcome.findings[0].kind is Kind.REQUIREMENT


@pytest.mark.parametrize("entries", [3, 3000], ids=["short directory", "directory longer than one read"])
def test_without_separate_metadata_the_end_of_the_wheel_is_read(
    pip: SimpleNamespace, tmp_path: Path, entries: int
) -> None:
    content = wheel(metadata(*REQUIRES), entries=entries, filler=4_000_000)
    told: list[str] = []
    with index(pip, html({LINUX: ""}), **{LINUX: content}) as site:
        outcome = read(request(services(tmp_path, told)))
        assert all(asked for path, asked in site.asked if path.endswith(".whl")), "read without Range"
    assert values(outcome) == EXPECTED
    assert outcome.received < len(content) / 5
    assert any(f"of the wheel's {len(content)} bytes" in text for text in told)


def test_metadata_that_the_index_promises_in_vain_is_read_from_the_wheel(
    pip: SimpleNamespace, tmp_path: Path
) -> None:
    page = html({LINUX: 'data-core-metadata="true"'})
    with index(pip, page, **{LINUX: wheel(metadata(*REQUIRES))}):
        assert values(read(request(services(tmp_path)))) == EXPECTED


def test_what_platforms_do_not_share_is_told_apart(pip: SimpleNamespace, tmp_path: Path) -> None:
    answers = {LINUX: wheel(metadata("numpy", "cuda==13")), MAC: wheel(metadata("numpy", "metal>=4"))}
    with index(pip, html(dict.fromkeys(answers, "")), **answers):
        outcome = read(request(services(tmp_path)))
    assert values(outcome) == [
        ("numpy", "*", ""),
        ("cuda", "==13", "in the wheel for linux-64 only"),
        ("metal", ">=4", "in the wheel for osx-arm64 only"),
    ]
    assert MAC in outcome.findings[2].origin.file


def test_a_requirement_that_stands_twice_in_one_wheel_counts_once(
    pip: SimpleNamespace, tmp_path: Path
) -> None:
    # as triton does in the METADATA of torch 2.13.0's wheels for macOS
    answers = {LINUX: wheel(metadata("numpy")), MAC: wheel(metadata("numpy", "metal", "metal"))}
    with index(pip, html(dict.fromkeys(answers, "")), **answers):
        outcome = read(request(services(tmp_path)))
    assert values(outcome) == [("numpy", "*", ""), ("metal", "*", "in the wheel for osx-arm64 only")]
    assert outcome.findings[0].details["platforms"] == "linux-64, osx-arm64"


def test_only_wheels_for_the_configs_platforms_are_read(pip: SimpleNamespace, tmp_path: Path) -> None:
    answers = {LINUX: wheel(metadata("numpy")), MAC: wheel(metadata("metal"))}
    with index(pip, html(dict.fromkeys(answers, "")), **answers):
        outcome = read(request(services(tmp_path), configs=(config("osx-arm64"),)))
    assert values(outcome) == [("metal", "*", "")]


def test_of_many_pythons_the_wheel_next_to_3_12_is_read(pip: SimpleNamespace, tmp_path: Path) -> None:
    names = [
        f"thing-1.2-cp3{minor}-manylinux_2_28_x86_64.whl" for minor in ("10-cp310", "13-cp313t", "14-cp314")
    ]
    with index(pip, html(dict.fromkeys(names, "")), **{names[2]: wheel(metadata("numpy"))}):
        outcome = read(request(services(tmp_path)))
    assert "cp310" in outcome.trouble + "".join(finding.origin.file for finding in outcome.findings)


def test_what_was_read_once_is_there_offline_with_its_date(pip: SimpleNamespace, tmp_path: Path) -> None:
    with index(pip, html({LINUX: ""}), **{LINUX: wheel(metadata(*REQUIRES))}):
        first = read(request(services(tmp_path)))
    again = read(request(services(tmp_path, offline=True)))
    assert again.findings == first.findings
    assert again.received == 0
    assert again.findings[0].origin.fetched
    assert "--offline" in read(request(services(tmp_path / "empty", offline=True))).trouble


def test_a_local_wheel_needs_no_index(pip: SimpleNamespace, tmp_path: Path) -> None:
    path = tmp_path / LINUX.replace("1.2-", "1.2+cpu-")
    path.write_bytes(wheel(metadata(*REQUIRES, version="1.2+cpu")))
    outcome = read(request(services(tmp_path), local=Local(wheel=path)))
    assert values(outcome) == EXPECTED
    assert str(tmp_path) not in repr(outcome.findings)


def test_a_requirement_that_cannot_be_understood_is_a_finding_with_trouble(tmp_path: Path) -> None:
    (tmp_path / LINUX).write_bytes(
        wheel(metadata("numpy (>=1)(", "pkg @ https://example.org/p.whl", "good>1"))
    )
    found = read(request(services(tmp_path), local=Local(wheel=tmp_path / LINUX))).findings
    broken: Finding = found[0]
    assert (broken.name, broken.value) == ("numpy", "")
    assert "no requirement" in broken.trouble
    assert [(finding.name, finding.value) for finding in found[1:]] == [
        ("pkg", "@ https://example.org/p.whl"),
        ("good", ">1"),
    ]
