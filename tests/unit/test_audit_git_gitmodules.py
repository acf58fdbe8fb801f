"""What a .gitmodules file says."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_world import without_settings

from groundwork.errors import AuditError
from pin_audit.sources.submodules import parse


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's."""
    without_settings(monkeypatch)


def test_entries_are_found_by_path_with_their_lines() -> None:
    found = parse(
        b'# first\n[submodule "third_party/fmt"]\n\tignore = dirty\n  path = third_party/fmt\n'
        b"  url = https://example.org/fmt.git\n"
        b'[submodule "a.b \\"c\\""]\npath=x/y\nurl="../quoted.git" ; comment\nshallow = true\nupdate = none\n'
    )
    assert sorted(found) == ["third_party/fmt", "x/y"]
    fmt, other = found["third_party/fmt"], found["x/y"]
    assert (fmt.url, fmt.line, fmt.update) == ("https://example.org/fmt.git", 2, "checkout")
    assert (other.url, other.line, other.update) == ("../quoted.git", 6, "none")


def test_an_empty_file_declares_nothing() -> None:
    assert parse(b"") == {}


def test_an_entry_without_url_has_none() -> None:
    assert parse(b'[submodule "a"]\npath = a\n')["a"].url == ""


def test_what_git_ignores_is_left_out() -> None:
    found = parse(
        b'[submodule "../../.git/hooks"]\npath = a\nurl = https://example.org/a\n'
        b'[submodule "no path"]\nurl = https://example.org/a\n'
        b'[submodule "dash"]\npath = -u./x\nurl = https://example.org/a\n'
        b"[core]\nfsmonitor = touch fired\n[submodule]\nactive = x\n"
        b'[submodule "good"]\npath = good\nurl = https://example.org/a\n'
    )
    assert list(found) == ["good"]


def test_other_files_are_not_drawn_in(tmp_path: Path) -> None:
    drawn = tmp_path / "drawn"
    drawn.write_text('[submodule "x"]\npath = x\nurl = https://example.org/x\n')
    assert parse(f"[include]\npath = {drawn}\n".encode()) == {}


@pytest.mark.parametrize("content", [b"\0\1\2 garbage [", b'[submodule "a"\npath', b"<!DOCTYPE html>"])
def test_garbage_is_a_sentence(content: bytes) -> None:
    with pytest.raises(AuditError, match=r"\.gitmodules cannot be read"):
        parse(content)


def test_a_huge_file_is_refused() -> None:
    with pytest.raises(AuditError, match="refused"):
        parse(b"#" * (2 << 20))
