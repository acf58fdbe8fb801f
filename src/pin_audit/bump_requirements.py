"""``audit --bump``: requirements that differ between the old and the new wheel, and the lines that have them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from groundwork.errors import ConfigError
from megabuild.configs.config import python_version
from pin_audit.bump_context import BumpContext, Change, ChangeKind, Release, change, place_of
from pin_audit.facts import CiPin, Newest, Requirement
from pin_audit.name_map import names
from pin_audit.recipe_lines import Line
from pin_audit.versions import Spec, lowest, newest, within

_PYTHON = "python"
_OTHER_TOPICS = (_PYTHON, "cuda-version")  # rows with changes of their own
_SECTION = re.compile(r"^\s*(?:-\s+)?(build|host|run|run_\w+|requires|by_name):\s*(?:#.*)?$")
_BRANCH = re.compile(r"\s*(?:then|else):")
#: Sections whose requirements hold where the package is installed.
_INSTALLED = ("run", "run_constraints", "run_constrained")
_HOST_NOTE = "for the build, upstream's build-system.requires decides, not the wheel"
#: A requirement whose version is a variable.
_PINNED_VARIABLE = re.compile(r"[=~<>!]*\s*\$?\{\{\s*(\w+)\s*\}\}.*")
_SIGNS = "=~<>!"
#: Requirements of one version or one series.
_ONE_VERSION = ("==", "~=")
_SINGLE = re.compile(r"(?P<sign>[=~<>!]+)[^,=~<>!]+")  # a requirement without a comma


@dataclass(frozen=True)
class LinePlace:
    """The section of a requirement's line, ``host``, or an empty string, and whether the line is in a branch."""

    section: str
    in_branch: bool

    @property
    def is_installed(self) -> bool:
        """Whether the requirement holds where the package is installed."""
        return self.section in _INSTALLED


def requirements(context: BumpContext) -> Iterator[Change]:
    """Yield the lines whose requirement differs between the old and the new wheel.

    NVIDIA's packages that only one of them requires are left out: cuda-toolkit may require them as well.
    """
    was = _by_row(context.old)
    now = _by_row(context.new)
    if not was or not now:
        return
    for row in dict.fromkeys((*now, *was)):
        if row in _OTHER_TOPICS:
            continue
        asked = lines_of(context.recipe, row)
        if row not in was:
            yield from _added(row, now[row], asked, context)
        elif row not in now:
            yield from _dropped(row, was[row], asked)
        elif was[row].value != now[row].value:
            yield from _compare(row, was[row].value, now[row], asked, context)


def _added(row: str, after: Requirement, asked: Sequence[Line], context: BumpContext) -> Iterator[Change]:
    if not asked and not after.is_of_nvidia:
        yield change(
            Line(context.recipe[0].file, 0, ""),
            row,
            ChangeKind.PERSON,
            new=after.value,
            source=place_of(after.where),
            note="the wheel requires it, the recipe does not",
        )


def _dropped(row: str, before: Requirement, asked: Sequence[Line]) -> Iterator[Change]:
    if asked and not before.is_of_nvidia:
        note = "the wheel no longer requires it"
        source = place_of(before.where)
        yield change(asked[0], row, ChangeKind.PERSON, old=before.value, source=source, note=note)


def needs_of_channel(release: Release) -> dict[str, Requirement]:
    """Return a release's requirements of one version (``==3.7.1``, ``~=3.8.0``) by conda-forge's name."""
    needs = {}
    for row, fact in _by_row(release).items():
        if fact.value.startswith(_ONE_VERSION) and not fact.is_of_nvidia:
            name = next(iter(names().entry(row).conda), row)
            needs[name] = fact
    return needs


