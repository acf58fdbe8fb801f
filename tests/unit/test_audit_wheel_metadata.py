"""Requirements of released wheels, read from indexes without downloading a wheel, whatever the indexes do."""

from __future__ import annotations

import hashlib
import re
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from audit_site import (
    IMPATIENT,
    PATIENT,
    Answer,
    Handler,
    config,
    die,
    endless,
    hang,
    heard,
    request,
    services,
    serving,
)
from audit_wheels import (
    BESIDE,
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
from packaging.tags import parse_tag
from packaging.version import Version
from small_files import write

from groundwork.errors import AuditError
from groundwork.network.index import linked
from groundwork.network.wheel_contents import BROKEN
from pin_audit.facts import Requirement, SourceOutcome, Where
from pin_audit.request import AuditRequest
from pin_audit.sources import wheel_metadata
from pin_audit.sources.wheel_metadata import newest_version


@pytest.fixture(autouse=True)
def pip(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    return configured_by_the_test(monkeypatch)


def read(asked: AuditRequest) -> SourceOutcome:
    return heard(wheel_metadata.read, asked)


def page(*names: str, attributes: str = BESIDE) -> bytes:
    return html(dict.fromkeys(names, attributes))


@pytest.mark.parametrize("attribute", ["data-core-metadata", "data-dist-info-metadata"])
@pytest.mark.parametrize("hashed", [True, False])
def test_metadata_beside_the_wheel_is_read(
    pip: SimpleNamespace, tmp_path: Path, attribute: str, hashed: bool
) -> None:
    text = metadata(*REQUIRES)
    value = f"sha256={hashlib.sha256(text).hexdigest()}" if hashed else "true"
    with index(pip, page(LINUX, attributes=f'{attribute}="{value}"'), **{f"{LINUX}.metadata": text}) as site:
        outcome = read(request(services(tmp_path)))
        assert [path for path, _ in site.asked] == ["/simple/thing/", f"/files/{LINUX}.metadata"]
    assert values(outcome) == EXPECTED
    assert not outcome.trouble
    first = outcome.facts[0]
    assert isinstance(first, Requirement)
    assert first.where.file == f"{LINUX}/thing-1.2.dist-info/METADATA"
    where = first.where  # the address that pip's configuration names is not in it
    assert (where.url, where.index, where.package, where.version) == ("", "pip's", "thing", "1.2")


@pytest.mark.parametrize("entries", [3, 3000], ids=["short directory", "directory longer than one read"])
def test_without_separate_metadata_the_end_of_the_wheel_is_read(
    pip: SimpleNamespace, tmp_path: Path, entries: int
) -> None:
    content = wheel(metadata(*REQUIRES), entries=entries, filler=4_000_000)
    with index(pip, page(LINUX, attributes=""), **{LINUX: content}) as site:
        assert values(read(request(services(tmp_path)))) == EXPECTED
        assert all(asked for path, asked in site.asked if path.endswith(".whl")), "read without Range"
        site.ranges = False
        assert "range requests" in read(request(services(tmp_path / "other"))).trouble


def test_the_wheel_for_linux_64_is_read(pip: SimpleNamespace, tmp_path: Path) -> None:
    answers = {
        f"{LINUX}.metadata": metadata("numpy", "cuda==13", "numpy"),
        f"{MAC}.metadata": metadata("metal"),
    }
    with index(pip, page(MAC, LINUX, LINUX.replace("1.2-", "1.2+cpu-")), **answers):
        outcome = read(request(services(tmp_path)))
    assert values(outcome) == [("numpy", "*", ""), ("cuda", "==13", "")]


def test_requires_python_and_the_tags_of_all_wheels_are_read(pip: SimpleNamespace, tmp_path: Path) -> None:
    tags = ("11-cp311", "12-cp312", "14-cp314", "14-cp314t", "15-cp315t", "10-abi3")
    names = [f"thing-1.2-cp3{tag}-manylinux_2_28_x86_64.whl" for tag in tags]
    text = metadata("numpy").replace(b"Requires-Dist", b"Requires-Python: >=3.11\nRequires-Dist", 1)
    with index(pip, page(*names), **{f"{names[1]}.metadata": text}):
        found = [one for one in read(request(services(tmp_path))).facts if one.name == "python"]
    assert [(type(one).__name__, one.value) for one in found] == [
        ("Requirement", ">=3.11"),
        ("CiPin", "3.11, 3.12, 3.14, 3.14t, 3.15t"),
    ]


def test_what_was_read_once_is_there_offline_with_its_date(pip: SimpleNamespace, tmp_path: Path) -> None:
    with index(pip, page(LINUX), **{f"{LINUX}.metadata": metadata(*REQUIRES)}):
        first = read(request(services(tmp_path)))
    again = read(request(services(tmp_path, offline=True)))
    assert again.facts == first.facts
    assert again.facts[0].where.fetched
    assert "--offline" in read(request(services(tmp_path / "empty", offline=True))).trouble


def test_a_page_is_cached_by_its_address_without_what_gives_access() -> None:
    addresses = ("https://a/simple/torch/", "https://b/simple/torch/", "https://a/other/torch/")
    keys = [wheel_metadata.page_key(address) for address in addresses]
    assert len({key.digest for key in keys}) == 3
    assert wheel_metadata.page_key("https://me:s3cret@a/simple/torch/") == keys[0]


def test_a_requirement_that_cannot_be_understood_is_a_fact_with_trouble(
    pip: SimpleNamespace, tmp_path: Path
) -> None:
    text = metadata("numpy (>=1)(", "pkg @ https://example.org/p.whl", "good>1")
    with index(pip, page(LINUX), **{f"{LINUX}.metadata": text}):
        broken, *others = read(request(services(tmp_path))).facts
    assert (broken.name, broken.value) == ("numpy", "")
    assert "'numpy (>=1)('" in broken.trouble
    assert [(one.name, one.value) for one in others[:2]] == [
        ("pkg", "@ https://example.org/p.whl"),
        ("good", ">1"),
    ]


@pytest.mark.parametrize("answer", [b"<html>Log in first</html>", metadata(*REQUIRES, name="other")])
def test_what_is_not_the_metadata_is_neither_believed_nor_kept(
    pip: SimpleNamespace, tmp_path: Path, answer: bytes
) -> None:
    with index(pip, page(LINUX), **{f"{LINUX}.metadata": answer}) as site:
        assert "thing 1.2" in read(request(services(tmp_path))).trouble
        site.answers[f"/files/{LINUX}.metadata"] = metadata(*REQUIRES)
        assert values(read(request(services(tmp_path)))) == EXPECTED


@pytest.mark.parametrize(
    ("name", "version", "fits"),
    [("a", "1.0", True), ("a", "2.0", False), ("b", "1.0", False), ("", "", False)],
)
def test_metadata_of_another_wheel_or_version_is_refused(name: str, version: str, fits: bool) -> None:
    file = cast(Any, linked("https://host/a-1-py3-none-any.whl", {}))
    content = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: c\nRequires-Python: >=3.10\n"
    with nullcontext() if fits else pytest.raises(AuditError, match="not the metadata of a 1"):
        assert wheel_metadata._required(content.encode(), file) == ["python >=3.10", "c"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"<html><body>Welcome to this hotel. <a href='/login'>Log in</a></body></html>", "not a page"),
        (b"\x00\xff\xfe" * 1000, "not a page of a package index"),
        (b"", "not a page of a package index"),
        (b'{"meta": {"api-version": "1.1"}, "files": []}', "not a page of a package index"),
        (hang, "no answer in time"),
        (die, "closed|incomplete"),
        (endless, "longer than|no answer in time"),
    ],
    ids=["hotel", "binary", "empty", "json", "hangs", "dies", "endless"],
)
def test_an_index_that_answers_nonsense_is_told_in_bounded_time(
    pip: SimpleNamespace, tmp_path: Path, answer: bytes | Answer, told: str
) -> None:
    start, timeouts = time.monotonic(), IMPATIENT if answer in (hang, endless) else PATIENT
    with index(pip, answer):
        outcome = read(request(services(tmp_path, timeouts=timeouts)))
    assert not outcome.facts
    assert re.search(told, outcome.trouble)
    assert time.monotonic() - start < 10.0


