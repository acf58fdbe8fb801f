"""Compares the facts of two stagings: what changed, and what each change is to the objects of the former one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from groundwork.exhaustive import assert_never
from megabuild.plan.environment_inputs import EnvironmentInputs, ObjectCounts, PackageSource, Role
from megabuild.plan.fingerprint import Fingerprint

_MOST_REASONS = 6
_HASH_KEY = "sha256"


@dataclass(frozen=True, kw_only=True)
class Change:
    """A fact that differs between two stagings."""

    phrase: str  #: ``libprotobuf 6.31.1 -> 7.35.1``
    role: Role
    #: objects that are compiled again for it at most; None if only ninja or the compilers know them
    objects: ObjectCounts | None = None


def compare(old: Fingerprint, new: Fingerprint, inputs: EnvironmentInputs | None) -> tuple[Change, ...]:
    """Return the changes between two stagings, the strongest roles first.

    ``inputs``: the record of the tree compiled with ``old``. Without a record, each object may depend on each package.
    """
    found: list[Change] = []
    for key in _changed(old.compilers, new.compilers):
        phrase = _phrase(key, old.compilers.get(key), new.compilers.get(key))
        found.append(Change(phrase=phrase, role=Role.COMPILERS))
    for key in _changed(old.pins, new.pins):  # the packages that they choose are below
        phrase = _phrase(key, old.pins.get(key), new.pins.get(key))
        found.append(Change(phrase=phrase, role=Role.CONFIGURE, objects=ObjectCounts()))
    for key in _changed(old.packages, new.packages):
        found.append(_change_of_package(key, old, new, inputs))
    for key in _changed(old.source, new.source):
        found.append(Change(phrase=_phrase(key, old.source.get(key), new.source.get(key)), role=Role.SOURCE))
    return tuple(sorted(found, key=lambda change: -change.role.strength))


def strongest(changes: Iterable[Change]) -> Role:
    """Return the strongest role; NOTHING without a change."""
    return max((change.role for change in changes), key=lambda role: role.strength, default=Role.NOTHING)


def with_effect(changes: Iterable[Change]) -> list[Change]:
    """Return the changes on which an object, the configuration or a script depends."""
    return [change for change in changes if change.role is not Role.NOTHING]


def phrases(changes: Iterable[Change]) -> list[str]:
    """Return the phrases of the first six changes, and how many more there are."""
    found = list(dict.fromkeys(change.phrase for change in changes))
    more = len(found) - _MOST_REASONS
    if more > 0:
        return [*found[:_MOST_REASONS], f"{more} more"]
    return found


def _changed(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    changed: list[str] = []
    for key in dict.fromkeys((*new, *old)):
        if old.get(key) != new.get(key):
            changed.append(key)
    return changed


def _change_of_package(
    key: str, old: Fingerprint, new: Fingerprint, inputs: EnvironmentInputs | None
) -> Change:
    before = old.packages.get(key)
    after = new.packages.get(key)
    phrase = _phrase(key, before, after)
    if inputs is None:
        return Change(phrase=phrase, role=Role.COMPILERS)
    source, _, name = key.partition(" ")
    named = inputs.named(source, name)
    if named is not None:
        return Change(phrase=phrase, role=named.role, objects=named.objects)
    return Change(phrase=phrase, role=_role_of_unnamed(key, old, new), objects=ObjectCounts())


def _role_of_unnamed(key: str, old: Fingerprint, new: Fingerprint) -> Role:
    """Return the role of a package of which the tree names no file."""
    source, _, name = key.partition(" ")
    if key not in old.packages or key not in new.packages:  # its headers may hide others, or have hidden them
        return Role.OBJECTS
    match PackageSource(source):
        case PackageSource.BUILD:  # it may set variables for compilers, or be a program of a build script
            return Role.CONFIGURE
        case PackageSource.HOST:
            return Role.CONFIGURE if name in new.required else Role.NOTHING
        case PackageSource.SYSTEM:
            return Role.NOTHING
        case never:
            assert_never(never)


def _phrase(key: str, old: str | None, new: str | None) -> str:
    kind, _, name = key.partition(" ")
    before = _short(old)
    after = _short(new)
    if kind in [source.value for source in PackageSource]:
        if before == after:
            return f"{name} {after} was rebuilt"
        return f"{name} {before} -> {after}"
    if kind in ("variant", "place") and before != after and not name.endswith(_HASH_KEY):
        return f"{name or kind} {before} -> {after}"
    return f"{name if kind == 'variant' else key} changed"


def _short(value: str | None) -> str:
    return value.split()[0] if value else "none"
