"""Text for people: sizes, durations, signs."""

from __future__ import annotations

import io

import pytest

from groundwork.text import duration, printable, size


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


def test_signs_are_ascii_on_an_ascii_stream() -> None:
    ascii_stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert printable("✓ a\n✗ b…", ascii_stream) == "+ a\nx b~"
    assert printable("✓", io.TextIOWrapper(io.BytesIO(), encoding="UTF-8")) == "✓"
