"""The result of making wheels, with commands that install them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from conda_wheels.simple_index import IndexedWheel
from groundwork.result import Result
from groundwork.text import Sign, counted, display, duration, size, table, to_dict
from megabuild.store.published import MissingTests

_MANYLINUX = re.compile(r"manylinux_2_(\d+)_")


@dataclass(frozen=True, kw_only=True)
class WheelResult:
    """A requested wheel, made or found in the index."""

    wheel: IndexedWheel
    kept: bool  #: whether the index had it already
    torch_pin: str  #: its requirement on PyTorch

    @property
    def glibc(self) -> str:
        """The oldest glibc that it runs with: ``2.36``; empty if its tags name none."""
        minors = map(int, _MANYLINUX.findall(self.wheel.name))
        oldest = min(minors, default=None)
        if oldest is None:
            return ""
        return f"2.{oldest}"

    @property
    def row(self) -> tuple[str, ...]:
        """The cells of its line in the table."""
        sign = Sign.done
        if self.kept:
            sign = Sign.kept
        runs_from = ""
        if self.glibc:
            runs_from = f"glibc {self.glibc}"
        wheel = self.wheel
        return (sign, f"{wheel.project} {wheel.version}", wheel.python or "any", size(wheel.size), runs_from)


@dataclass(frozen=True, kw_only=True)
class WheelIndex:
    """The index of a config's wheels, and the requested ones among them."""

    folder: Path
    made: tuple[WheelResult, ...]
    missing_tests: MissingTests  #: of the packages that the requested wheels were made of


def result(index: WheelIndex, seconds: float) -> Result:
    """Return a table and a document of the wheels made in ``seconds``, with a command that installs them."""
    rows = [item.row for item in index.made]
    command = _command(index)
    lines = [
        *table(("", "wheel", "Python", "size", "runs from"), rows, right=frozenset({3})),
        f"{counted(len(rows), 'wheel')}, {duration(seconds)}: {display(index.folder)}",
        "",
        command,
        *index.missing_tests.lines,
    ]
    wheels = [_document(item, index.folder) for item in index.made]
    document = {
        "index": index.folder.as_uri(),
        "wheels": wheels,
        "use": command,
        "untested": list(index.missing_tests.untested),
        "failed_tests": list(index.missing_tests.failed),
    }
    return Result(format="wheels", document=document, lines=lines)


def _command(index: WheelIndex) -> str:
    """Return the command that installs the wheels of the newest Python, and those for every Python."""
    newest: str | None = None
    for item in index.made:
        newest = item.wheel.python or newest
    exact: dict[str, str] = {}
    for item in index.made:
        if item.wheel.python in (None, newest):
            exact[item.wheel.project] = f"{item.wheel.project}=={item.wheel.version}"
    return shlex.join(["pip", "install", "--extra-index-url", index.folder.as_uri(), *exact.values()])


def _document(item: WheelResult, folder: Path) -> Mapping[str, object]:
    return {
        "file": str(folder / item.wheel.place),
        **to_dict(item.wheel, "project version python sha256"),
        "torch": item.torch_pin,
        "glibc": item.glibc,
        "bytes": item.wheel.size,
        "made": not item.kept,
    }
