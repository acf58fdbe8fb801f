"""The stamp in the CMake tree: what the tree was made with, and so whether it may be used again.

A tree that no longer fits took hours, so it is kept beside the new one until that is finished: whoever takes back the
change that it did not fit has it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from groundwork import channel_folder, files
from groundwork.errors import IntegrityError
from megabuild.engine import output_folder
from megabuild.plan.fingerprint import Fingerprint, differences

STAMP = ".megabuild-stamp.json"
_STAMPS = msgspec.json.Decoder(dict[str, dict[str, str]])


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What becomes of a former compile; see the reasons below."""

    decision: str
    reasons: tuple[str, ...]
    former: bool = False  #: the tree that was put aside is the one that fits


#: For a recipe in which nothing is staged.
NOTHING_STAGED = Decision(decision="none", reasons=())


def former(tree: Path) -> Path:
    """Return where a tree is kept that no longer fits."""
    return tree.with_name(f"{tree.name}.former")


def read(tree: Path) -> Fingerprint | None:
    """Return what a tree was made with, or None where it has no complete stamp that can be read."""
    try:
        with files.open_regular(tree / STAMP) as file:
            parts = _STAMPS.decode(file.read())
        return Fingerprint(dependency=parts["dependency"], source=parts["source"])
    except (OSError, IntegrityError, msgspec.MsgspecError, UnicodeDecodeError, KeyError):
        return None


def write(tree: Path, fingerprint: Fingerprint) -> None:
    """Stamp a tree."""
    files.write(tree / STAMP, msgspec.json.encode(fingerprint))


def decide(tree: Path, output_dir: Path, fingerprint: Fingerprint) -> Decision:
    """Compare the tree with a fingerprint; nothing is changed.

    Raises IntegrityError: The tree is a link.
    """
    for folder in (tree, former(tree)):
        channel_folder.refuse_link(folder)
    stamp, aside = read(tree), read(former(tree))
    if (stamp is None or stamp.dependency != fingerprint.dependency) and (
        aside is not None and aside.dependency == fingerprint.dependency
    ):
        return Decision(
            decision="resume", reasons=("the compile before the last change fits again",), former=True
        )
    names = {path.name for path in tree.iterdir()} if tree.is_dir() else set()
    if not names:
        return Decision(decision="fresh", reasons=("nothing was made yet",))
    if stamp is None:
        return Decision(decision="recompile", reasons=("it is not known what the tree was made with",))
    if stamp.dependency != fingerprint.dependency:
        reasons = differences(stamp.dependency, fingerprint.dependency)
        return Decision(decision="recompile", reasons=tuple(reasons))
    if stamp.source != fingerprint.source:
        return Decision(decision="resume", reasons=tuple(differences(stamp.source, fingerprint.source)))
    if names - {STAMP} and "build" not in names:  # an official wheel taken apart leaves no tree
        return Decision(decision="resume", reasons=("the tree's build folder is gone",))
    if output_folder.staging_caches(output_dir):
        return Decision(decision="reuse", reasons=("nothing that it depends on has changed",))
    return Decision(decision="resume", reasons=("the last run ended before it was finished",))


def prepare_tree(decision: Decision, tree: Path, output_dir: Path, fingerprint: Fingerprint) -> None:
    """Make tree and stagings fit: what does not belong to ``fingerprint`` goes, or is put aside.

    The order matters for a run killed in between: stagings go before the stamp changes, the stamp is there before
    anything is compiled.
    """
    if decision.decision in ("reuse", "none"):
        return
    output_folder.drop_stagings(output_dir)
    aside = former(tree)
    if decision.decision != "resume" and tree.exists():
        if read(tree) is None or aside.exists():  # of no use to anybody, or not finished
            files.remove(tree)
        else:
            tree.rename(aside)
    if decision.former:
        if tree.exists():
            files.remove(tree)
        aside.rename(tree)
    write(tree, fingerprint)


def replace_tree(fetched: Path, tree: Path, decision: Decision) -> None:
    """Put a finished tree that was made elsewhere in the place of what is there; what fits no longer is put aside."""
    if tree.exists():
        if decision.decision == "recompile" and read(tree) is not None and not former(tree).exists():
            tree.rename(former(tree))
        else:  # the beginning of the same compile
            files.remove(tree)
    fetched.rename(tree)


def kept(decision: Decision, tree: Path) -> Path:
    """Return the folder that is of no use to a run, but stays until that is finished; need not exist."""
    aside = former(tree)
    return tree if decision.decision == "recompile" and not aside.exists() else aside


def finished(tree: Path) -> None:
    """Remove the tree that was kept until this one was finished."""
    if former(tree).exists():
        files.remove(former(tree))