def test_a_link_from_the_network_to_a_local_file_is_not_followed(
    pip: SimpleNamespace, tmp_path: Path
) -> None:
    (tmp_path / LINUX).write_bytes(wheel(metadata("secret")))
    with index(pip, html({LINUX: ""}, base=f"{tmp_path.as_uri()}/")):
        outcome = read(request(services(tmp_path / "cache")))
    assert not outcome.facts
    assert outcome.trouble


def test_credentials_of_the_index_are_used_for_its_files_and_stay_secret(
    pip: SimpleNamespace, tmp_path: Path
) -> None:
    told: list[str] = []

    def guarded(body: bytes) -> Answer:
        def answer(handler: Handler) -> None:
            handler.reply(200 if "Authorization" in handler.headers else 401, body)

        return answer

    with index(pip, guarded(page(LINUX)), **{f"{LINUX}.metadata": guarded(metadata(*REQUIRES))}) as site:
        pip.text = f"global.index-url='{site.url.replace('://', '://user:s3cret@')}/simple'\n"
        outcome = read(request(services(tmp_path, told)))
        site.answers["/simple/thing/"] = lambda handler: handler.reply(403, b"")
        failed = read(request(services(tmp_path / "other", told)))
    assert values(outcome) == EXPECTED
    assert "403" in failed.trouble
    kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    shown = repr((outcome, failed, told)).encode() + kept
    assert b"s3cret" not in shown
    assert b"user:" not in shown


