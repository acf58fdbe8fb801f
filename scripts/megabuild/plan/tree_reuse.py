"""Decides by the stamp in the CMake tree, which records the tree's inputs, whether the tree can be reused.

A tree that no longer fits took hours to compile, so it is kept until the new tree is finished: undoing the
change makes it fit again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from groundwork import channel_folder, files
from groundwork.errors import IntegrityError
from megabuild.engine import output_folder
from megabuild.plan.fingerprint import Fingerprint, differences

STAMP = ".megabuild-stamp.json"
#: Linux writes files to the disk within 35 s (vm.dirty_expire_centisecs, and the interval of its writers), some later.
_UNFLUSHED_SECONDS = 120.0
_STAMPS = msgspec.json.Decoder(dict[str, dict[str, str]])


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The use of a former compile: ``none`` (no staging), ``fresh``, ``reuse``, ``resume`` or ``recompile``."""

    decision: str
    reasons: tuple[str, ...]
    former: bool = False  #: whether the tree that was put aside fits


#: For a recipe without a staging output.
NOTHING_STAGED = Decision(decision="none", reasons=())


def former(tree: Path) -> Path:
    """Return the path of a tree that is put aside because it no longer fits."""
    return tree.with_name(f"{tree.name}.former")


def read(tree: Path) -> Fingerprint | None:
    """Return the fingerprint in a tree's stamp, or None if the stamp is missing or damaged."""
    try:
        with files.open_regular(tree / STAMP) as file:
            parts = _STAMPS.decode(file.read())
        return Fingerprint(dependency=parts["dependency"], source=parts["source"])
    except (OSError, IntegrityError, msgspec.MsgspecError, UnicodeDecodeError, KeyError):
        return None


def write(tree: Path, fingerprint: Fingerprint) -> None:
    files.write(tree / STAMP, msgspec.json.encode(fingerprint))


def decide(tree: Path, output_dir: Path, fingerprint: Fingerprint) -> Decision:
    """Compare the tree with a fingerprint; changes no files.

    Raises IntegrityError: The tree is a link.
    """
    for folder in (tree, former(tree)):
        channel_folder.refuse_link(folder)
    stamp, aside = read(tree), read(former(tree))
    if (stamp is None or stamp.dependency != fingerprint.dependency) and (
        aside is not None and aside.dependency == fingerprint.dependency
    ):
        return Decision(
            decision="resume", reasons=("the tree from before the last change fits again",), former=True
        )
    names = {path.name for path in tree.iterdir()} if tree.is_dir() else set()
    if not names:
        return Decision(decision="fresh", reasons=("not compiled yet",))
    if stamp is None:
        return Decision(decision="recompile", reasons=("the tree's stamp is missing or damaged",))
    if stamp.dependency != fingerprint.dependency:
        reasons = differences(stamp.dependency, fingerprint.dependency)
        return Decision(decision="recompile", reasons=tuple(reasons))
    if stamp.source != fingerprint.source:
        return Decision(decision="resume", reasons=tuple(differences(stamp.source, fingerprint.source)))
    if names - {STAMP} and "build" not in names:  # an unpacked official wheel has no build folder
        return Decision(decision="resume", reasons=("the tree's build folder is missing",))
    if output_folder.staging_caches(output_dir):
        return Decision(decision="reuse", reasons=("its inputs have not changed",))
    return Decision(decision="resume", reasons=("the last run did not finish it",))


def prepare_tree(decision: Decision, tree: Path, output_dir: Path, fingerprint: Fingerprint) -> None:
    """Remove stagings and trees that do not fit ``fingerprint``, or put the tree aside; stamp the tree.

    The order matters if the run is killed in between: stagings are removed before the stamp changes, and the stamp is
    written before the compile.
    """
    if decision.decision in ("reuse", "none"):
        return
    output_folder.drop_stagings(output_dir)
    aside = former(tree)
    if decision.decision != "resume" and tree.exists():
        if read(tree) is None or aside.exists():  # without a stamp, or unfinished
            files.remove(tree)
        else:
            tree.rename(aside)
    if decision.former:
        if tree.exists():
            files.remove(tree)
        aside.rename(tree)
    _drop_unflushed(tree)
    write(tree, fingerprint)


def _drop_unflushed(tree: Path) -> None:
    """If the machine was restarted since, remove the files that the build made in the last two minutes before it.

    A power cut empties files that were not flushed, but keeps their dates, by which ninja takes them for built. Of
    installed libraries, which have the dates of their originals, all go. ninja's own logs stay: it drops bad lines.
    """
    outputs: list[tuple[float | None, Path]] = []
    for folder, _, names in os.walk(tree):
        is_build = Path(folder).relative_to(tree).parts[:1] == ("build",)
        for path in (Path(folder, name) for name in names if name not in (".ninja_log", ".ninja_deps")):
            if is_build or ".so" in path.suffixes:
                outputs.append((path.lstat().st_mtime if is_build else None, path))
    newest = max((when for when, _ in outputs if when is not None), default=0.0)
    if 0 < newest < psutil.boot_time():  # an unpacked wheel has no build folder
        for when, path in outputs:
            if when is None or when > newest - _UNFLUSHED_SECONDS:
                path.unlink()


def replace_tree(fetched: Path, tree: Path, decision: Decision) -> None:
    """Replace the tree by a finished one from elsewhere; put the old tree aside if it no longer fits."""
    if tree.exists():
        if decision.decision == "recompile" and read(tree) is not None and not former(tree).exists():
            tree.rename(former(tree))
        else:  # an unfinished compile of the same inputs
            files.remove(tree)
    fetched.rename(tree)


def kept(decision: Decision, tree: Path) -> Path:
    """Return the tree that a run does not use, but keeps until it is finished; it need not exist."""
    aside = former(tree)
    return tree if decision.decision == "recompile" and not aside.exists() else aside


def finished(tree: Path) -> None:
    """Remove the tree that was put aside, since the new one is finished."""
    if former(tree).exists():
        files.remove(former(tree))
