"""``audit --bump VERSION``: list the changes for another version, with line, old and new value, and source.

Nothing is written. A published value is ``certain``; a decision is ``for a person``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from groundwork.errors import ConfigError
from megabuild.configs.config import CONFIG_FOLDER, PROVIDERS, python_version
from pin_audit.bump_requirements import Rendered, differences, lines_of
from pin_audit.facts import Requirement, Submodule, UpstreamArchs
from pin_audit.recipe_lines import Line
from pin_audit.release import Release, SourcedValue, find_sha256, place_of
from pin_audit.request import AuditRequest
from pin_audit.rows import cuda_of_wheel

CERTAIN, PERSON = "certain", "for a person"
_BUILD = re.compile(
    r"""^\s*(?:\{%\s*set\s+)?(?:build|number|build_number)\s*[:=]\s*["']?([1-9]\d*)["']?\s*(?:%\}|#|$)"""
)
_PATCH = re.compile(r"^\s*-\s+(\S+\.patch)\b")
_URL = re.compile(
    r"""^\s*(?:-\s+)?(?:(?:url:\s*)?["']?(https?://.*?|\$\{\{.*\}\}/.*?)|url:\s*["']?(\$?\{\{.*\}\}))["']?\s*(?:\s#.*)?$"""
)
_SHA256 = re.compile(r"\b[0-9a-f]{64}\b")
_SHA256_OF = re.compile(r"""^\s*(?:-\s+)?sha256:\s*["']?(\S+.*?)["']?\s*(?:#.*)?$""")
#: Why the sha256 of a source is not looked up.
_FIXED_SOURCE = "its address (line {line}) has no version: check whether the new release takes another one"
_UNREAD_ADDRESS = "its address (line {line}) cannot be read: compute the sha256 of the new one"
_REVISION = re.compile(r"""^\s*(?:-\s+)?(?:rev|git_rev):\s*["']?(\S.*?)["']?\s*(?:\s#.*)?$""")
_COMMIT = re.compile(r"\b[0-9a-f]{40}\b")
#: A requirement whose version is a variable.
_PINNED_VARIABLE = re.compile(r"[=~<>!]*\s*\$?\{\{\s*(\w+)\s*\}\}.*")
_VARIABLE = re.compile(r"\$?\{\{\s*(\w+)\s*\}\}")
_RENDERED = "scripts/test tests/integration/test_render_*.py -k kept --renew-names"
#: Files that are generated from the recipes and the matrix, with their commands.
_GENERATED = {
    CONFIG_FOLDER: "python scripts/megabuild configs --write",
    "tests/data/rendered.json": _RENDERED,
    "tests/data/rendered_pyg.json": _RENDERED,
    "docs/dependencies.md": "python scripts/megabuild audit --write docs/dependencies.md",
}


class Change(Struct, frozen=True):
    """One change for another version."""

    topic: str  #: ``version``, ``sha256``, ``triton``, ...
    kind: str  #: ``certain`` or ``for a person``
    file: str = ""  #: below the repository's root
    line: int | None = None
    old: str = ""
    new: str = ""  #: empty if unknown: the note gives the reason
    source: str = ""  #: where the new value is published
    note: str = ""  #: help for the decision, or the command that generates the file


class Bump(Struct, frozen=True, kw_only=True):
    """All changes for another version of a package."""

    package: str
    old: str
    new: str
    commit: str = ""  #: of the new version; empty if not read
    changes: tuple[Change, ...] = ()
    unread: tuple[str, ...] = ()  #: sources that could not be read, so that changes may be missing


def change(
    line: Line, topic: str, kind: str, old: str = "", new: str = "", source: str = "", note: str = ""
) -> Change:
    """Return a change of a line, or of its whole file if the line has no number."""
    return Change(topic, kind, line.file, line.number or None, old, new, source, note)


def _provider(line: Line) -> str:
    """Return the one provider that a line is for, or an empty string."""
    match = re.search(r'provider == "([\w-]+)"', line.selector)
    return match[1] if match else ""


@dataclass(frozen=True, kw_only=True)
class BumpContext:
    """Both releases, and the lines that may have to change."""

    root: Path
    request: AuditRequest  #: of the new release
    old: Release
    new: Release
    recipe: tuple[Line, ...]  #: of the package's recipes, the main one first
    matrix: tuple[Line, ...] = ()
    rendered: Mapping[str, Rendered] = field(default_factory=dict)  #: by file: for the new version
    key: str = ""  #: the key in conda_build_config.yaml with the version; empty for other feedstocks

    def values(self, key: str, value: str) -> list[Line]:
        """Return the lines that set a key to a value, in conda_build_config.yaml or else in the recipe."""
        items = [line for line in self.matrix if (line.key, line.value) == (key, value)]
        word, text = re.escape(key), re.escape(value)
        setting = re.compile(
            rf"""^\s*(?:\{{%-?\s*set\s+)?{word}\s*[:=]\s*["']?{text}["']?\s*(?:-?%\}}|#|$)"""
        )
        return items or [line for line in self.recipe if setting.match(line.text)]

    def definitions(self, line: Line, text: str) -> list[Line]:
        """Return the lines that define a line's value: the line itself, or those that set its variable."""
        if not (variable := _VARIABLE.fullmatch(text)):
            return [line]
        setting = re.compile(rf"^\s*{variable[1]}\s*[:=]")
        lines = (*self.matrix, *self.recipe)
        return [other for other in lines if other.key == variable[1] or setting.match(other.text)]

    def set_value(self, topic: str, lines: Iterable[Line], old: str, new: SourcedValue) -> Iterator[Change]:
        """Yield a new value for lines. A person decides on rows of official wheels; Debian's rows do not change."""
        for line in lines:
            if _provider(line) == "debian" or old == new.value:
                continue
            if not new.value:
                yield change(line, topic, PERSON, old, note=f"unknown: {new.source}")
            elif _provider(line) == "wheel":
                note = f"row of official wheels, whose CUDA is {cuda_of_wheel(self.new.all(Requirement)) or 'unknown'}"
                yield change(line, topic, PERSON, old, new.value, new.source, note)
            else:
                yield change(line, topic, CERTAIN, old, new.value, new.source)


def collect(context: BumpContext) -> Bump:
    """Return all changes for the new version."""
    steps = (_versions, _hashes, _commits, _requirements, _pythons, _cuda, _patches, _submodules, _generated)
    changes = [change for step in steps for change in step(context)]
    return Bump(
        package=context.request.target.package,
        old=context.old.version,
        new=context.new.version,
        commit=context.new.commit,
        changes=tuple(dict.fromkeys(changes)),
        unread=(*context.old.unread, *context.new.unread),
    )


def _versions(context: BumpContext) -> Iterator[Change]:
    lines = context.values(context.key or "version", context.old.version)
    new = SourcedValue(context.new.version, "--bump")
    yield from context.set_value("version", lines, context.old.version, new)
    for line in context.recipe:
        if match := _BUILD.match(line.text):
            first = SourcedValue("0", "a new version starts at build 0")
            yield from context.set_value("build number", [line], match[1], first)


def _hashes(context: BumpContext) -> Iterator[Change]:
    """Yield the sha256 of each source. It is looked up if the version is in the address, in the lines above it."""
    new, package, before = context.new.version, context.request.target.package, ""
    urls: list[str] = []
    address = 0
    for line in context.recipe:
        if match := _URL.match(line.text):
            urls, address = [*(urls if _URL.match(before) else []), match[1] or match[2]], line.number
        elif match := _SHA256_OF.match(line.text):
            values = {"version": new, context.key: new, "name": package}
            urls = [_VARIABLE.sub(lambda word: values.get(word[1], word[1]), url) for url in urls]  # noqa: B023
            urls = [re.sub(r"\$?\{\{\s*name\b.*?\}\}", package, url) for url in urls]
            urls = [url.replace(context.old.version, new) for url in urls]
            dated = any(new in url for url in urls)
            note = _FIXED_SOURCE if urls and not any("{{" in url for url in urls) else _UNREAD_ADDRESS
            note = note.format(line=address or "?")
            for definition in context.definitions(line, match[1]):
                if old := _SHA256.search(definition.text):
                    if dated:
                        sha256 = find_sha256(urls, context.request)
                        yield from context.set_value("sha256", [definition], old[0], sha256)
                    elif _provider(definition) != "debian":
                        yield change(definition, "sha256", PERSON, old[0], note=note)
            urls = []
        before = line.text


def _commits(context: BumpContext) -> Iterator[Change]:
    """Yield the commits that a recipe takes from git: upstream's own, and those of its submodules."""
    now = {fact.name: fact.commit for fact in context.new.all(Submodule)}
    moved = {
        fact.commit: SourcedValue(now.get(fact.name, ""), fact.name) for fact in context.old.all(Submodule)
    }
    moved[context.old.commit] = SourcedValue(context.new.commit, f"the tag of {context.new.version}")
    for line in context.recipe:
        if taken := _REVISION.match(line.text):
            for definition in context.definitions(line, taken[1]):
                if commit := _COMMIT.search(definition.text):
                    new = moved.get(commit[0], SourcedValue(""))
                    reason = f"the commit of {context.new.version} was not read"
                    new = new if new.value else SourcedValue("", reason)
                    yield from context.set_value("commit", [definition], commit[0], new)


def _requirements(context: BumpContext) -> Iterator[Change]:
    """Yield the recipe's lines whose requirement differs between the old and the new wheel."""
    for found in differences(context.old, context.new, context.recipe, context.rendered):
        source = place_of(found.fact.where)
        if variable := _PINNED_VARIABLE.fullmatch(found.spec):
            lines = context.values(variable[1], found.old)
            yield from context.set_value(found.row, lines, found.old, SourcedValue(found.new, source))
        elif "{" not in found.spec:
            kind = CERTAIN if found.certain else PERSON
            yield change(found.line, found.row, kind, found.old, found.new, source, found.note)


def _pythons(context: BumpContext) -> Iterator[Change]:
    """Yield the changes of Requires-Python, and the matrix's Pythons that the new one excludes."""
    new, old = context.new.requires_python, context.old.requires_python
    for line, spec in lines_of(context.recipe, "python"):
        if new.value and spec == old.value != new.value:
            yield change(line, "python", CERTAIN, spec, new.value, new.source)
    if new.value and new.value != old.value:
        of_wheels = context.values("torch_requires_python", old.value)
        yield from context.set_value("Requires-Python", of_wheels, old.value, new)
    here: dict[str, Line] = {}
    for line in context.matrix:
        if line.key == "python" and _provider(line) != "debian" and line.value:
            with contextlib.suppress(ConfigError):
                here[python_version(line.value)] = line
    for python, line in here.items():
        with contextlib.suppress(InvalidSpecifier):
            if not SpecifierSet(new.value).contains(f"{python.removesuffix('t')}.99"):
                note = "remove it from conda-forge's rows, with the values zipped with python"
                yield change(line, "python", PERSON, line.value, "", f"{new.source}: {new.value}", note)


def _cuda(context: BumpContext) -> Iterator[Change]:
    """Yield the CUDA versions that upstream's wheels gain or lose."""
    old, new = (cuda_of_wheel(release.all(Requirement)) for release in (context.old, context.new))
    here = {
        line.value: line
        for line in context.matrix
        if line.key == "cuda_compiler_version" and re.match(r"\d", line.value)
        if _provider(line) not in ("debian", "wheel")
    }
    if old and new and old != new and here and new not in here:
        note = f"CUDA of upstream's wheels; the configs have {', '.join(here)}; conda-forge's pinning decides"
        yield change(next(reversed(here.values())), "CUDA", PERSON, old, new, "", note)
    shipped = sorted({cuda for fact in context.new.all(UpstreamArchs) for cuda in fact.holds.cuda})
    for cuda, line in here.items():
        if shipped and cuda not in shipped:
            note = f"upstream ships {', '.join(shipped)}; conda-forge's pinning decides"
            yield change(line, "CUDA", PERSON, cuda, "", "", note)


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


def _submodules(context: BumpContext) -> Iterator[Change]:
    """Yield the submodules that moved; those known from one release only are skipped."""
    was, now = (
        {fact.name: fact for fact in release.all(Submodule)} for release in (context.old, context.new)
    )
    moved = [
        f"{name} {was[name].text} -> {now[name].text}"
        for name in sorted(was.keys() & now.keys())
        if was[name].commit != now[name].commit
    ]
    if moved:
        recipe = Line(context.recipe[0].file, 0, "")
        yield change(recipe, "submodules", PERSON, f"{len(moved)} moved", "", "", "; ".join(moved))


def _generated(context: BumpContext) -> Iterator[Change]:
    """Yield the generated files, with the command that makes each."""
    commands = _GENERATED if context.key else {CONFIG_FOLDER: "conda-smithy rerender"}
    for name, command in commands.items():
        if (context.root / name).exists():
            yield change(Line(name, 0, ""), "generated", CERTAIN, note=command)
