"""The line of a rendered value: in recipe.yaml, or in conda_build_config.yaml if a key there decides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from groundwork import files
from groundwork.errors import AuditError, IntegrityError
from megabuild.configs.matrix import MATRIX_FILE
from pin_audit.facts import Where

_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}")
_COMPILER = re.compile(r"""(compiler|stdlib)\(\s*["'](\w+)["']\s*\)""")
_PIN = re.compile(r"""pin_(?:subpackage|compatible)\(\s*["']([\w.-]+)["']""")
_LARGEST = 4 << 20  # bytes of a recipe or config
_SECTIONS = ("build", "host", "run", "run_constraints")

#: For every key of conda_build_config.yaml its values, as text, and the line where each stands first.
Keys = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Line:
    """A requirement as the recipe has it, unrendered, or an address and a revision of git; counted from 1."""

    text: str
    number: int


def requirement_lines(recipe: Path, root: Path | None = None) -> tuple[Line, ...]:
    """Return every requirement of a recipe, in the file's order; raises AuditError if it cannot be read."""
    document = _load(recipe, root)
    needs: Iterator[Any] = (
        output.get("requirements") or {} for output in document.get("outputs") or [document]
    )
    return tuple(
        line
        for sections in needs
        for section in _SECTIONS
        if section in sections
        for line in _items(sections[section], sections.lc.value(section)[0] + 1)
    )


def git_lines(recipe: Path, root: Path | None = None) -> tuple[Line, ...]:
    """Return the git sources of a recipe; raises AuditError if it cannot be read."""
    document = _load(recipe, root)
    parts = [document, *(document.get("outputs") or ())]
    return tuple(line for part in parts if "source" in part for line in _items(part["source"], 0))


def key_lines(root: Path) -> Keys:
    """Return the keys of this repository's conda_build_config.yaml; raises AuditError if it cannot be read.

    A feedstock's are left out: what conda-smithy made of them is in its configs.
    """
    found: dict[str, dict[str, int]] = {}
    if not (root / MATRIX_FILE).is_file():
        return found
    for key, values in _load(root / MATRIX_FILE).items():
        lines = found.setdefault(str(key), {})
        if isinstance(values, CommentedSeq):
            for index, value in enumerate(values):
                lines.setdefault(str(value), values.lc.item(index)[0] + 1)
    return found


def names_in(lines: Sequence[Line]) -> tuple[str, ...]:
    """Return the names of all packages that requirements name in plain text."""
    words = (re.split(r"[ =<>!~]", line.text, maxsplit=1)[0] for line in lines)
    return tuple(sorted({word for word in words if re.fullmatch(r"[a-z0-9][\w.-]*", word)}))


def place(name: str, value: str, lines: Sequence[Line], keys: Keys, recipe: str) -> Where:
    """Find a rendered requirement (``nccl`` and ``2.*``; a compiler without its platform), or a revision of an address.

    Returns the line that contains it literally; else that of the key with the value, by name or in an expression; else
    the first line about that name.
    """
    ours = [line for line in lines if _is_about(line.text, name, keys)]
    for line in ours:
        if line.text == f"{name} {value}":
            return Where(file=recipe, line=line.number)
    plain = value.removeprefix("==").partition(" ")[0].removesuffix(".*")
    for key in (word for line in ours for word in (*_keys_in(line.text), name.replace("-", "_"))):
        for spelling in (value, plain):
            if number := keys.get(key, {}).get(spelling):
                return Where(file=MATRIX_FILE, line=number)
    return Where(file=recipe, line=ours[0].number if ours else None)


def _is_about(text: str, name: str, keys: Keys) -> bool:
    if compiler := _COMPILER.search(text):
        return name in keys.get(f"{compiler[2]}_{compiler[1]}", {})
    pinned = _PIN.search(text)
    return name == (pinned[1] if pinned else text.partition(" ")[0])


def _keys_in(text: str) -> list[str]:
    """Return what may be keys in a requirement's expressions."""
    if compiler := _COMPILER.search(text):
        return [f"{compiler[2]}_{compiler[1]}_version"]
    return [word for found in _EXPRESSION.findall(text) for word in re.findall(r"[A-Za-z_]\w*", found)]


def _items(node: Any, number: int) -> Iterator[Line]:
    """Walk a list of requirements or sources with its if/then/else blocks.

    The engine writes tags and branches of git out as references.
    """
    if isinstance(node, str):
        yield Line(node, number)
    elif isinstance(node, CommentedSeq):
        for index, item in enumerate(node):
            yield from _items(item, node.lc.item(index)[0] + 1)
    elif isinstance(node, CommentedMap) and "git" in node:
        prefixes = {"rev": "", "tag": "refs/tags/", "branch": "refs/heads/"}
        key = next((key for key in prefixes if key in node), "git")
        revision = f"{prefixes[key]}{node[key]}" if key in prefixes else ""
        yield Line(f"{node['git']} {revision}", node.lc.value(key)[0] + 1)
    elif isinstance(node, CommentedMap):
        for branch in ("then", "else"):
            if branch in node:
                yield from _items(node[branch], node.lc.value(branch)[0] + 1)


def _load(path: Path, root: Path | None = None) -> Any:
    try:
        document = YAML(typ="rt", pure=True).load(read_text(path, root))
    except (YAMLError, RecursionError, ValueError) as error:
        raise AuditError(f"cannot read {path}: {error}", "correct the file") from error
    if not isinstance(document, dict):
        raise AuditError(f"{path} is not a mapping", "correct the file")
    return document


def read_text(path: Path, root: Path | None = None, remedy: str = "correct the file") -> str:
    """Return a file's text; below `root` no folder may be a link. Raises AuditError if it cannot be read."""
    try:
        below = root if root is not None and path.is_relative_to(root) else None
        with files.open_regular(path, below=below) as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise AuditError(f"{path} has more than {_LARGEST >> 20} MB: refused", remedy)
        return content.decode("utf-8")
    except IntegrityError as error:
        raise AuditError(f"{error.message}: refused", remedy) from error
    except (OSError, UnicodeError) as error:
        raise AuditError(f"cannot read {path}: {error}", remedy) from error
