"""The result of making wheels, with commands that install them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from conda_wheels.simple_index import IndexedWheel
from groundwork.result import Result
from groundwork.text import Sign, counted, display, duration, size, table, to_dict

_MANYLINUX = re.compile(r"manylinux_2_(\d+)_")


@dataclass(frozen=True, kw_only=True)
class WheelResult:
    """A requested wheel, made or found in the index."""

    wheel: IndexedWheel
    kept: bool  #: whether the index had it already
    torch_pin: str  #: its requirement on PyTorch

    @property
    def glibc(self) -> str:
        """The oldest glibc that it runs with: ``2.36``."""
        return ", ".join(f"2.{minor}" for minor in sorted(_MANYLINUX.findall(self.wheel.name), key=int)[:1])


@dataclass(frozen=True, kw_only=True)
class WheelIndex:
    """The index of a config's wheels, and the requested ones among them."""

    folder: Path
    made: tuple[WheelResult, ...]


def result(index: WheelIndex, seconds: float) -> Result:
    """Return a table and a document of the wheels made in ``seconds``, with a command that installs them."""
    rows = [
        (
            Sign.kept if item.kept else Sign.done,
            f"{item.wheel.project} {item.wheel.version}",
            item.wheel.python or "any",
            size(item.wheel.size),
            f"glibc {item.glibc}" if item.glibc else "",
        )
        for item in index.made
    ]
    newest = index.made[-1].wheel.python
    chosen = {item.wheel.project: item.wheel for item in index.made if item.wheel.python in (None, newest)}
    exact = [f"{wheel.project}=={wheel.version}" for wheel in chosen.values()]
    command = shlex.join(["pip", "install", "--extra-index-url", index.folder.as_uri(), *exact])
    lines = [
        *table(("", "wheel", "Python", "size", "runs from"), rows, right=frozenset({3})),
        f"{counted(len(rows), 'wheel')}, {duration(seconds)}: {display(index.folder)}",
        "",
        command,
    ]
    wheels = [
        {
            "file": str(index.folder / item.wheel.place),
            **to_dict(item.wheel, "project version python sha256"),
            "torch": item.torch_pin,
            "glibc": item.glibc,
            "bytes": item.wheel.size,
            "made": not item.kept,
        }
        for item in index.made
    ]
    document = {"index": index.folder.as_uri(), "wheels": wheels, "use": command}
    return Result(format="wheels", document=document, lines=lines)