def availability(context: BumpContext) -> Iterator[Change]:
    """Yield the packages that the wheel needs in one version, unless conda-forge's newest version is one."""
    for name, fact in needs_of_channel(context.new).items():
        asked = lines_of(context.recipe, names().by_name(name))
        found = [item for item in context.newest if item.name == name]
        best = newest(item.value for item in found if item.value)
        if asked and not (best and Spec(fact.value).admits(best)):
            yield change(
                asked[0],
                f"{name} in conda-forge",
                ChangeKind.PERSON,
                old=best,
                new=fact.value,
                source=place_of(fact.where),
                note=_why_absent(fact, best, found),
            )


def _why_absent(fact: Requirement, best: str, found: Sequence[Newest]) -> str:
    """Return a note on a requirement that conda-forge's newest version, ``best``, does not meet."""
    if not best:
        troubles = "; ".join(item.trouble for item in found if item.trouble)
        return f"unknown whether conda-forge has it: {troubles or 'its channel was not read'}"
    days = [item.where.fetched[:10] for item in found if item.where.fetched]
    day = f", read on {days[0]}" if days else ""
    lowest_needed = lowest(Spec(fact.value))
    if Spec(f"<{lowest_needed}").admits(best):
        return f"conda-forge has none newer than {best}{day}: without it, the packages cannot be installed"
    return f"conda-forge's newest is {best}{day}; check that it has {fact.value}, too"


def pythons(context: BumpContext) -> Iterator[Change]:
    """Yield the changes of Requires-Python, and the matrix's Pythons that the new one excludes."""
    after = _by_row(context.new).get(_PYTHON)
    if after is None:
        return
    before = _by_row(context.old).get(_PYTHON)
    was = before.value if before else ""
    source = place_of(after.where)
    if after.value != was:
        lines = [line for line in lines_of(context.recipe, _PYTHON) if line.value == was]
        lines += context.values("torch_requires_python", was)
        yield from context.set_value("Requires-Python", lines, old=was, new=after.value, source=source)
    for python, line in _pythons_of_matrix(context.matrix).items():
        if not Spec(after.value).admits(f"{python.removesuffix('t')}.99"):
            note = "remove it from conda-forge's rows, with the values zipped with python"
            place = f"{source}: {after.value}"
            yield change(line, _PYTHON, ChangeKind.PERSON, old=line.value, source=place, note=note)


def new_pythons(context: BumpContext) -> Iterator[Change]:
    """Yield the Pythons for which the new release is the first with wheels, unless the matrix has them."""
    here = _pythons_of_matrix(context.matrix)
    before = _pythons_of_wheels(context.old)
    if not here or not before:
        return
    *_, last = here.values()
    known = {*here, *before}
    source = f"wheels of {context.new.version}"
    for python in _pythons_of_wheels(context.new):
        if python not in known:
            note = "the first release with wheels for it; conda-forge's migration decides when it gets a row"
            yield change(last, _PYTHON, ChangeKind.PERSON, new=python, source=source, note=note)


def _pythons_of_wheels(release: Release) -> list[str]:
    """Return the Pythons of a release's wheels, ``3.14t`` for a free-threaded one; empty if unread."""
    pythons: list[str] = []
    for fact in release.all(CiPin):
        if fact.name == _PYTHON and fact.shipped:
            pythons += fact.value.split(", ")
    return pythons


def _pythons_of_matrix(matrix: Iterable[Line]) -> dict[str, Line]:
    """Return the last line of each Python, ``3.12`` or ``3.14t``; Debian has its own."""
    pythons: dict[str, Line] = {}
    for line in matrix:
        if line.key == _PYTHON and line.value and not line.is_of_debian:
            with contextlib.suppress(ConfigError):
                pythons[python_version(line.value)] = line
    return pythons


def _by_row(release: Release) -> dict[str, Requirement]:
    facts = [fact for fact in release.all(Requirement) if not fact.is_optional]
    return {names().by_name(fact.name): fact for fact in facts}


