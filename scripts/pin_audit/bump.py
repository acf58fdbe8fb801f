"""``audit --bump VERSION``: list the changes for another version, with line, old and new value, and source.

Nothing is written. A published value is ``certain``; a decision is ``for a person``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from groundwork.errors import ConfigError
from megabuild.configs.config import CONFIG_FOLDER, PROVIDERS, python_version
from pin_audit.bump_context import (
    CERTAIN,
    PERSON,
    VARIABLE,
    BumpContext,
    Change,
    Digest,
    Release,
    change,
    find_sha256,
    place_of,
    provider_of,
)
from pin_audit.facts import Newest, Requirement, Submodule, UpstreamArchs
from pin_audit.name_map import names
from pin_audit.recipe_lines import Line
from pin_audit.rows import cuda_of_wheel, is_optional, of_nvidia
from pin_audit.versions import Spec, lowest, newest, within

_BUILD = re.compile(
    r"""^\s*(?:\{%\s*set\s+)?(?:build|number|build_number)\s*[:=]\s*["']?([1-9]\d*)["']?\s*(?:%\}|#|$)"""
)
_PATCH = re.compile(r"^\s*-\s+(\S+\.patch)\b")
_URL = re.compile(
    r"""^\s*(?:-\s+)?(?:(?:url:\s*)?["']?(https?://.*?|\$\{\{.*\}\}/.*?)|url:\s*["']?(\$?\{\{.*\}\}))["']?\s*(?:\s#.*)?$"""
)
_SHA256 = re.compile(r"\b[0-9a-f]{64}\b")
_SHA256_OF = re.compile(r"""^\s*(?:-\s+)?sha256:\s*["']?(\S+.*?)["']?\s*(?:#.*)?$""")
_REVISION = re.compile(r"""^\s*(?:-\s+)?(?:rev|git_rev):\s*["']?(\S.*?)["']?\s*(?:\s#.*)?$""")
_COMMIT = re.compile(r"\b[0-9a-f]{40}(?:[0-9a-f]{24})?\b")
_SECTION = re.compile(r"^\s*(?:-\s+)?(build|host|run|run_\w+|requires|by_name):\s*(?:#.*)?$")
_BRANCH = re.compile(r"\s*(?:then|else):")
#: Sections whose requirements hold where the package is installed.
_INSTALLED = ("run", "run_constraints", "run_constrained")
_HOST_NOTE = "for the build, upstream's build-system.requires decides, not the wheel"
#: A requirement whose version is a variable.
_PINNED_VARIABLE = re.compile(r"[=~<>!]*\s*\$?\{\{\s*(\w+)\s*\}\}.*")
_RENDERED = "scripts/test tests/integration/test_render_*.py -k kept --renew-names"
#: Files that are generated from the recipes and the matrix, with their commands.
_GENERATED = {
    CONFIG_FOLDER: "python scripts/megabuild configs --write",
    "tests/data/rendered.json": _RENDERED,
    "tests/data/rendered_pyg.json": _RENDERED,
    "docs/dependencies.md": "python scripts/megabuild audit --write docs/dependencies.md",
}


class Bump(Struct, frozen=True, kw_only=True):
    """All changes for another version of a package."""

    package: str
    old: str
    new: str
    commit: str = ""  #: of the new version; empty if not read
    changes: tuple[Change, ...] = ()
    unread: tuple[str, ...] = ()  #: sources that could not be read, so that changes may be missing


def collect(context: BumpContext) -> Bump:
    """Return all changes for the new version."""
    old, new = context.old, context.new
    steps = (
        _versions, _hashes, _commits, _requirements, _availability, _pythons, _cuda, _patches, _generated
    )  # fmt: skip
    changes = [change for step in steps for change in step(context)]
    return Bump(
        package=context.request.target.package,
        old=old.version,
        new=new.version,
        commit=new.commit,
        changes=tuple(dict.fromkeys(changes)),
        unread=tuple(
            f"{outcome.source} of {release.version}: {outcome.trouble}"
            for release in (old, new)
            for outcome in release.outcomes
            if outcome.applies and outcome.trouble
        ),
    )


def _versions(context: BumpContext) -> Iterator[Change]:
    lines = context.values(context.key or "version", context.old.version)
    yield from context.set_value("version", lines, context.old.version, context.new.version, "--bump")
    for line in context.recipe:
        if match := _BUILD.match(line.text):
            reason = "a new version starts at build 0"
            yield from context.set_value("build number", [line], match[1], "0", reason)


def _hashes(context: BumpContext) -> Iterator[Change]:
    """Yield the sha256 of each source. It is looked up if the version is in the address, in the lines above it."""
    new, package, before = context.new.version, context.request.target.package, ""
    urls: list[str] = []
    address: int | str = "?"
    for line in context.recipe:
        if match := _URL.match(line.text):
            urls, address = [*(urls if _URL.match(before) else []), match[1] or match[2]], line.number
        elif match := _SHA256_OF.match(line.text):
            values = {"version": new, context.key: new, "name": package}
            urls = [VARIABLE.sub(lambda word: values.get(word[1], word[1]), url) for url in urls]  # noqa: B023
            urls = [re.sub(r"\$?\{\{\s*name\b.*?\}\}", package, url) for url in urls]
            urls = [url.replace(context.old.version, new) for url in urls]
            found = Digest(source=f"its address (line {address}) has no version that can be read")
            if any(new in url for url in urls):
                found = find_sha256(urls, context.request)
            doubt = "" if found.is_confirmed else "compare it with the file: sha256sum"
            for definition in context.definitions(line, match[1]):
                if old := _SHA256.search(definition.text):
                    yield from context.set_value(
                        "sha256", [definition], old[0], found.sha256, found.source, doubt=doubt
                    )
            urls = []
        before = line.text


def _commits(context: BumpContext) -> Iterator[Change]:
    """Yield the commits that a recipe takes from git: upstream's own, and those of its submodules."""
    now = {fact.name: fact.commit for fact in context.new.all(Submodule)}
    moved = {fact.commit: (now.get(fact.name, ""), fact.name) for fact in context.old.all(Submodule)}
    moved[context.old.commit] = context.new.commit, f"the tag of {context.new.version}"
    for line in context.recipe:
        if taken := _REVISION.match(line.text):
            for definition in context.definitions(line, taken[1]):
                if commit := _COMMIT.search(definition.text):
                    new, source = moved.get(commit[0], ("", ""))
                    source = source if new else f"the commit of {context.new.version} was not read"
                    yield from context.set_value("commit", [definition], commit[0], new, source)


def _requirements(context: BumpContext) -> Iterator[Change]:
    """Yield the lines whose requirement differs between the old and the new wheel.

    NVIDIA's packages that only one of them requires are left out: cuda-toolkit may require them as well.
    """
    was, now = _by_row(context.old), _by_row(context.new)
    for row in dict.fromkeys((*now, *was)) if was and now else ():
        before, after = was.get(row), now.get(row)
        if row in ("python", "cuda-version") or (before and after and before.value == after.value):
            continue
        asked = lines_of(context.recipe, row)
        if before and after:
            yield from _compare(row, before.value, after, asked, context)
        elif (fact := after or before) and bool(asked) != bool(after) and not of_nvidia(fact):
            line = asked[0][0] if asked else Line(context.recipe[0].file, 0, "")
            note = (
                "the wheel requires it, the recipe does not" if after else "the wheel no longer requires it"
            )
            values = before.value if before else "", after.value if after else ""
            yield change(line, row, PERSON, *values, place_of(fact.where), note)


def needs_of_channel(release: Release) -> dict[str, Requirement]:
    """Return a release's requirements of one version (``==3.7.1``, ``~=3.8.0``) by conda-forge's name."""
    needs = {}
    for row, fact in _by_row(release).items():
        if fact.value.startswith(("==", "~=")) and not of_nvidia(fact):
            name = next(iter(names().entry(row).conda), row)
            needs[name] = fact
    return needs


def _availability(context: BumpContext) -> Iterator[Change]:
    """Yield the packages that the wheel needs in one version, unless conda-forge's newest version is one."""
    for name, fact in needs_of_channel(context.new).items():
        asked = lines_of(context.recipe, names().by_name(name))
        found = [item for item in context.newest if item.name == name]
        best = newest(item.value for item in found if item.value)
        is_there = bool(best) and Spec(fact.value).admits(best)
        if asked and not is_there:
            line, _ = asked[0]
            note = _why_absent(fact, best, found)
            place = place_of(fact.where)
            yield change(line, f"{name} in conda-forge", PERSON, best, fact.value, place, note)


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


def _by_row(release: Release) -> dict[str, Requirement]:
    facts = (fact for fact in release.all(Requirement) if not is_optional(fact))
    return {names().by_name(fact.name): fact for fact in facts}


def lines_of(recipe: Iterable[Line], row: str) -> list[tuple[Line, str]]:
    """Return the recipe's lines that require a row of name_map.yaml, each with the constraint."""
    # `-` and `_` are the same in Python's names
    words = "|".join(re.sub("[-_.]", "[-_.]", name) for name in (row, *names().entry(row).conda))
    asked = re.compile(rf"""(?:-|then:|else:)\s+["']?(?:{words})(?:\s+([^#"'\[]+?))?["']?\s*(?:#.*)?$""")
    return [(line, match[1] or "") for line in recipe if (match := asked.search(line.text))]


def _compare(
    row: str, was: str, now: Requirement, asked: Sequence[tuple[Line, str]], context: BumpContext
) -> Iterator[Change]:
    """Yield the changes of lines whose requirement both wheels have, but not equally.

    A wheel's METADATA says what the installed package needs, so only lines of ``run`` can be certain, outside branches.
    A branch stays as it is if another one of its section already has the new requirement.
    """
    exact, old, source = now.value.lstrip("=~<>!"), was.lstrip("=~<>!"), place_of(now.where)
    pinned = now.value.startswith("==")
    found = []
    done = set()
    for line, spec in asked:
        place = section_of(line, context.recipe)
        variable = _PINNED_VARIABLE.fullmatch(spec)
        if variable is not None:
            values = context.values(variable[1], old)
            yield from context.set_value(row, values, old, exact, source)
        elif "{" not in spec:
            fits = Spec(spec).admits(exact) if pinned else within(Spec(spec), Spec(now.value))
            done |= {place} if fits else set()
            found += [] if fits else [(line, spec, *place)]
    for line, spec, section, branch in found:
        installed = section in _INSTALLED
        if (branch and (section, branch) in done) or (not installed and spec not in ("", was)):
            continue
        stricter = now.value.startswith(("==", "~=")) or within(Spec(now.value), Spec(was))
        kind = CERTAIN if installed and not branch and spec == was and stricter else PERSON
        note = f"the old wheel required {was}" if installed else _HOST_NOTE
        yield change(line, row, kind, spec, now.value, source, "" if kind == CERTAIN else note)


def section_of(line: Line, recipe: Sequence[Line]) -> tuple[str, bool]:
    """Return the section of a requirement's line, ``host``, or an empty string, and whether it is in a branch."""
    indent, branch = len(line.text), False
    above = [other for other in recipe if other.file == line.file and other.number <= line.number]
    for other in reversed(above):
        here = len(other.text) - len(other.text.lstrip())
        if other.text.strip() and here <= indent:
            match = _SECTION.match(other.text)
            if match:
                return match[1], branch
            branch = branch or _BRANCH.match(other.text) is not None
            indent = here
    return "", branch


def _pythons(context: BumpContext) -> Iterator[Change]:
    """Yield the changes of Requires-Python, and the matrix's Pythons that the new one excludes."""
    old, new = (_by_row(release).get("python") for release in (context.old, context.new))
    if new is None:
        return
    was, source = old.value if old else "", place_of(new.where)
    if new.value != was:
        lines = [line for line, spec in lines_of(context.recipe, "python") if spec == was]
        lines += context.values("torch_requires_python", was)
        yield from context.set_value("Requires-Python", lines, was, new.value, source)
    here: dict[str, Line] = {}
    for line in context.matrix:
        if line.key == "python" and provider_of(line) != "debian" and line.value:
            with contextlib.suppress(ConfigError):
                here[python_version(line.value)] = line
    for python, line in here.items():
        if not Spec(new.value).admits(f"{python.removesuffix('t')}.99"):
            note = "remove it from conda-forge's rows, with the values zipped with python"
            yield change(line, "python", PERSON, line.value, "", f"{source}: {new.value}", note)


def _cuda(context: BumpContext) -> Iterator[Change]:
    """Yield the CUDA versions of conda-forge's configs if upstream ships others."""
    here = {
        line.value: line
        for line in context.matrix
        if line.key == "cuda_compiler_version" and re.match(r"\d", line.value)
        if provider_of(line) not in ("debian", "wheel")
    }
    shipped = {cuda for fact in context.new.all(UpstreamArchs) for cuda in fact.holds.cuda}
    shipped |= {cuda_of_wheel(context.new.all(Requirement))} - {""}
    if here and shipped and shipped != here.keys():
        values = ", ".join(sorted(here)), ", ".join(sorted(shipped))
        yield change(next(iter(here.values())), "CUDA", PERSON, *values, "", "conda-forge's pinning decides")


def _patches(context: BumpContext) -> Iterator[Change]:
    """Yield the patches of conda-forge's builds, which a person has to apply to the new source."""
    lines = {}
    for line in context.recipe:
        match = _PATCH.match(line.text)
        if match and not {*PROVIDERS[1:]} & {*Path(match[1]).parts}:
            lines[Path(match[1]).name] = line
    if lines:
        first = next(iter(lines.values()))
        note = f"check that they apply: {', '.join(lines)}"
        yield change(first, "patches", PERSON, f"{len(lines)} patches", note=note)


def _generated(context: BumpContext) -> Iterator[Change]:
    """Yield the generated files, with the command that makes each."""
    commands = _GENERATED if context.key else {CONFIG_FOLDER: "conda-smithy rerender"}
    for name, command in commands.items():
        if (context.root / name).exists():
            yield change(Line(name, 0, ""), "generated", CERTAIN, note=command)
