"""A recipe's version, sources and requirements with their lines: recipe.yaml, or the plain lines of a meta.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rattler import Version, VersionSpec
from rattler.exceptions import InvalidVersionError, InvalidVersionSpecError
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from pin_audit.bump.places import Scalar, YamlFile, value_of

_MATCH = re.compile(r"""match\(\s*(\w+)\s*,\s*["']([^"']+)["']\s*\)""")
_META_VALUE = re.compile(r"""\s*\{%-?\s*set\s+(\w+)\s*=\s*["']?([^"'\s%]+)""")
_META_REQUIREMENT = re.compile(r"^\s*-\s+([A-Za-z0-9][\w.-]*)(?:\s+([<>=!~\d*][^#\[\]]*?))?\s*(?:#.*)?$")
_META_NAME = re.compile(r"^\s+name:\s*(?:\{\{\s*)?([\w.-]+)")
_META_SOURCE = re.compile(r"^\s*(?:-\s+)?(url|sha256):\s*(\S.*?)\s*(?:\s#.*)?$")
_SECTIONS = ("build", "host", "run", "run_constraints")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A requirement as the recipe has it, and what must hold for it."""

    text: str
    place: Scalar  #: where its text stands
    section: str  #: ``run``; empty where the format does not say
    conditions: tuple[tuple[str, bool], ...] = ()  #: expressions of ``if:``, and whether they hold

    @property
    def name(self) -> str:
        """Whom it asks for."""
        return self.text.split(" ", 1)[0]

    @property
    def spec(self) -> str:
        """The versions, without a build string: ``>=4.10.0``, ``=={{triton_version}}``."""
        words = re.sub(r"\$?\{\{\s*(\w+)\s*\}\}", r"{{\1}}", self.text.partition(" ")[2]).split()
        return words[0] if words else ""

    def holds(self, key: str, version: str) -> bool:
        """Whether it counts at a version: conditions about anything else are taken to hold."""
        return all(
            wanted == matches(found[2], version)
            for text, wanted in self.conditions
            if (found := _MATCH.fullmatch(text.strip())) and found[1] == key
        )


@dataclass(frozen=True, kw_only=True)
class Source:
    """An archive of a source section."""

    urls: tuple[str, ...]
    sha256: Scalar | None


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What of a recipe a version concerns."""

    file: YamlFile
    name: str
    version: Scalar | None
    build: Scalar | None
    values: Mapping[str, Scalar]  #: of ``context:``, or set by Jinja
    sources: tuple[Source, ...] = ()
    asked: tuple[Asked, ...] = ()
    #: Lines that ask for versions of a key: the line, the key, the specification.
    conditions: tuple[tuple[int, str, str], ...] = ()
    commits: tuple[tuple[str, Scalar], ...] = field(default=())  #: repositories of git, and what is taken


def read(root: Path, name: str) -> Recipe:
    """Read the recipe of that name below a repository; raises AuditError."""
    file = YamlFile(root, name)
    conditions = tuple(
        (number, found[1], found[2])
        for number, line in enumerate(file.lines, start=1)
        for found in _MATCH.finditer(line.partition(" #")[0])
    )
    if name.endswith("meta.yaml"):
        return _read_meta(file)
    document = file.document
    context = document.get("context")
    values = {str(key): one for key in context or () if (one := value_of(context, key))}
    parts = [document, *_maps(document.get("outputs"))]
    return Recipe(
        file=file,
        name=_name(document),
        version=values.get("version") or value_of(document.get("package"), "version"),
        build=values.get("build") or values.get("build_number") or value_of(document.get("build"), "number"),
        values=values,
        sources=tuple(source for part in parts for source in _sources(part)),
        asked=tuple(one for part in parts for one in _asked(part)),
        conditions=conditions,
        commits=tuple(
            (as_git["git"], place)
            for part in parts
            for as_git in _branches(part.get("source"))
            if isinstance(as_git, CommentedMap) and "git" in as_git
            if (place := value_of(as_git, "rev") or value_of(as_git, "tag"))
        ),
    )


def matches(spec: str, version: str) -> bool:
    """Whether a version fits a specification, as rattler-build's ``match()`` has it."""
    try:
        return VersionSpec(spec).matches(Version(version))
    except (InvalidVersionSpecError, InvalidVersionError):
        return True


def _name(document: Any) -> str:
    """Return what the recipe is called; an expression as a name stays one."""
    for key in ("recipe", "package"):
        if found := value_of(document.get(key), "name"):
            named = value_of(document.get("context"), found.key) if found.key else None
            return (named or found).value
    return ""


def _maps(node: Any) -> Iterator[CommentedMap]:
    """Yield a list's mappings, those in branches too."""
    yield from (one for one in _branches(node) if isinstance(one, CommentedMap))


def _branches(node: Any) -> Iterator[Any]:
    """Yield the items of a list or branch, whatever their conditions."""
    if isinstance(node, CommentedSeq):
        for one in node:
            yield from _branches(one)
    elif isinstance(node, CommentedMap) and "if" in node:
        for key in ("then", "else"):
            yield from _branches(node.get(key))
    elif node is not None:
        yield node


def _sources(part: Any) -> Iterator[Source]:
    for one in _branches(part.get("source")):
        if isinstance(one, CommentedMap) and "url" in one:
            urls = one["url"] if isinstance(one["url"], CommentedSeq) else [one["url"]]
            yield Source(urls=tuple(map(str, urls)), sha256=value_of(one, "sha256"))


def _asked(part: Any) -> Iterator[Asked]:
    needs = part.get("requirements")
    if isinstance(needs, CommentedMap):
        for section in _SECTIONS:
            yield from _walk(needs, section, section, ())


def _walk(above: Any, key: Any, section: str, conditions: tuple[tuple[str, bool], ...]) -> Iterator[Asked]:
    """Walk what stands under a key or number: a requirement, a list of them, or a choice."""
    node = above.get(key) if isinstance(above, CommentedMap) else above[key]
    if isinstance(node, str):
        mapping = isinstance(above, CommentedMap)
        line, column = above.lc.value(key) if mapping else above.lc.item(key)
        yield Asked(text=node, place=Scalar(node, line + 1, column), section=section, conditions=conditions)
    elif isinstance(node, CommentedSeq):
        for index in range(len(node)):
            yield from _walk(node, index, section, conditions)
    elif isinstance(node, CommentedMap) and "if" in node:
        for branch in ("then", "else"):
            yield from _walk(node, branch, section, (*conditions, (str(node["if"]), branch == "then")))


def _read_meta(file: YamlFile) -> Recipe:
    """Read a meta.yaml, which is YAML only once it is rendered: line by line."""
    urls: list[str] = []
    sources: list[Source] = []
    asked: list[Asked] = []
    values: dict[str, Scalar] = {}
    name = ""
    for number, line in enumerate(file.lines, start=1):
        if found := _META_VALUE.match(line):
            values.setdefault(found[1], Scalar(found[2], number, found.start(2)))
        elif not name and (found := _META_NAME.match(line)):
            name = values[found[1]].value if found[1] in values else found[1]
        elif found := _META_SOURCE.match(line):
            place = Scalar(found[2], number, found.start(2))
            if found[1] == "url":
                urls = [found[2]]
            else:
                sources.append(Source(urls=tuple(urls), sha256=place))
        elif found := _META_REQUIREMENT.match(line):
            text = f"{found[1]} {found[2] or ''}".strip()
            asked.append(Asked(text=text, place=Scalar(text, number, found.start(1)), section=""))
    return Recipe(
        file=file,
        name=name,
        version=values.get("version"),
        build=values.get("build") or values.get("build_number"),
        values=values,
        sources=tuple(sources),
        asked=tuple(asked),
    )