# ------------------------------------------------------------------------------------------------ which files count
NEWEST = ("thing-1.9-py3-none-any.whl", "thing-1.10-py3-none-any.whl", "thing-2.0rc1-py3-none-any.whl",
          "thing-3.0.tar.gz", "other-4.0-py3-none-any.whl")  # fmt: skip


def test_newest_is_neither_yanked_nor_a_prerelease(pip: SimpleNamespace, tmp_path: Path) -> None:
    yanked = html({**dict.fromkeys(NEWEST, BESIDE), "thing-1.11-py3-none-any.whl": 'data-yanked="broken"'})
    with index(pip, yanked):
        assert newest_version(request(services(tmp_path))) == "1.10"
        trouble = read(request(services(tmp_path), version="9.9")).trouble
        assert (trouble.startswith("thing 9.9: "), trouble.endswith(" 1.10")) == (True, True)


def test_extensions_are_looked_for_on_the_index_of_pyg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "thing-1.2+pt213cpu-cp310-abi3-manylinux_2_28_x86_64.whl"
    quoted = name.replace("+", "%2B")
    answers: dict[str, bytes | Answer] = {
        "/torch-2.13.0%2Bcpu.html": html({quoted: ""}, base="torch-2.13.0%2Bcpu/"),
        f"/torch-2.13.0%2Bcpu/{quoted}": wheel(metadata("numpy", version="1.2+pt213cpu")),
    }
    with serving(answers) as site:
        monkeypatch.setattr(wheel_metadata, "PYG_INDEX", site.url)
        outcome = read(request(services(tmp_path), configs=(config("linux-64"),), index="pyg"))
    assert values(outcome) == [("numpy", "*", "")]
    assert outcome.facts[0].where.url == f"{site.url}/torch-2.13.0%2Bcpu.html"


