"""Text for people: sizes, durations, signs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from groundwork.text import counted, display, duration, plain, printable, size, suggest, table


@pytest.mark.parametrize(
    ("octets", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (99_949, "99.9 kB"), (99_951, "100 kB"), (999_600, "1.0 MB"),
     (34_512_000, "34.5 MB"), (1_234_000_000, "1.2 GB"), (5_000_000_000_000, "5000.0 GB")],
)  # fmt: skip
def test_sizes_have_one_useful_digit(octets: float, text: str) -> None:
    assert size(octets) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.4, "59 s"), (59.6, "1:00 min"), (187, "3:07 min"), (7500, "2:05 h")]
)
def test_durations_have_the_unit_they_need(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "wheel", "1 wheel"),
        (0, "wheel", "0 wheels"),
        (2, "process", "2 processes"),
        (1, "process", "1 process"),
    ],
)
def test_one_is_singular(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


def test_the_shorter_of_a_path_and_its_relative_one_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder")
    shown = [display(path) for path in (tmp_path / "folder" / "a", tmp_path / "folder", tmp_path, Path("/a"))]
    assert shown == ["a", ".", str(tmp_path), "/a"]


def test_a_table_is_as_wide_as_its_cells() -> None:
    rows = [("long name", "1"), ("b", "1000")]
    assert table(("a", "bytes"), rows, right=frozenset({1})) == [
        "a          bytes", "long name      1", "b           1000",
    ]  # fmt: skip
    assert table(("a", "bytes"), rows) == ["a          bytes", "long name  1", "b          1000"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc\r\n d", "a b c  d"),
        ("\x1b[31mred\x1b[0m\x1b[K", "red"),
        ("\x1b]8;;https://a\x07link\x1b]8;;\x1b\\", "link"),
        ("a\x1b[2Jb\x9bc", "a?[2Jb?c"),
        ("exe.\u202egnp.\udcff", "exe.?gnp.?"),
    ],
)
def test_untrusted_text_steers_no_terminal(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_names_like_an_unknown_word_are_suggested() -> None:
    names = ["scatter", "pyg-lib", "torch"]
    assert suggest("Scater", names) == "did you mean scatter?"
    assert suggest("xyz", iter(names)) == "choose from scatter, pyg-lib, torch"


def test_signs_are_ascii_on_an_ascii_stream() -> None:
    ascii_stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert printable("✓ a\n✗ b…", ascii_stream) == "+ a\nx b~"
    assert printable("✓", io.TextIOWrapper(io.BytesIO(), encoding="UTF-8")) == "✓"
