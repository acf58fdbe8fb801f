"""Which line of recipe.yaml or conda_build_config.yaml a rendered requirement comes from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from megabuild.errors import AuditError

_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}")
_COMPILER = re.compile(r"""\s*(compiler|stdlib)\(\s*["'](\w+)["']\s*\)\s*""")
_PIN = re.compile(r"""\s*pin_(?:subpackage|compatible)\(\s*["']([\w.-]+)["'].*""")
_WORD = re.compile(r"[A-Za-z_]\w*")
_SECTIONS = ("build", "host", "run", "run_constraints")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One requirement as the recipe has it.

    Parameters
    ----------
    output:
        Of the output, which may hold an expression; empty at the top level.
    section:
        ``build``, ``host``, ``run`` or ``run_constraints``.
    text:
        Unrendered.
    number:
        Counted from 1.
    """

    output: str
    section: str
    text: str
    number: int


def requirement_lines(recipe: Path) -> tuple[Line, ...]:
    """Return every requirement of a recipe, in the file's order.

    Raises
    ------
    AuditError
        The recipe cannot be read.
    """
    document = _load(recipe)
    found: list[Line] = []
    outputs: list[Any] = document.get("outputs") or [document]
    for output in outputs:
        head = output.get("staging") or output.get("package") or {}
        needs: Any = output.get("requirements") or {}
        for section in _SECTIONS:
            if section in needs:
                found += [
                    Line(output=str(head.get("name", "")), section=section, text=text, number=number)
                    for text, number in _items(needs[section], needs.lc.value(section)[0] + 1)
                ]
    return tuple(found)


def git_lines(recipe: Path) -> tuple[Line, ...]:
    """Return what a recipe takes from git: as text the address and the revision, in the section ``source``.

    Raises
    ------
    AuditError
        The recipe cannot be read.
    """
    document = _load(recipe)
    parts: list[Any] = [document, *(document.get("outputs") or ())]
    return tuple(
        Line(output="", section="source", text=text, number=number)
        for part in parts
        for text, number in _git_items(part.get("source"))
    )


def key_lines(matrix: Path) -> Mapping[str, Mapping[str, int]]:
    """Return for every key of conda_build_config.yaml its values, as text, and the line where each stands first.

    Raises
    ------
    AuditError
        The file cannot be read.
    """
    found: dict[str, dict[str, int]] = {}
    for key, values in _load(matrix).items():
        lines = found.setdefault(str(key), {})
        if isinstance(values, CommentedSeq):
            for index, value in enumerate(values):
                lines.setdefault(str(value), values.lc.item(index)[0] + 1)
    return found


def names_in(lines: Sequence[Line]) -> tuple[str, ...]:
    """Return the names of all packages that requirements name in plain text."""
    words = (re.split(r"[ =<>!~]", line.text, maxsplit=1)[0] for line in lines)
    return tuple(sorted({word for word in words if re.fullmatch(r"[a-z0-9][\w.-]*", word)}))


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a rendered requirement comes from.

    Parameters
    ----------
    line:
        In the recipe; None where it is not found.
    key:
        Of conda_build_config.yaml, when that decides the version; else empty.
    value:
        That key's value.
    """

    line: int | None
    key: str = ""
    value: str = ""


def place(spec: str, section: str, output: str, lines: Sequence[Line], variant: Mapping[str, str]) -> Place:
    """Find a rendered requirement.

    Parameters
    ----------
    spec:
        ``nccl 2.*``: bare names carry their pin already.
    section:
        As in `Line`.
    output:
        The rendered name of the output, or of the staging output it inherits from.
    lines:
        Of the recipe.
    variant:
        Values by key.
    """
    best: tuple[int, Line] | None = None
    for line in lines:
        if line.section != section or not _fits_output(line.output, output):
            continue
        score = _score(line.text, spec, variant)
        if score is not None and (best is None or score > best[0]):
            best = (score, line)
    if best is None:
        return Place(line=None)
    line = best[1]
    for key in _keys(line.text, spec, variant):
        return Place(line=line.number, key=key, value=variant[key])
    return Place(line=line.number)


def _score(text: str, spec: str, variant: Mapping[str, str]) -> int | None:
    """Return how much of the requirement stands there in plain text, or None where it cannot come from there."""
    literal, pattern, position = 0, "", 0
    for found in _EXPRESSION.finditer(text):
        before = text[position : found.start()]
        literal += len(before)
        pattern += re.escape(before) + _pattern(found[1], variant)
        position = found.end()
    rest = text[position:]
    literal += len(rest)
    pattern += re.escape(rest)
    if " " not in text and not _EXPRESSION.search(text):
        pattern += "(?: .*)?"
    return literal if re.fullmatch(pattern, spec) else None


def _pattern(expression: str, variant: Mapping[str, str]) -> str:
    compiler = _COMPILER.fullmatch(expression)
    if compiler:
        key = f"{compiler[2]}_{compiler[1]}"
        return re.escape(variant.get(key, compiler[2])) + "_[^ ]+(?: .*)?"
    pinned = _PIN.fullmatch(expression)
    return re.escape(pinned[1]) + "(?: .*)?" if pinned else ".*"


def _keys(text: str, spec: str, variant: Mapping[str, str]) -> Iterator[str]:
    """Return the keys that decide the version: the name's own, or those in an expression."""
    for found in _EXPRESSION.finditer(text):
        compiler = _COMPILER.fullmatch(found[1])
        words = [f"{compiler[2]}_{compiler[1]}_version"] if compiler else _WORD.findall(found[1])
        yield from (word for word in words if word in variant)
    name, _, version = spec.partition(" ")
    key = name.replace("-", "_")
    if version and text == name and key in variant:
        yield key


def _fits_output(pattern: str, name: str) -> bool:
    parts = [re.escape(part) for part in _EXPRESSION.split(pattern)[::2]]
    return re.fullmatch(".*".join(parts), name) is not None


def _items(node: Any, number: int) -> Iterator[tuple[str, int]]:
    """Walk a list of requirements with its if/then/else blocks."""
    if isinstance(node, str):
        yield node, number
    elif isinstance(node, CommentedSeq):
        for index, item in enumerate(node):
            yield from _items(item, node.lc.item(index)[0] + 1)
    elif isinstance(node, CommentedMap):
        for branch in ("then", "else"):
            if branch in node:
                yield from _items(node[branch], node.lc.value(branch)[0] + 1)


def _git_items(node: Any) -> Iterator[tuple[str, int]]:
    """Walk a list of sources with its if/then/else blocks; the engine writes tags and branches out as references."""
    if isinstance(node, CommentedSeq):
        for item in node:
            yield from _git_items(item)
    elif isinstance(node, CommentedMap) and "git" in node:
        for key, prefix in (("rev", ""), ("tag", "refs/tags/"), ("branch", "refs/heads/")):
            if key in node:
                yield f"{node['git']} {prefix}{node[key]}", node.lc.value(key)[0] + 1
                return
        yield f"{node['git']} ", node.lc.value("git")[0] + 1
    elif isinstance(node, CommentedMap):
        for branch in ("then", "else"):
            yield from _git_items(node.get(branch))


def _load(path: Path) -> Any:
    try:
        document = YAML(typ="rt", pure=True).load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, YAMLError) as error:
        raise AuditError(f"cannot read {path}: {error}", "correct the file") from error
    if not isinstance(document, dict):
        raise AuditError(f"{path} is not a mapping", "correct the file")
    return document
