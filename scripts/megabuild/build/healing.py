"""What an earlier run left in the engine's output folder: which packages still fit, which were never tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from megabuild import channel_folder, files
from megabuild.engine import output_folder
from megabuild.errors import IntegrityError

#: Beside the packages: what each of them will be made from, written before the engine starts.
INPUTS = ".megabuild-inputs"
#: In a task's state folder: packages that passed their tests, while they are made constant and looked into. What no
#: build can write.
FINISHED = "finished"


@dataclass(frozen=True, kw_only=True)
class Settled:
    """The engine's output folder, ready for a run."""

    healed: tuple[str, ...]  #: what was removed, in words
    #: packages, by path below the folder, that an interrupted run built from the same inputs. A package file appears
    #: before its test has run, so nobody knows whether they pass.
    untested: tuple[str, ...]


def settle(state: Path, *, inputs: Mapping[str, str], published: Sequence[Path], platform: str) -> Settled:
    """Leave in a task's folder what belongs to this run, and nothing half-done.

    Parameters
    ----------
    state:
        The task's state folder.
    inputs:
        By file name: what its packages are made from.
    published:
        Packages that are copied in, so that the engine finds them and their dependants resolve.
    platform:
        conda's platform name.
    """
    out = channel_folder.own_folder(state / "out")
    for rest in (*state.glob(".removed-*"), state / "tmp", state / FINISHED):
        if rest.is_symlink() or rest.exists():
            files.remove(rest)
    healed = output_folder.heal(out)
    given = {path.name for path in published}
    former = _read(out / INPUTS)
    fitting = {name for name, value in inputs.items() if former.get(name) == value} - given
    # A narrowed run says nothing about packages outside its plan: a later one may still want them.
    elsewhere = former.keys() - inputs.keys()
    channel_folder.drop_packages(out, keep=frozenset(fitting | elsewhere))
    present = {path.name: path.relative_to(out).as_posix() for path in channel_folder.package_files(out)}
    for path in published:
        files.copy(path, out / path.parent.name / path.name)  # a build could write into what it shares
    channel_folder.write_index(out, platform)
    _write(out / INPUTS, {**{name: former[name] for name in present if name in elsewhere}, **inputs})
    untested = tuple(path for name, path in present.items() if name in fitting)
    return Settled(healed=tuple(healed), untested=untested)


def _read(path: Path) -> dict[str, str]:
    try:
        with files.open_regular(path) as file:
            return dict(line.split(" ", 1) for line in file.read().decode().splitlines())
    except (OSError, ValueError, IntegrityError):
        return {}


def _write(path: Path, inputs: Mapping[str, str]) -> None:
    files.write(path, "".join(f"{name} {value}\n" for name, value in sorted(inputs.items())))
