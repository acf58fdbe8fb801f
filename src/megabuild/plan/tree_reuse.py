"""Decides by the stamp in the CMake tree, which records the tree's inputs, whether the tree can be reused.

A tree that no longer fits is removed: its objects are in the object cache.

The last staging that came to its end has a record outside of the tree: its facts, and what each package was to its
objects. A tree with the facts of that record is complete: all of its objects fit these facts, and the recipe's own
record in the tree has the content of all their inputs. A later staging compares its environment with these contents,
removes the objects whose inputs differ, and replaces the recipe's record at its end. If it is killed before that, the
tree has objects of two environments, of which the recipe's record describes the first alone. The stamp then has the
facts of the second: the same staging may resume, but not one with a third environment, nor the first one again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from pathlib import Path

import msgspec
import psutil

from groundwork import channel_folder, files
from groundwork.errors import IntegrityError
from groundwork.exhaustive import assert_never
from megabuild.engine import output_folder
from megabuild.plan.changes import Change, compare, phrases, strongest, with_effect
from megabuild.plan.environment_inputs import EnvironmentInputs, ObjectCounts, Role, read_inputs
from megabuild.plan.fingerprint import Fingerprint

STAMP = ".megabuild-stamp.json"
#: Linux writes files to the disk within 35 s (vm.dirty_expire_centisecs, and the interval of its writers), some later.
_UNFLUSHED_SECONDS = 120.0
_NINJA_LOGS = frozenset({".ninja_log", ".ninja_deps"})
_STAMPS = msgspec.json.Decoder(Fingerprint)
#: Another version of this project may record other kinds: decoded by this one, its stamp would have no facts.
_KINDS_OF_FACTS = {field.name for field in fields(Fingerprint)}
#: In a config's state folder, which builds cannot write: the last staging that came to its end.
LAST_STAGING = "last-staging.json"
#: In a config's state folder: the identity of the object cache that the tree is compiled into.
_OBJECTS_IN = "objects-in"


class LastStaging(msgspec.Struct, frozen=True, kw_only=True):
    """A staging that came to its end."""

    fingerprint: Fingerprint
    inputs: EnvironmentInputs | None = None  #: of its tree; None if its recipe writes no record
    #: identity of the object cache that got its objects; empty if it came from a store
    objects_in: str = ""

    def knows(self, fingerprint: Fingerprint) -> bool:
        """Return whether objects of another staging have inputs in the same packages.

        Other sources may include headers of more packages, and so may other headers: protobuf's of abseil.
        """
        roles = {change.role for change in compare(self.fingerprint, fingerprint, self.inputs)}
        return roles <= {Role.COMPILERS, Role.NOTHING}


LAST_STAGINGS = msgspec.json.Decoder(LastStaging)


class TreeUse(str, Enum):
    """The use of a former compile."""

    NONE = "none"  #: the recipe has no staging output
    FRESH = "fresh"  #: there is no former compile
    REUSE = "reuse"  #: nothing is compiled
    RESUME = "resume"  #: ninja compiles the objects that are missing or differ
    #: the tree is removed, and everything compiled; the object cache has most objects
    RECOMPILE = "recompile"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The use of a former compile, and why."""

    use: TreeUse
    reasons: tuple[str, ...]
    is_complete: bool = False  #: The former compile came to its end; a change since then needs few objects.
    is_configured: bool = False  #: CMake does not configure again.
    #: Objects that neither the former compile nor a filled object cache has, at most; None: unknown.
    missing: ObjectCounts | None = None
    objects: ObjectCounts | None = None  #: All objects of the former compile; None: unknown.
    objects_in: str = ""  #: Identity of the object cache that got them; empty if none did.


#: For a recipe without a staging output.
NOTHING_STAGED = Decision(use=TreeUse.NONE, reasons=())


