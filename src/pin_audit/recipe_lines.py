"""The lines of a recipe or of a conda_build_config.yaml, read as text, and the one that a rendered value comes from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from groundwork import files
from groundwork.errors import AuditError, IntegrityError
from megabuild.configs.provider_name import ProviderName
from pin_audit.facts import Where
from pin_audit.meta_yaml import names_of

_KEY = re.compile(r"^([A-Za-z_][\w.-]*):")
_ITEM = re.compile(r"""^\s*-\s+["']?([^#"']*?)["']?\s*(?:#.*?(?:\[(?P<selector>[^\]]+)\])?\s*)?$""")
_PREFIXES = {"rev": "", "tag": "refs/tags/", "branch": "refs/heads/"}  # as the engine writes them out
_PIN = re.compile(r"""pin_(?:subpackage|compatible)\(\s*["']([\w.-]+)["']""")
_NAME = re.compile(r"[a-z0-9][\w.-]*")
_BRANCHES = ("then", "else")
_LARGEST = 4 << 20  # bytes of a recipe or config


@dataclass(frozen=True)
class Line:
    """A line of a recipe, or an item of a key of conda_build_config.yaml."""

    file: str
    number: int  #: counted from 1; 0 for the whole file
    text: str
    key: str = ""  #: of conda_build_config.yaml
    value: str = ""
    selector: str = ""

    @property
    def is_of_debian(self) -> bool:
        """Whether the item is for Debian's builds only."""
        return f'provider == "{ProviderName.DEBIAN}"' in self.selector

    @property
    def is_of_wheels(self) -> bool:
        """Whether the item is for builds with official wheels only."""
        return f'provider == "{ProviderName.WHEEL}"' in self.selector


def read_text(path: Path, root: Path | None = None, remedy: str = "correct the file") -> str:
    """Return a file's text, without following links below `root`. Raises AuditError if it cannot be read."""
    try:
        with files.open_regular(path, below=_below(path, root)) as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise AuditError(f"{path}: refused: more than {_LARGEST >> 20} MB", remedy)
        return content.decode("utf-8")
    except IntegrityError as error:
        raise AuditError(f"{error.message}: refused", remedy) from error
    except (OSError, UnicodeError) as error:
        raise AuditError(f"{path}: cannot be read: {error}", remedy) from error


def _below(path: Path, root: Path | None) -> Path | None:
    """Return the repository if a file is in it."""
    if root is not None and path.is_relative_to(root):
        return root
    return None


def read_lines(path: Path, root: Path | None = None) -> tuple[Line, ...]:
    """Return a file's lines; those of conda_build_config.yaml have key, value and selector. Raises AuditError."""
    key = ""
    lines = []
    name = _shown(path, root)
    for number, text in enumerate(read_text(path, root).splitlines(), start=1):
        if match := _KEY.match(text):
            key = match[1]
        item = _ITEM.match(text)
        if item is not None:
            selector = item["selector"] or ""
            lines.append(Line(name, number, text, key, value=item[1].strip(), selector=selector))
        else:
            lines.append(Line(name, number, text, key))
    return tuple(lines)


def _shown(path: Path, root: Path | None) -> str:
    """Return a file's path in the repository."""
    return str(path.relative_to(_below(path, root) or path.parent))


def requirement_lines(recipe: Path, root: Path | None = None) -> tuple[Line, ...]:
    """Return the requirements in a recipe.yaml, each with its spec as the value. Raises AuditError."""
    name = _shown(recipe, root)
    lines = []
    for mapping in _mappings(_parse(recipe, root)):
        requirements = _fields(mapping).get("requirements")
        for item in _items(requirements):
            lines.append(Line(name, _line(item), item.value, value=item.value))
    return tuple(lines)


def git_lines(recipe: Path, root: Path | None = None) -> Iterator[Line]:
    """Yield the git sources of a recipe.yaml: each address, and each revision. Raises AuditError."""
    name = _shown(recipe, root)
    for mapping in _mappings(_parse(recipe, root)):
        fields = _fields(mapping)
        address = fields.get("git")
        if not isinstance(address, ScalarNode):
            continue
        yield Line(name, _line(address), address.value, value=address.value)
        for key, prefix in _PREFIXES.items():
            revision = fields.get(key)
            if revision is not None:
                value = f"{address.value} {prefix}{revision.value}"
                yield Line(name, _line(revision), revision.value, value=value)


def _parse(recipe: Path, root: Path | None) -> Node | None:
    """Return the nodes of a recipe.yaml, which know their lines; None if the file is empty."""
    text = read_text(recipe, root)
    try:
        return _compose(text)
    except (YAMLError, RecursionError, ValueError) as error:
        raise AuditError(f"{recipe}: cannot be parsed: {error}", "correct the file") from error


@lru_cache(maxsize=32)  # requirements, sources and names of one recipe are read one after the other
def _compose(text: str) -> Node | None:
    document: Node | None = YAML(pure=True).compose(text)
    return document


def _mappings(node: Node | None) -> Iterator[MappingNode]:
    """Yield all mappings of a document."""
    if isinstance(node, SequenceNode):
        for item in node.value:
            yield from _mappings(item)
    elif isinstance(node, MappingNode):
        yield node
        for _, value in node.value:
            yield from _mappings(value)


def _fields(mapping: MappingNode) -> dict[str, Node]:
    return {key.value: value for key, value in mapping.value if isinstance(key, ScalarNode)}


def _items(node: Node | None) -> Iterator[ScalarNode]:
    """Yield the texts in lists and in the branches of conditions."""
    if isinstance(node, SequenceNode):
        for item in node.value:
            if isinstance(item, ScalarNode):
                yield item
            else:
                yield from _items(item)
    elif isinstance(node, MappingNode):
        for key, value in _fields(node).items():
            if isinstance(value, ScalarNode):
                if key in _BRANCHES:
                    yield value
            else:
                yield from _items(value)


def _line(node: Node) -> int:
    """Return a node's line, counted from 1."""
    return int(node.start_mark.line) + 1


def names_in(recipe: Path, root: Path | None = None) -> tuple[str, ...]:
    """Return the names of all packages that a recipe's requirements name in plain text. Raises AuditError."""
    if recipe.name == "meta.yaml":
        return names_of(read_text(recipe, root))
    names = set()
    for line in requirement_lines(recipe, root):
        word = re.split(r"[ =<>!~]", line.value, maxsplit=1)[0]
        if _NAME.fullmatch(word):
            names.add(word)
    return tuple(sorted(names))


def place(name: str, value: str, lines: Sequence[Line]) -> Where:
    """Find the line of a rendered requirement (``nccl`` and ``2.*``) or of a git revision.

    Returns the line that contains it literally, else the first one with its name, whose expression gives the value.
    """
    ours = []
    for line in lines:
        pinned = _PIN.search(line.value)
        named = pinned[1] if pinned else line.value.partition(" ")[0]
        if named == name:
            ours.append(line)
    literal = [line for line in ours if line.value == f"{name} {value}"]
    for line in (*literal, *ours):
        return Where(file=line.file, line=line.number)
    return Where(file=lines[0].file if lines else "")
