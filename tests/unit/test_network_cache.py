"""The audit's cache: damaged entries, expiry, unwritable folders, threads."""

from __future__ import annotations

import errno
import os
import resource
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
from audit_site import services

from groundwork.errors import AuditError
from groundwork.keys import Key
from groundwork.network import cache as network_cache
from groundwork.network.cache import Cache, Entry
from groundwork.network.client import NetworkError


@dataclass(frozen=True, kw_only=True)
class Question(Key):
    """The key of an answer."""

    name: str


@dataclass(frozen=True, kw_only=True)
class OtherQuestion(Key):
    """The key of an answer of another kind, with the same field."""

    name: str


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def keep(cache: Cache, key: str, data: bytes) -> Entry:
    """Make an entry, even if one exists."""
    return cache.cached(Question(name=key), -1.0, lambda: data)


def kept(cache: Cache, key: str) -> bytes | None:
    """Return the cached entry."""

    def nothing() -> bytes:
        raise AuditError("nothing is kept")

    try:
        return cache.cached(Question(name=key), 60.0, nothing).data
    except AuditError:
        return None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content[:-3],
        lambda content: b"",
        lambda content: b"[1, 2]",
        lambda content: content.replace(b'"when":"2', b'"when":"x'),
    ],
    ids=["cut", "empty", "list", "date"],
)
def test_a_damaged_entry_is_made_again(tmp_path: Path, spoil: object) -> None:
    cache = Cache(tmp_path)
    keep(cache, "key", b"data")
    (file,) = entries(tmp_path)
    file.write_bytes(spoil(file.read_bytes()))  # type: ignore[operator]
    assert kept(cache, "key") is None
    keep(cache, "key", b"data")
    assert kept(cache, "key") == b"data"


def test_an_entry_of_a_clock_that_was_set_back_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would count as new for years."""
    given = Cache(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(network_cache, "now", lambda: "2999-01-01T00:00:00Z")
        keep(given, "key", b"old")
    assert given.cached(Question(name="key"), 60.0, lambda: b"new").data == b"new"


@pytest.mark.parametrize("when", ["2026-11-30T10:00:00", "yesterday"])
def test_a_time_that_cannot_be_compared_is_an_error(when: str) -> None:
    with pytest.raises(ValueError, match=when):
        network_cache.age(when)


def test_answers_of_two_kinds_have_an_entry_each(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.cached(Question(name="a"), 60.0, lambda: b"one").data == b"one"
    assert cache.cached(OtherQuestion(name="a"), 60.0, lambda: b"other").data == b"other"


def test_a_key_cannot_name_a_path(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    keep(cache, "../../../outside", b"data")
    assert {path.name for path in tmp_path.iterdir()} == {"cache"}


def test_a_full_disk_leaves_no_partial_file(tmp_path: Path) -> None:
    told: list[str] = []
    cache = Cache(tmp_path, tell=told.append)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        assert keep(cache, "key", b"x" * 100000).data == b"x" * 100000
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.strerror(errno.EFBIG) in told[0]
    assert not entries(tmp_path)


def test_a_folder_that_cannot_be_written_to_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, _: bytes) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(network_cache.files, "write", refuse)  # type: ignore[attr-defined]
    told: list[str] = []
    cache = Cache(tmp_path, tell=told.append)
    assert [keep(cache, key, b"data").data for key in ("a", "b")] == [b"data"] * 2
    assert told == [f"{tmp_path} cannot be written to (Read-only file system); nothing is cached"]


def test_an_old_entry_is_used_if_fetching_fails_or_offline(tmp_path: Path) -> None:
    told: list[str] = []
    given = services(tmp_path, told)
    given.cached(Question(name="key"), 60.0, lambda: b"old")

    def fail() -> bytes:
        raise AuditError("no answer")

    assert given.cached(Question(name="key"), 0.0, fail).data == b"old"
    assert "no answer" in told[0]
    with pytest.raises(AuditError, match="no answer"):
        given.cached(Question(name="another"), 0.0, fail)
    offline = services(tmp_path, offline=True)
    assert offline.cached(Question(name="key"), -1.0, lambda: b"new").data == b"old"
    with pytest.raises(NetworkError, match="--offline"):
        offline.cached(Question(name="another"), 60.0, lambda: b"new")


def test_threads_wait_for_the_one_that_makes_the_entry(tmp_path: Path) -> None:
    given = services(tmp_path)
    found: list[bytes] = []

    def ask(name: str) -> None:
        found.append(given.cached(Question(name=name), 60.0, lambda: b"other").data)

    same = threading.Thread(target=ask, args=("key",))
    another = threading.Thread(target=ask, args=("another",))

    def make() -> bytes:
        same.start()
        another.start()
        another.join()  # it waits for no other entry
        same.join(0.05)
        assert same.is_alive()
        return b"data"

    assert given.cached(Question(name="key"), 60.0, make).data == b"data"
    same.join()
    assert found == [b"other", b"data"]