def read(tree: Path) -> Fingerprint | None:
    """Return the fingerprint in a tree's stamp; None if the stamp is missing, damaged or has other kinds of facts."""
    try:
        with files.open_regular(tree / STAMP) as file:
            stamp = file.read()
        if msgspec.json.decode(stamp, type=dict[str, object]).keys() != _KINDS_OF_FACTS:
            return None
        return _STAMPS.decode(stamp)
    except (OSError, IntegrityError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def write(tree: Path, fingerprint: Fingerprint) -> None:
    files.write(tree / STAMP, msgspec.json.encode(fingerprint))


def read_last_staging(tree: Path, output_dir: Path) -> LastStaging | None:
    """Return the last staging that came to its end; None if there was none, or its record is damaged.

    As long as rattler-build has the finished staging, the tree itself is the record.
    """
    stamp = read(tree)
    if stamp is not None and output_folder.staging_caches(output_dir):
        return LastStaging(
            fingerprint=stamp, inputs=read_inputs(tree), objects_in=_read_objects_in(output_dir)
        )
    return files.read_record(output_dir.parent / LAST_STAGING, LAST_STAGINGS)


def keep_last_staging(tree: Path, output_dir: Path) -> LastStaging | None:
    """Record a finished staging, so that its facts outlive the tree and rattler-build's copy.

    Returns it; None if rattler-build has no finished one.
    """
    if not output_folder.staging_caches(output_dir):
        return None
    last = read_last_staging(tree, output_dir)
    if last is not None:
        files.write(output_dir.parent / LAST_STAGING, msgspec.json.encode(last))
    return last


def note_fetched(output_dir: Path) -> None:
    """Note that a tree from a store replaces the former one: no object cache here got its objects."""
    (output_dir.parent / _OBJECTS_IN).unlink(missing_ok=True)


def _read_objects_in(output_dir: Path) -> str:
    """Return the identity of the object cache that the tree was compiled into; empty if there is none."""
    try:
        return (output_dir.parent / _OBJECTS_IN).read_text(encoding="ascii")
    except (FileNotFoundError, UnicodeDecodeError):
        return ""


@dataclass(frozen=True, kw_only=True)
class Adopted:
    """The fingerprint of a plan's staging."""

    fingerprint: Fingerprint
    #: changes since then on which no object depends: ``idna 3.7 -> 3.10``
    without_effect: tuple[str, ...] = ()


def adopt(tree: Path, output_dir: Path, fingerprint: Fingerprint) -> Adopted:
    """Return the fingerprint of the former staging if no difference from it has an effect, else the one given.

    Its digest is a part of rattler-build's key of the staging, and of each package's inputs: with the former one,
    nothing is staged, built or published again.
    """
    last = read_last_staging(tree, output_dir)
    if last is None:
        return Adopted(fingerprint=fingerprint)
    stamp = read(tree)
    for former in (last.fingerprint, stamp):
        if former is None or not last.knows(former):
            continue
        changes = compare(former, fingerprint, last.inputs)
        if strongest(changes) is Role.NOTHING:
            return Adopted(fingerprint=former, without_effect=tuple(phrases(changes)))
    return Adopted(fingerprint=fingerprint)


def decide(tree: Path, output_dir: Path, fingerprint: Fingerprint) -> Decision:
    """Compare the tree with a fingerprint; changes no files.

    Raises IntegrityError: The tree is a link.
    """
    channel_folder.refuse_link(tree)
    former = _Former.read(tree, output_dir)
    if not former.names:
        return former.decision(TreeUse.FRESH, fingerprint, "not compiled yet")
    if former.stamp is None:
        return former.decision(
            TreeUse.RECOMPILE, fingerprint, "the tree's stamp is missing, damaged or of another version"
        )
    changes = compare(former.stamp, fingerprint, former.inputs)
    reasons = phrases(with_effect(changes) or changes)
    if not former.can_keep(changes):
        return former.decision(TreeUse.RECOMPILE, fingerprint, *reasons)
    if changes:
        return former.decision(TreeUse.RESUME, fingerprint, *reasons)
    if (
        former.names - {STAMP} and "build" not in former.names
    ):  # an unpacked official wheel has no build folder
        return former.decision(TreeUse.RESUME, fingerprint, "the tree's build folder is missing")
    if former.has_staging:
        return Decision(use=TreeUse.REUSE, reasons=("its inputs have not changed",), missing=ObjectCounts())
    return former.decision(TreeUse.RESUME, fingerprint, "the last run did not finish it")


@dataclass(frozen=True, kw_only=True)
class _Former:
    """A former compile: its tree, and the last staging that came to its end."""

    names: frozenset[str]  #: of the tree's entries
    stamp: Fingerprint | None
    last: LastStaging | None
    has_staging: bool  #: rattler-build has the finished staging
    has_record: bool  #: the recipe can compare its environment with the one of the tree

    @classmethod
    def read(cls, tree: Path, output_dir: Path) -> _Former:
        return cls(
            names=frozenset(path.name for path in channel_folder.entries(tree)),
            stamp=read(tree),
            last=read_last_staging(tree, output_dir),
            has_staging=bool(output_folder.staging_caches(output_dir)),
            has_record=read_inputs(tree) is not None,
        )

    @property
    def inputs(self) -> EnvironmentInputs | None:
        return self.last.inputs if self.last is not None else None

    @property
    def is_complete(self) -> bool:
        """Whether all objects fit the stamp."""
        if "build" not in self.names:
            return False
        is_last = self.last is not None and self.last.fingerprint == self.stamp
        return self.has_staging or (is_last and self.has_record)

    def can_keep(self, changes: Sequence[Change]) -> bool:
        """Return whether a tree with these changes since its stamp can be kept."""
        of_packages = [change for change in changes if change.role is not Role.SOURCE]
        role = strongest(of_packages)
        if not of_packages or self.last is None:
            return not of_packages
        match role:
            case Role.COMPILERS:
                return False
            case Role.OBJECTS:
                return self.is_complete and self.has_record
            case Role.CONFIGURE | Role.NOTHING | Role.SOURCE:
                is_known = self.stamp is not None and self.last.knows(self.stamp)
                return self.is_complete or is_known
            case never:
                assert_never(never)

    def fits_configuration(self, fingerprint: Fingerprint) -> bool:
        """Return whether nothing that CMake reads has changed since the stamp, except by patches."""
        if self.stamp is None:
            return False
        changes = compare(self.stamp, fingerprint, self.inputs)
        is_same_environment = strongest(changes) in (Role.NOTHING, Role.SOURCE)
        return is_same_environment and fingerprint.has_recipe_of(self.stamp)

    def decision(self, use: TreeUse, fingerprint: Fingerprint, *reasons: str) -> Decision:
        """Return a decision, with the objects that it needs as far as they are known."""
        objects = None
        missing = None
        objects_in = ""
        if self.inputs is not None and self.last is not None:
            objects = self.inputs.objects
            objects_in = self.last.objects_in
            missing = _missing(compare(self.last.fingerprint, fingerprint, self.inputs), objects)
        is_complete = use is TreeUse.RESUME and self.is_complete
        return Decision(
            use=use,
            reasons=reasons,
            is_complete=is_complete,
            is_configured=is_complete and self.fits_configuration(fingerprint),
            missing=missing,
            objects=objects,
            objects_in=objects_in,
        )


def count_missing(decision: Decision, left: LastStaging, fingerprint: Fingerprint) -> Decision:
    """Return the decision of a folder without a former compile, with the objects that another folder's staging left."""
    if left.inputs is None:
        return decision
    objects = left.inputs.objects
    moved = left.fingerprint.moved_to(fingerprint.place)
    missing = _missing(compare(moved, fingerprint, left.inputs), objects)
    if missing is not None and moved != left.fingerprint:
        # ccache finds objects of nvcc in the folder where they were compiled only (docs/lab/measurements.md)
        missing = missing.added(ObjectCounts(kernels=objects.kernels), objects)
    reason = "not compiled in this output folder yet"
    return replace(decision, reasons=(reason,), missing=missing, objects=objects)


def _missing(changes: Iterable[Change], objects: ObjectCounts) -> ObjectCounts | None:
    """Return the objects that the changes need at most; None if only ninja or the compilers know them."""
    missing = ObjectCounts()
    for change in changes:
        if change.role is Role.COMPILERS and change.objects is not None:
            return objects
        if change.objects is None:
            return None
        missing = missing.added(change.objects, objects)
    return missing


def prepare_tree(
    decision: Decision, tree: Path, output_dir: Path, fingerprint: Fingerprint, objects_in: str
) -> None:
    """Record the finished staging, then remove stagings, and the tree unless it fits ``fingerprint``; stamp the tree.

    ``objects_in``: identity of the object cache that a new tree is compiled into; empty without one.

    The order matters if the run is killed in between: stagings are recorded before they are removed, they are removed
    before the stamp changes, and the stamp is written before the compile.
    """
    keep_last_staging(tree, output_dir)
    if decision.use in (TreeUse.REUSE, TreeUse.NONE):
        return
    output_folder.drop_stagings(output_dir)
    if decision.use is not TreeUse.RESUME:
        files.remove(tree)
        files.write(output_dir.parent / _OBJECTS_IN, objects_in)
    _drop_unflushed(tree)
    write(tree, fingerprint)


def _drop_unflushed(tree: Path) -> None:
    """If the machine was restarted since, remove the files that the build made in the last two minutes before it.

    A power cut empties files that were not flushed, but keeps their dates, by which ninja takes them for built. Of
    installed libraries, which have the dates of their originals, all go. ninja's own logs stay: it drops bad lines.
    """
    built: dict[Path, float] = {}  # with their dates
    installed: list[Path] = []
    for path in _files_below(tree):
        if path.is_relative_to(tree / "build"):
            built[path] = path.lstat().st_mtime
        elif ".so" in path.suffixes:
            installed.append(path)
    if not built:  # an unpacked wheel has no build folder
        return
    newest = max(built.values())
    if newest >= psutil.boot_time():
        return
    for path in installed:
        path.unlink()
    for path, when in built.items():
        if when > newest - _UNFLUSHED_SECONDS:
            path.unlink()


def _files_below(tree: Path) -> Iterator[Path]:
    for folder, _, names in files.walk(tree):
        for name in names:
            if name not in _NINJA_LOGS:
                yield Path(folder, name)
