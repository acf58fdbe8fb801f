"""Indexes and wheels that are broken, hostile or not there: told, in bounded time, and nothing is kept of them."""

from __future__ import annotations

import gzip
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from audit_site import (
    IMPATIENT,
    PATIENT,
    Answer,
    Handler,
    die,
    endless,
    hang,
    redirect,
    request,
    services,
)
from audit_wheels import (
    EXPECTED,
    LINUX,
    MAC,
    REQUIRES,
    REQUIRES_TXT,
    configured_by_the_test,
    html,
    index,
    metadata,
    source_archive,
    values,
    wheel,
)

from megabuild.audit.request import Local
from megabuild.audit.sources.wheel_metadata import read


@pytest.fixture(autouse=True)
def pip(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    return configured_by_the_test(monkeypatch)


def test_html_in_place_of_metadata_is_not_believed(pip: SimpleNamespace, tmp_path: Path) -> None:
    page = html({LINUX: 'data-core-metadata="true"'})
    answers: dict[str, bytes | Answer] = {
        f"{LINUX}.metadata": b"<html>Log in first</html>",
        LINUX: b"<html>Log in first</html>" * 100,
    }
    with index(pip, page, **answers):
        outcome = read(request(services(tmp_path)))
    assert not outcome.findings
    assert "no wheel, or a broken one" in outcome.trouble


def test_metadata_with_a_wrong_hash_is_not_papered_over(pip: SimpleNamespace, tmp_path: Path) -> None:
    page = html({LINUX: f'data-core-metadata="sha256={"0" * 64}"'})
    answers = {f"{LINUX}.metadata": metadata(*REQUIRES), LINUX: wheel(metadata(*REQUIRES))}
    with index(pip, page, **answers):
        outcome = read(request(services(tmp_path)))
    assert not outcome.findings
    assert "sha256" in outcome.trouble
    assert "000000000000" in outcome.trouble


def test_metadata_of_another_project_is_not_believed(pip: SimpleNamespace, tmp_path: Path) -> None:
    with index(pip, html({LINUX: ""}), **{LINUX: wheel(metadata(*REQUIRES, name="other"))}):
        assert "not the metadata of thing 1.2" in read(request(services(tmp_path))).trouble


def test_a_server_that_ignores_ranges_is_told_and_not_downloaded_from(
    pip: SimpleNamespace, tmp_path: Path
) -> None:
    with index(pip, html({LINUX: ""}), **{LINUX: wheel(metadata(*REQUIRES), filler=8_000_000)}) as site:
        site.ranges = False
        outcome = read(request(services(tmp_path)))
    assert "does not give parts of files" in outcome.trouble
    assert outcome.received < 10_000


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-200],
        lambda content: bytes(len(content)),
        lambda content: content.replace(b"dist-info/METADATA", b"dist-info/METADATE"),
        lambda content: (
            content[:400_060]
            + b"\xff" * (len(content) - 402_000)
            + content[400_060 + len(content) - 402_000 :]
        ),
    ],
    ids=["cut", "zeros", "no metadata", "damaged members"],
)
def test_a_damaged_wheel_is_told(pip: SimpleNamespace, tmp_path: Path, damage: Any) -> None:
    content = damage(wheel(metadata(*REQUIRES), entries=300))
    with index(pip, html({LINUX: ""}), **{LINUX: content}):
        outcome = read(request(services(tmp_path)))
    assert not outcome.findings
    assert outcome.trouble


def test_metadata_that_unpacks_without_end_is_refused(pip: SimpleNamespace, tmp_path: Path) -> None:
    with index(pip, html({LINUX: ""}), **{LINUX: wheel(metadata("a") + b"x" * (8 << 20))}):
        assert "unreasonably long" in read(request(services(tmp_path))).trouble


def test_one_platform_that_fails_leaves_the_others(pip: SimpleNamespace, tmp_path: Path) -> None:
    answers: dict[str, bytes | Answer] = {LINUX: wheel(metadata(*REQUIRES)), MAC: die}
    with index(pip, html({LINUX: "", MAC: ""}), **answers):
        outcome = read(request(services(tmp_path)))
    assert values(outcome) == EXPECTED
    assert MAC in outcome.trouble


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"<html>Log in</html>", "no source archive"),
        (source_archive("")[:80], "no source archive"),
        (gzip.compress(bytes(10240)), "no PKG-INFO"),
        (source_archive("", name="other"), "not the metadata of thing 1.2"),
        (bytes(17 << 20), "longer than"),
    ],
    ids=["html", "cut", "empty", "another", "large"],
)
def test_a_source_archive_that_is_none_is_told(
    pip: SimpleNamespace, tmp_path: Path, content: bytes, told: str
) -> None:
    with index(pip, html({"thing-1.2.tar.gz": ""}), **{"thing-1.2.tar.gz": content}):
        outcome = read(request(services(tmp_path)))
    assert told in outcome.trouble


