"""Fetching from a server that misbehaves, and wheels that are damaged."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from audit_site import serving
from wheel_files import make_wheel

from groundwork import wheel_file
from groundwork.errors import IntegrityError, ProviderError
from groundwork.wheel_file import why_broken
from pyg_extensions.find_wheel import fetch
from pyg_extensions.pyg_index import PygIndex

BODY = b"wheel" * 1000
CLOSED = "http://user:secret@127.0.0.1:9/file.whl"


def test_another_hash_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with serving({"/wheel": BODY, "/refused": lambda handler: handler.reply(401, BODY)}) as site:
        with pytest.raises(IntegrityError, match="sha256"):
            fetch(f"{site.url}/wheel", tmp_path / "file.whl", "0" * 64)
        with pytest.raises(ProviderError, match="401"):
            fetch(f"{site.url}/refused", tmp_path / "file.whl", "")
        assert list(tmp_path.iterdir()) == []
        assert fetch(f"{site.url}/wheel", tmp_path / "file.whl", "").read_bytes() == BODY


def test_a_file_of_an_index_is_fetched_with_its_credentials_and_at_most_of_its_size(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []

    def save(address: str, path: Path, *, limit: int) -> None:
        asked.append((address, limit))
        path.write_text("content")

    index: Any = SimpleNamespace(client=lambda _: SimpleNamespace(save=save))
    target = fetch("https://index.example/a.tar.gz", tmp_path / "a.tar.gz", "", index, limit=7)
    assert target.read_text() == "content"
    assert asked == [("https://index.example/a.tar.gz", 7)]


def test_what_went_wrong_names_the_host_and_no_password(tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    read_only: Any = SimpleNamespace(client=lambda _: SimpleNamespace(save=refuse))
    for attempt in (
        lambda: PygIndex(CLOSED).wheels("2.13.0", "cpu"),
        lambda: fetch(CLOSED, tmp_path / "file.whl", ""),
        lambda: fetch(CLOSED, tmp_path / "file.whl", "", read_only),
    ):
        with pytest.raises(ProviderError) as told:
            attempt()
        assert "127.0.0.1:9" in told.value.message
        assert "secret" not in told.value.message + told.value.remedy


NAME = "torch_scatter-2.1.2+pt213cpu-cp312-cp312-linux_x86_64.whl"
FILES = {"torch_scatter/__init__.py": b"", "torch_scatter/_version_cpu.so": b"\x7fELF" * 5000}


def test_a_wheel_that_this_user_may_not_read_is_not_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be compiled again, though it may be intact."""
    wheel = make_wheel(tmp_path, NAME, FILES)

    def refuse(path: Path) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(wheel_file, "open_zip", refuse)
    with pytest.raises(PermissionError):
        why_broken(wheel)


def test_wheels_that_are_not_whole_are_found(tmp_path: Path) -> None:
    whole = make_wheel(tmp_path, NAME, FILES)
    assert why_broken(whole) == ""
    other = tmp_path / "other" / NAME
    other.parent.mkdir()

    def broken(content: bytes) -> str:
        other.write_bytes(content)
        return why_broken(other)

    assert "archive" in broken(whole.read_bytes()[: whole.stat().st_size // 2])
    assert "archive" in broken(b"<html>please log in</html>")
    content = whole.read_bytes()
    at = content.index(b"torch_scatter/_version_cpu.so") + 40
    assert broken(content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :]) != ""
    named = make_wheel(tmp_path / "named", NAME, FILES, version="2.0.9")
    assert "torch_scatter 2.0.9" in why_broken(named)
