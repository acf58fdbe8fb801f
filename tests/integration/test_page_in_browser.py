"""The page of where the time went in a browser: on a laptop, on a narrow screen, in the dark.

Needs Chromium (Debian: `chromium`).
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

import pytest
from timeline_world import TEN, megabuild

from megabuild.status.reading import read_run_state
from megabuild.timeline.page import write_page

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed"),
]
#: Colours of the page's style sheet.
WHITE = (0xFF, 0xFF, 0xFF)
DARK = (0x14, 0x17, 0x1A)
IDLE = (0xF7, 0xB8, 0xA6)
IDLE_IN_THE_DARK = (0x7A, 0x34, 0x26)
USED = (0x2B, 0x6C, 0xB0)


@dataclass(frozen=True)
class Image:
    width: int
    rows: list[bytes]  #: three bytes a pixel

    def pixel(self, x: int, y: int) -> tuple[int, ...]:
        return tuple(self.rows[y][3 * x : 3 * x + 3])

    def share(self, colour: tuple[int, ...], top: int, bottom: int) -> float:
        """Return the share of a colour in some rows, with a little tolerance."""
        count = 0
        for y in range(top, bottom):
            for x in range(self.width):
                count += all(abs(a - b) < 6 for a, b in zip(self.pixel(x, y), colour, strict=True))
        return count / (self.width * (bottom - top))


def read_png(path: Path) -> Image:
    """Read a PNG of Chromium's: 8 bits a channel, RGB or RGBA, not interlaced."""
    data = path.read_bytes()
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert depth == 8
    size = {2: 3, 6: 4}[kind]
    packed = b""
    at = 8
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + length]
        at += length + 12
    raw = zlib.decompress(packed)
    before = bytes(width * size)
    rows: list[bytes] = []
    for y in range(height):
        start = y * (width * size + 1)
        before = unfilter(raw[start], bytearray(raw[start + 1 : start + 1 + width * size]), before, size)
        rows.append(before if size == 3 else b"".join(before[i : i + 3] for i in range(0, len(before), 4)))
    return Image(width, rows)


def unfilter(method: int, line: bytearray, above: bytes, size: int) -> bytes:
    """Undo a line's filter (PNG specification, section 9)."""
    if method == 0:
        return bytes(line)
    if method == 2:
        return bytes((new + old) & 255 for new, old in zip(line, above, strict=True))
    for i in range(len(line)):
        left = line[i - size] if i >= size else 0
        corner = above[i - size] if i >= size else 0
        match method:
            case 1:
                guess = left
            case 3:
                guess = (left + above[i]) // 2
            case _:
                guess = paeth(left, above[i], corner)
        line[i] = (line[i] + guess) & 255
    return bytes(line)


def paeth(left: int, up: int, corner: int) -> int:
    return min((left, up, corner), key=lambda value: abs(left + up - corner - value))


def shot(folder: Path, width: int, height: int, *, dark: bool = False) -> Image:
    """Take a picture of the page of an invented run."""
    page = folder / "time.html"
    run = megabuild("linux_64_cpu", TEN)
    write_page([read_run_state(run.write(folder / "output"))], page, run.now + 60)
    picture = folder / "page.png"
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        f"--user-data-dir={folder / 'chromium'}", f"--window-size={width},{height}", f"--screenshot={picture}",
        *(["--blink-settings=preferredColorScheme=0"] if dark else []), page.as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return read_png(picture)


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (800, 600)])
def test_idle_and_used_cores_are_seen_at_once_and_nothing_is_cut(
    tmp_path: Path, width: int, height: int
) -> None:
    image = shot(tmp_path, width, height)
    assert (image.width, len(image.rows)) == (width, height)
    cores = next(y for y in range(height) if image.share(IDLE, y, y + 1) > 0.3)
    assert cores < 150, "at the top"
    assert 0.3 < image.share(IDLE, cores + 2, cores + 118) < 0.6, "idle: 48 % of the time"
    assert 0.3 < image.share(USED, cores + 2, cores + 118) < 0.6
    for y in range(height):
        assert image.pixel(width - 10, y) == WHITE, "the margin: nothing is wider than the screen"


def test_the_page_is_dark_where_the_reader_s_system_is(tmp_path: Path) -> None:
    image = shot(tmp_path, 1280, 800, dark=True)
    assert image.pixel(2, 2) == DARK
    assert image.share(WHITE, 0, 800) < 0.02
    assert image.share(IDLE_IN_THE_DARK, 0, 300) > 0.1