def test_a_source_archive_with_a_wrong_hash_is_refused(pip: SimpleNamespace, tmp_path: Path) -> None:
    page = html({"thing-1.2.tar.gz": ""}).replace(b'.tar.gz"', b".tar.gz#sha256=" + b"0" * 64 + b'"')
    with index(pip, page, **{"thing-1.2.tar.gz": source_archive(REQUIRES_TXT)}):
        assert "sha256" in read(request(services(tmp_path))).trouble


@pytest.mark.parametrize(
    ("page", "told"),
    [
        (
            b"<html><body>Welcome to this hotel. <a href='/login'>Log in</a></body></html>",
            "no page of a package index",
        ),
        (b'{"error": "teapot"}', "JSON that is no page"),
        (b'{"files": [1, 2]}', "JSON that is no page"),
        (b'{"files": [{"filename": "thing-1.2-py3-none-any.whl"}]}', "JSON that is no page"),
        (b"{" * 100_000, "JSON that is no page"),
        (b"\x00\xff\xfe" * 1000, "no page of an index"),
        (b"", "no page of an index"),
        (hang, "no answer in time|no end after"),
        (die, "closed|incomplete"),
        (endless, "longer than"),
        (redirect("/simple/thing/"), "redirects"),
    ],
    ids=[
        "hotel",
        "json",
        "numbers",
        "no url",
        "deep",
        "binary",
        "empty",
        "hangs",
        "dies",
        "endless",
        "circle",
    ],
)
def test_an_index_that_answers_nonsense_is_told_in_bounded_time(
    pip: SimpleNamespace, tmp_path: Path, page: bytes | Answer, told: str
) -> None:
    start = time.monotonic()
    with index(pip, page):
        outcome = read(request(services(tmp_path, patience=IMPATIENT if page is hang else PATIENT)))
    assert not outcome.findings
    assert re.search(told, outcome.trouble)
    assert time.monotonic() - start < 6.0


def test_a_link_from_the_network_to_a_local_file_is_not_followed(
    pip: SimpleNamespace, tmp_path: Path
) -> None:
    (tmp_path / LINUX).write_bytes(wheel(metadata("secret")))
    with index(pip, html({LINUX: ""}, base=f"{tmp_path.as_uri()}/")):
        outcome = read(request(services(tmp_path / "cache")))
    assert not outcome.findings
    assert outcome.trouble


def test_garbage_is_not_kept(pip: SimpleNamespace, tmp_path: Path) -> None:
    page = html({LINUX: 'data-core-metadata="true"'})
    with index(pip, page, **{f"{LINUX}.metadata": b"garbage", LINUX: b"garbage"}) as site:
        assert read(request(services(tmp_path))).trouble
        site.answers[f"/files/{LINUX}.metadata"] = metadata(*REQUIRES)
        assert values(read(request(services(tmp_path)))) == EXPECTED


def test_a_spoilt_cache_is_made_again(pip: SimpleNamespace, tmp_path: Path) -> None:
    with index(pip, html({LINUX: ""}), **{LINUX: wheel(metadata(*REQUIRES))}):
        read(request(services(tmp_path)))
        for file in tmp_path.rglob("*"):
            if file.is_file():
                file.write_bytes(file.read_bytes()[:-5])
        told: list[str] = []
        assert values(read(request(services(tmp_path, told)))) == EXPECTED
    assert sum("spoilt" in text for text in told) == 2


def test_credentials_of_the_index_are_used_for_its_files_and_stay_secret(
    pip: SimpleNamespace, tmp_path: Path
) -> None:
    told: list[str] = []

    def guarded(body: bytes) -> Answer:
        def answer(handler: Handler) -> None:
            handler.reply(200 if "Authorization" in handler.headers else 401, body)

        return answer

    with index(pip, guarded(html({LINUX: ""})), **{LINUX: guarded(wheel(metadata(*REQUIRES)))}) as site:
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


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("thing-1.3-py3-none-any.whl", wheel(metadata(version="1.3")), "not a wheel of thing 1.2"),
        ("other-1.2-py3-none-any.whl", wheel(metadata(name="other")), "not a wheel of thing 1.2"),
        ("thing-1.2-py3-none-any.whl", b"no zip", "no wheel, or a broken one"),
        ("thing-1.2-py3-none-any.whl", None, "cannot read"),
        ("thing.zip", b"", "not named like a wheel"),
    ],
)
def test_a_local_wheel_that_is_none_is_told(
    tmp_path: Path, name: str, content: bytes | None, told: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    outcome = read(request(services(tmp_path), local=Local(wheel=tmp_path / name)))
    assert told in outcome.trouble
