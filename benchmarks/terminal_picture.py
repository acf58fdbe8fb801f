"""Make docs/terminal.svg: `python benchmarks/terminal_picture.py [COMMAND...]` records a run on a pseudo terminal.

The run builds in a fresh clone of this commit, with this machine's cache. The picture shows the terminal at a dozen
moments, evenly spread over the run; the last one stays longest.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
USUAL = "python3 build-locally.py linux_64_cpu --rehearse"
WIDTH, HEIGHT, FRAMES, SECONDS = 100, 26, 12, 24
LETTER, LINE = 7.23, 17
_SEQUENCE = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|\x1b\]8;[^\x1b]*\x1b\\|\x1b.")
_CLASSES = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "36": "c"}
Cell = tuple[str, str]


class Screen:
    """A terminal that supports only the cursor movements, erasing and styles of the driver's display."""

    def __init__(self) -> None:
        self.lines: list[list[Cell]] = [[]]
        self.row = self.column = 0
        self.style = ""

    def feed(self, text: str) -> None:
        """Process the output of a program."""
        position = 0
        for match in _SEQUENCE.finditer(text):
            self._write(text[position : match.start()])
            self._obey(match[1] or "", match[2])
            position = match.end()
        self._write(text[position:])

    def _obey(self, argument: str, command: str | None) -> None:
        if command == "A":
            self.row = max(0, self.row - int(argument or 1))
        elif command == "K":
            self.lines[self.row] = [] if argument == "2" else self.lines[self.row][: self.column]
        elif command == "m":
            classes = [_CLASSES[code] for code in argument.split(";") if code in _CLASSES]
            kept = [] if argument in ("", "0") else self.style.split()
            self.style = " ".join(dict.fromkeys([*kept, *classes]))

    def _write(self, text: str) -> None:
        for sign in text:
            if sign == "\r":
                self.column = 0
            elif sign == "\n" or self.column == WIDTH:
                self.row, self.column = self.row + 1, 0
                self.lines += [[]] * (self.row + 1 - len(self.lines))
            if sign >= " ":
                line = [*self.lines[self.row]]
                line += [(" ", "")] * (self.column + 1 - len(line))
                line[self.column] = (sign, self.style)
                self.lines[self.row] = line
                self.column += 1

    def shown(self) -> list[list[Cell]]:
        """Return the visible lines."""
        end = len(self.lines) - (not self.lines[-1])
        return self.lines[max(0, end - HEIGHT) : end]


def record(command: list[str], folder: Path) -> list[tuple[float, list[list[Cell]]]]:
    """Run a command on a terminal; return the visible lines at each change, after the seconds since the start."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(WIDTH)}
    began, screen = time.monotonic(), Screen()
    screen.feed(f"$ {' '.join(command)}\r\n")
    seen = [(0.0, screen.shown())]
    process = subprocess.Popen(command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, env=environ)
    os.close(theirs)
    rest = b""
    while True:
        select.select([ours], [], [])
        try:
            rest += os.read(ours, 1 << 16)
        except OSError:  # the other side is closed
            break
        text = rest.decode(errors="ignore")
        rest = b""
        screen.feed(text)
        if not select.select([ours], [], [], 0.02)[0]:  # output without a pause is one picture
            seen.append((time.monotonic() - began, screen.shown()))
    seen.append((time.monotonic() - began, screen.shown()))
    if process.wait() != 0:
        sys.exit(f"error: the run failed with exit code {process.returncode}")
    return seen


def drawn(lines: list[list[Cell]]) -> str:
    """Return the lines as SVG texts, whose styles are classes."""
    texts = []
    for number, line in enumerate(lines, 1):
        parts: list[list[str]] = []
        for sign, style in line:
            if parts and parts[-1][1] == style:
                parts[-1][0] += sign
            else:
                parts.append([sign, style])
        if any(text.strip() for text, _ in parts):
            spans = (
                f'<tspan class="{style}">{escape(text)}</tspan>' if style else escape(text)
                for text, style in parts
            )
            texts.append(f'<text y="{number * LINE}">{"".join(spans)}</text>')
    return "".join(texts)


def picture(seen: list[tuple[float, list[list[Cell]]]]) -> str:
    """Return the moments as an animated SVG; for readers who prefer no motion, it shows only the last one."""
    whole = seen[-1][0]
    moments = [[lines for at, lines in seen if at <= whole * n / (FRAMES - 1)][-1] for n in range(FRAMES)]
    width, height = WIDTH * LETTER + 24, HEIGHT * LINE + 24
    back = f'<rect width="{width:.0f}" height="{height}" rx="8"/>'
    frames = [f'<g>{back}<g transform="translate(12 6)">{drawn(moments[-1])}</g></g>']
    share = 100 / (FRAMES + 4)  # the last frame stays for five shares
    for number, lines in enumerate(moments[:-1]):
        delay = f"animation-delay:{(number + 4) * SECONDS / (FRAMES + 4):.1f}s"  # the still frame comes first
        frames.append(
            f'<g class="f" style="{delay}">{back}<g transform="translate(12 6)">{drawn(lines)}</g></g>'
        )
    style = (
        "rect{fill:#161b22}text{fill:#d6dde5;font:12px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;"
        "white-space:pre}.b{font-weight:700}.d{fill:#8b949e}.r{fill:#ff8a80}.g{fill:#7ee787}.y{fill:#e3b341}"
        f".c{{fill:#79c0ff}}.f{{opacity:0;animation:f {SECONDS}s infinite}}"
        f"@keyframes f{{0%,{share:.2f}%{{opacity:1}}{share + 0.01:.2f}%,100%{{opacity:0}}}}"
        "@media(prefers-reduced-motion){.f{animation:none}}"
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xml:space="preserve" role="img" '  # for programs without white-space
        f'viewBox="0 0 {width:.0f} {height}" width="{width:.0f}">'
        f"<title>A run in a terminal, {whole / 60:.0f} minutes in {SECONDS} seconds</title><style>{style}</style>\n"
        + "\n".join(frames)
        + "\n</svg>\n"
    )


def main() -> None:
    """Record a run and write the picture."""
    command = sys.argv[1:] or USUAL.split()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "pytorch-megabuild"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
        if (ROOT / ".venv").exists():
            (folder / ".venv").symlink_to(ROOT / ".venv")
        seen = record(command, folder)
        shutil.rmtree(folder / "output", ignore_errors=True)
    target = ROOT / "docs" / "terminal.svg"
    target.write_text(picture(seen), encoding="utf-8")
    print(
        f"{target.relative_to(ROOT)}: {len(seen)} moments of {seen[-1][0]:.0f} s, {target.stat().st_size} bytes"
    )


if __name__ == "__main__":
    main()
