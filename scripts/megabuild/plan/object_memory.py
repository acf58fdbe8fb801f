"""What objects took of memory and CPU when they were compiled; the memory is kept for the next build of a config.

``megabuild.engine.compiler_gate`` notes it in the build's place, as the size of a compile's largest single process.
What a build could write is not trusted: a wrong size can make objects wait for each other, or be killed and tried
again, and no more than that.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from groundwork import files
from groundwork.errors import IntegrityError
from megabuild.engine.compiler_gate import NOTES
from megabuild.plan.options import Options

_FOLDER = "object-memory"
_LINE = re.compile(rb"([+-]) ([0-9]{1,15}) ([!-~]{1,300})(?: ([0-9]{1,9}))?")
#: PyTorch with CUDA has some 2,500 objects. What is more than this is not read.
_MOST_OBJECTS = 20_000
_MOST_BYTES = 8_000_000
#: No compiler takes less; none that took more would end on any machine.
_LEAST, _MOST = 1 << 20, 1 << 40


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """One compile."""

    name: str  #: the object's path below the folder of the build
    size: int  #: bytes at the peak
    ended_well: bool
    cpu_seconds: float = 0.0  #: 0 where nobody noted it


def noted(state: Path) -> list[Compiled]:
    """Return what a build noted below its state folder; what is no note is left out."""
    found = []
    for line in _content(state / "tmp" / NOTES, below=state).splitlines()[:_MOST_OBJECTS]:
        if match := _LINE.fullmatch(line):
            size = min(max(int(match[2]), _LEAST), _MOST)
            found.append(
                Compiled(
                    name=match[3].decode(),
                    size=size,
                    ended_well=match[1] == b"+",
                    cpu_seconds=int(match[4] or 0) / 1000,
                )
            )
    return found


def read(options: Options) -> dict[str, int]:
    """Return the bytes that objects of this config took, by name; of a run that was killed, too."""
    known = {}
    for line in _content(_file(options)).splitlines()[:_MOST_OBJECTS]:
        if match := _LINE.fullmatch(b"+ " + line):
            known[match[3].decode()] = min(max(int(match[2]), _LEAST), _MOST)
    return {**known, **_sizes(noted(options.state))}


def keep(options: Options, compiled: list[Compiled], *, doubled: frozenset[str] = frozenset()) -> None:
    """Remember what was compiled; of the objects in ``doubled``, which were killed, twice the size."""
    killed = {one.name: one.size for one in compiled if one.name in doubled and not one.ended_well}
    found = _sizes(compiled)
    if not found and not killed:
        return
    known = {**read(options), **found}
    known |= {name: 2 * max(size, known.get(name, 0)) for name, size in killed.items()}
    # the largest are the ones that matter
    kept = sorted(known.items(), key=lambda item: (-item[1], item[0]))[:_MOST_OBJECTS]
    files.write(_file(options), "".join(f"{size} {name}\n" for name, size in kept))


def largest(compiled: list[Compiled], count: int) -> dict[str, int]:
    """Return the objects that took most, by name, the largest first."""
    ordered = sorted(_sizes(compiled).items(), key=lambda item: (-item[1], item[0]))
    return dict(ordered[:count])


def _sizes(compiled: list[Compiled]) -> dict[str, int]:
    return {one.name: one.size for one in compiled if one.ended_well}


def _file(options: Options) -> Path:
    """Return the file: not by the version of PyTorch, since the next patch release has the same objects."""
    return options.cache / _FOLDER / f"{options.key}.txt"


def _content(path: Path, *, below: Path | None = None) -> bytes:
    with suppress(OSError, IntegrityError), files.open_regular(path, below=below) as file:
        return file.read(_MOST_BYTES)
    return b""