def lines_of(recipe: Iterable[Line], row: str) -> list[Line]:
    """Return the recipe's lines that require a row of name_map.yaml, each with the constraint as its value."""
    # `-` and `_` are the same in Python's names
    spellings = [re.sub("[-_.]", "[-_.]", name) for name in (row, *names().entry(row).conda)]
    asked = re.compile(
        rf"""(?:-|then:|else:)\s+["']?(?:{"|".join(spellings)})(?:\s+([^#"'\[]+?))?["']?\s*(?:#.*)?$"""
    )
    lines = []
    for line in recipe:
        match = asked.search(line.text)
        if match is not None:
            lines.append(replace(line, value=match[1] or ""))
    return lines


def _compare(
    row: str, was: str, now: Requirement, asked: Sequence[Line], context: BumpContext
) -> Iterator[Change]:
    """Yield the changes of lines whose requirement both wheels have, but not equally.

    A wheel's METADATA says what the installed package needs, so only lines of ``run`` can be certain, outside branches.
    A branch stays as it is if another one of its section already has the new requirement.
    """
    source = place_of(now.where)
    old = was.lstrip(_SIGNS)
    new = now.value.lstrip(_SIGNS)
    for line in asked:
        variable = _PINNED_VARIABLE.fullmatch(line.value)
        if variable is None:
            continue
        if _have_one_sign(was, now.value):
            lines = context.values(variable[1], old)
            yield from context.set_value(row, lines, old=old, new=new, source=source)
        else:  # the variable is a version, and its line has the former sign
            note = f"the old wheel required {was}"
            yield change(
                line, row, ChangeKind.PERSON, old=line.value, new=now.value, source=source, note=note
            )
    plain = [line for line in asked if "{" not in line.value]
    fitting = [line for line in plain if _fits(Spec(line.value), Spec(now.value))]
    done = {place_in(line, context.recipe) for line in fitting}
    for line in plain:
        place = place_in(line, context.recipe)
        if line not in fitting and not (place.in_branch and place in done):
            yield from _replace(line, place, row, was, now)


def _have_one_sign(was: str, now: str) -> bool:
    """Whether two requirements differ in one version only; ``==`` and ``~=`` both admit the version they name."""
    signs = set()
    for text in (was, now):
        single = _SINGLE.fullmatch(text)
        signs.add(single["sign"] if single else "")
    return "" not in signs and (len(signs) == 1 or signs.issubset(_ONE_VERSION))


def _replace(line: Line, place: LinePlace, row: str, was: str, now: Requirement) -> Iterator[Change]:
    """Yield the new requirement of a line; one for the build is left alone, unless it is the old wheel's or bare."""
    same = line.value == was
    source = place_of(now.where)
    stricter = now.value.startswith(_ONE_VERSION) or within(Spec(now.value), Spec(was))
    if place.is_installed and not place.in_branch and same and stricter:
        yield change(line, row, ChangeKind.CERTAIN, old=was, new=now.value, source=source)
    elif place.is_installed or same or not line.value:
        note = f"the old wheel required {was}" if place.is_installed else _HOST_NOTE
        yield change(line, row, ChangeKind.PERSON, old=line.value, new=now.value, source=source, note=note)


def _fits(spec: Spec, needed: Spec) -> bool:
    """Whether a constraint meets a requirement; of one version, it need only admit that version."""
    if needed.text.startswith("=="):
        return spec.admits(needed.text.lstrip(_SIGNS))
    return within(spec, needed)


def place_in(line: Line, recipe: Iterable[Line]) -> LinePlace:
    """Return the place of a requirement's line, by the indents of the lines above it."""
    indent = len(line.text)
    in_branch = False
    above = [other for other in recipe if other.file == line.file and other.number <= line.number]
    for other in reversed(above):
        text = other.text.lstrip()
        here = len(other.text) - len(text)
        if not text or here > indent:
            continue
        match = _SECTION.match(other.text)
        if match is not None:
            return LinePlace(match[1], in_branch)
        in_branch = in_branch or _BRANCH.match(other.text) is not None
        indent = here
    return LinePlace("", in_branch)