def test_a_folder_of_wheels_and_an_index_of_files_serve(pip: SimpleNamespace, tmp_path: Path) -> None:
    write(tmp_path / "links" / LINUX, wheel(metadata(*REQUIRES)))
    pip.text = f"global.no-index='1'\nglobal.find-links='{tmp_path / 'links'}'\n"
    assert values(read(request(services(tmp_path / "cache")))) == EXPECTED
    write(tmp_path / "simple" / "thing" / "index.html", html({LINUX: ""}, base="../../links/"))
    pip.text = f"global.index-url='{(tmp_path / 'simple').as_uri()}'\n"
    assert values(read(request(services(tmp_path / "cache", offline=True)))) == EXPECTED


def test_metadata_with_a_wrong_hash_is_not_papered_over(pip: SimpleNamespace, tmp_path: Path) -> None:
    wrong = page(LINUX, attributes=f'data-core-metadata="sha256={"0" * 64}"')
    with index(pip, wrong, **{f"{LINUX}.metadata": metadata(*REQUIRES)}):
        outcome = read(request(services(tmp_path)))
    assert (outcome.facts, "sha256" in outcome.trouble, "0" * 12 in outcome.trouble) == ((), True, True)


def test_a_package_without_a_wheel_has_no_newest_version() -> None:
    with pytest.raises(AuditError, match="no index has a wheel"):
        wheel_metadata._newest([])


@pytest.mark.parametrize("error", [error("x") for error in BROKEN] + [OSError("x")], ids=repr)
def test_a_broken_wheel_of_this_machine_fails_its_source_of_the_audit(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise error

    monkeypatch.setattr(wheel_metadata, "read_local", read)
    file = linked((tmp_path / "a-1-py3-none-any.whl").as_uri(), {})
    with pytest.raises(AuditError, match="not a readable wheel: x"):
        wheel_metadata._metadata(cast(Any, file), cast(Any, None), cast(Any, None))


def file_with(tags: str, version: str = "1.0") -> Any:
    return SimpleNamespace(name=f"x-{version}-{tags}.whl", tags=parse_tag(tags), version=Version(version))


def test_pythons_of_wheels_are_in_the_order_of_their_numbers() -> None:
    tags = (
        "cp39-cp39-any",
        "cp313-cp313t-any",
        "cp310-cp310-any",
        "cp313-cp313-any",
        "cp310-abi3-any",
        "py3-none-any",
    )
    assert wheel_metadata._pythons([file_with(tag) for tag in tags]) == "3.9, 3.10, 3.13, 3.13t"


@pytest.mark.parametrize("wheels", [
    # the platform counts more than the Python, and a version without a local part more than both
    ["cp311-cp311-manylinux_2_28_x86_64", "cp312-cp312-win_amd64"],
    ["cp312-cp312-manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_28_aarch64"],
    ["cp312-cp312-linux_x86_64", "cp310-abi3-linux_x86_64", "py3-none-any", "cp311-cp311-linux_x86_64"],
])  # fmt: skip
def test_the_wheel_that_is_read_is_the_first_of_its_rank(wheels: list[str]) -> None:
    files = [file_with(tags) for tags in wheels]
    files.append(file_with("cp312-cp312-linux_x86_64", "1.0+cu130"))
    assert sorted(files, key=wheel_metadata._rank) == files


def test_an_index_that_did_not_answer_is_told_with_the_requirements_of_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = file_with("cp312-cp312-linux_x86_64", "1.2")
    offers = wheel_metadata.Offers(files=(file,), problems=("a.example: no answer",), client=cast(Any, None))
    monkeypatch.setattr(wheel_metadata, "offers_of", lambda *_: offers)
    read = wheel_metadata.Metadata(requirements=["sympy"], where=Where())
    monkeypatch.setattr(wheel_metadata, "_metadata", lambda *_: read)
    outcome = wheel_metadata.read(request(services(tmp_path)))
    assert [fact.name for fact in outcome.facts] == ["sympy", "python"]
    assert outcome.trouble == "a.example: no answer"
