"""What stands in a row's cells: short texts, each with an address and where it holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rattler import Version

from megabuild.audit.case import Status
from megabuild.audit.claims import cuda_in, cuda_of, is_foreign, is_optional, platforms_of
from megabuild.audit.commits import brief
from megabuild.audit.model import Finding, Kind
from megabuild.audit.rows import Row
from megabuild.audit.specs import Spec, common, is_version, newest, pin

NOT_READ = "not read"
_ANY = "any"
_MOST_TESTED = 2
_KINDS = {Kind.SUBMODULE: "submodule", Kind.COMMIT: "tag", Kind.REQUIREMENT: "wheel", Kind.CI_PIN: "CI"}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One value in a cell.

    Parameters
    ----------
    text:
        The value.
    note:
        Where it holds or who says it, in a few words.
    url:
        Where it was read, for a person to open; may be empty.
    where:
        The note says where the value holds; shown in brackets, as scopes are everywhere.
    """

    text: str
    note: str = ""
    url: str = ""
    where: bool = False

    @property
    def remark(self) -> str:
        """The note with what stands around it: ``[cuda129]``, ``(wheel)``."""
        if not self.note:
            return ""
        return f"[{self.note}]" if self.where else f"({self.note})"


def upstream(row: Row) -> tuple[Part, ...]:
    """Return what upstream says: its copy, its wheel's requirement, its CI for the CUDA versions of the recipe."""
    here = {cuda_of(config) for one in row.of(Kind.RECIPE) for config in _configs(one)} - {""}
    parts: list[Part] = []
    for finding in row.of(*_KINDS):
        note = "extra" if is_optional(finding) else _KINDS[finding.kind]
        commit = brief(finding.details.get("commit", ""))
        if finding.trouble:  # of a submodule the commit is known even where nothing describes it
            parts.append(Part(text=commit or NOT_READ, note=note))
            continue
        if commit and row.of(Kind.RECIPE_COMMIT):
            note = f"{note}, {commit}"
        cuda = cuda_in(finding.scope)
        if is_foreign(finding.scope):
            continue
        if finding.kind is Kind.CI_PIN and finding.scope and not cuda:
            note = f"{note}, {finding.scope}"
        elif cuda and here and cuda not in here:
            continue
        elif cuda and len(here) != 1:
            note = f"{note}, CUDA {cuda}"
        if finding.kind is Kind.COMMIT:
            parts.append(Part(text=brief(finding.value), note=note, url=finding.origin.url))
            continue
        text = _ANY if finding.value in ("", "*") else re.sub(r"^={2,3}(?=[^,]*$)", "", finding.value)
        parts.append(Part(text=text, note=note, url=finding.origin.url))
    if any(part.text != NOT_READ for part in parts):
        parts = [part for part in parts if part.text != NOT_READ]
    return tuple(_without_cuda(part, here) for part in _ranged(_merged(parts)))


def _without_cuda(part: Part, here: set[str]) -> Part:
    """Leave out the CUDA versions for which a value holds, where those are all that the recipe has."""
    words = part.note.split(", ")
    named = {word.removeprefix("CUDA ") for word in words if word.startswith("CUDA ")}
    if not here or not named >= here:
        return part
    return replace(part, note=", ".join(word for word in words if not word.startswith("CUDA ")))


def _ranged(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Put many versions of upstream's CI, by Python and the like, into one value."""
    tested = [part for part in parts if part.note.startswith("CI") and is_version(part.text)]
    if len(tested) <= _MOST_TESTED:
        return parts
    ordered = sorted((part.text for part in tested), key=Version)
    one = Part(text=f"{ordered[0]} to {ordered[-1]}", note="CI", url=tested[0].url)
    return (one, *(part for part in parts if part not in tested))


def _configs(finding: Finding) -> list[str]:
    return finding.details.get("configs", "").split()


def recipe(row: Row) -> tuple[Part, ...]:
    """Return what the recipe asks for; a bare name beside pinned ones, and build strings that differ, are left out."""
    found = [one for one in row.of(Kind.RECIPE) if not one.trouble and not one.value.startswith("<0.0a")]
    pinned = [one for one in found if one.value != "*"]
    covered = {config for one in pinned for config in one.details.get("configs", "").split()}
    rest = [
        one for one in found if one.value == "*" and set(one.details.get("configs", "").split()) - covered
    ]
    values: dict[str, list[Finding]] = {}
    for one in [*pinned, *rest]:
        text = _ANY if one.value == "*" else one.value.partition(" ")[0]
        if text == "*":  # any version, of one build
            text = one.value
        values.setdefault(text, []).append(one)
    commits = tuple(_commit(one, row) for one in row.of(Kind.RECIPE_COMMIT))
    if row.name == "python":
        return (Part(text=_python(", ".join(values))), *commits) if values else commits
    notes = {text: _scopes([one.scope for one in those]) for text, those in values.items()}
    if len(values) > 1 and len(set(notes.values())) < len(values):  # the same configs: then it is the section
        notes = {text: _sections(those) for text, those in values.items()}
    asked = (Part(text=text, note=notes[text] if len(values) > 1 else "", where=True) for text in values)
    return (*asked, *commits)


def _commit(finding: Finding, row: Row) -> Part:
    """Return a commit that a recipe pins, with whose recipe that is."""
    whose = finding.details.get("recipe", "")
    words = [word for word in (whose if whose != row.name else "", finding.scope) if word]
    return Part(text=brief(finding.value) or _ANY, note=", ".join(words), where=True)


def _sections(findings: Iterable[Finding]) -> str:
    words = {word for one in findings for word in one.details.get("sections", "").split()}
    scope = _scopes([one.scope for one in findings])
    return ", ".join([*([scope] if scope else []), *sorted(words)])


def conda_forge(row: Row) -> tuple[Part, ...]:
    """Return the global pin, where it is being migrated to, and the newest version in the channel.

    Left out: pins for platforms for which the recipe does not ask for it, and paused migrations, unless the recipe is
    ahead with one.
    """
    here = platforms_of({config for one in row.of(Kind.RECIPE) for config in _configs(one)})
    parts: list[Part] = []
    asked = [Spec(one.value) for one in row.of(Kind.RECIPE) if one.value != "*"]
    pins = [pin(value) for one in row.of(Kind.GLOBAL_PIN) for value in one.value.split(", ")]
    ahead = [
        one
        for one in asked
        if one.readable and not any(common([one, other]) for other in pins if other.readable)
    ]
    for finding in row.of(Kind.GLOBAL_PIN, Kind.MIGRATION):
        where = set(finding.details.get("platforms", "").replace(",", " ").split())
        if finding.trouble or (here and where and not where & here):
            continue
        if finding.details.get("paused") == "yes" and not any(
            common([one, pin(finding.value)]) for one in ahead
        ):
            continue
        values = dict.fromkeys(value for value in finding.value.split(", ") if value != "None")
        if not values:
            continue
        migration = finding.details.get("migration", "")
        notes = [f"migration {migration}" if finding.kind is Kind.MIGRATION else "pin"]
        if where and not where >= here:
            notes.append(_systems(where))
        text = _python(", ".join(values)) if row.name == "python" else ", ".join(values)
        parts.append(Part(text=text, note=", ".join(notes), url=finding.origin.url))
    return (*_merged(parts), *_newest(row))


def _systems(platforms: Iterable[str]) -> str:
    """Return platforms in short: ``linux`` for both of Linux."""
    found = sorted(platforms)
    for system in ("linux", "osx"):
        both = [name for name in found if name.startswith(system)]
        if len(both) > 1:
            found = [name for name in found if name not in both] + [system]
    return ", ".join(sorted(found))


def _newest(row: Row) -> tuple[Part, ...]:
    found = [one for one in row.of(Kind.NEWEST) if not one.trouble]
    if not found:
        return ()
    by_version: dict[str, list[Finding]] = {}
    for one in found:
        by_version.setdefault(one.value, []).append(one)
    best = newest(by_version)
    parts = []
    for version, findings in sorted(by_version.items(), key=lambda item: item[0] != best):
        where = {name for one in findings for name in one.scope.replace(",", " ").split()}
        note = "newest" if version == best or not where else f"newest, {_systems(where)}"
        parts.append(Part(text=version, note=note, url=findings[0].origin.url))
    return tuple(parts)


def says_nothing(row: Row) -> bool:
    """Whether there is nothing to compare: the recipe asks for a name, and nobody names a version."""
    parts = recipe(row)
    return (
        all(part.text == _ANY or part.text.startswith("* ") for part in parts)
        and not upstream(row)
        and not conda_forge(row)
        and row.status is Status.UNPINNED
    )


def _merged(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Put together who says the same."""
    found: dict[str, Part] = {}
    for part in parts:
        other = found.get(part.text)
        if other is None:
            found[part.text] = part
        else:
            notes = dict.fromkeys(word for one in (other, part) for word in one.note.split(", ") if word)
            found[part.text] = Part(text=part.text, note=", ".join(notes), url=other.url or part.url)
    return tuple(found.values())


def _scopes(scopes: Sequence[str]) -> str:
    """Return where a value holds, without what is said already: ``cuda130 mkl`` beside ``cuda130``."""
    terms = {frozenset(term.split()): term for scope in scopes if scope for term in scope.split(", ")}
    return ", ".join(
        sorted(text for words, text in terms.items() if not any(other < words for other in terms))
    )


def _python(text: str) -> str:
    """Return several Pythons in short: ``3.10 to 3.13``."""
    numbers = sorted(
        set(re.findall(r"(?<![\w.])3\.\d+", text)), key=lambda one: [int(part) for part in one.split(".")]
    )
    if len(numbers) > 1:
        return f"{numbers[0]} to {numbers[-1]}"
    return text.replace(" *_cp", " cp").partition(" ")[0] if text.startswith("3") else text
