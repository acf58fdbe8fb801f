"""Conditions of a shell script: true, false, or not known."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence

from tree_sitter import Node

Word = Callable[[Node], "str | None"]

_SLOW = re.compile(r"\)[*+{?]")  # a repeated group may take for ever
_QUOTED = ("string", "raw_string")
_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
}


def holds(node: Node, word: Word) -> bool | None:
    """Return whether ``[[ … ]]``, ``[ … ]`` or a part of one holds."""
    if node.type in ("test_command", "parenthesized_expression"):
        inner = node.named_children
        return holds(inner[0], word) if inner else False
    if node.type == "unary_expression":
        operator = _operator(node)
        if operator == "!":
            result = holds(node.named_children[-1], word)
            return None if result is None else not result
        return _unary(operator, word(node.named_children[-1]))
    if node.type == "binary_expression":
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        return None if left is None or right is None else _binary(left, _operator(node), right, word)
    text = word(node)
    return None if text is None else bool(text)


def words_hold(words: Sequence[str | None]) -> bool | None:
    """Return whether ``test`` with these arguments holds."""
    if len(words) == 2:
        return _unary(words[0] or "", words[1])
    if len(words) == 3:
        return _compared(words[0], words[1] or "", words[2], glob=False)
    return None


def fits(text: str, glob: str | None) -> bool:
    """Return whether a text fits a pattern of ``case``."""
    return glob is not None and fnmatch.fnmatchcase(text, glob)


def _operator(node: Node) -> str:
    child = node.child_by_field_name("operator")
    return (child.text or b"").decode() if child is not None else ""


def _unary(operator: str, text: str | None) -> bool | None:
    if text is None:
        return None
    if operator == "-z":
        return not text
    if operator == "-n":
        return bool(text)
    return None  # a question about the machine's files


def _binary(left: Node, operator: str, right: Node, word: Word) -> bool | None:
    if operator in ("&&", "-a"):
        results = (holds(left, word), holds(right, word))
        return False if False in results else None if None in results else True
    if operator in ("||", "-o"):
        results = (holds(left, word), holds(right, word))
        return True if True in results else None if None in results else False
    return _compared(word(left), operator, word(right), glob=right.type not in _QUOTED)


def _compared(left: str | None, operator: str, right: str | None, *, glob: bool) -> bool | None:
    if left is None or right is None:
        return None
    if operator in ("==", "=", "!="):
        same = fnmatch.fnmatchcase(left, right) if glob else left == right
        return same is (operator != "!=")
    if operator == "=~":
        if _SLOW.search(right):
            return None
        try:
            return re.search(right, left) is not None
        except re.error:
            return None
    if operator in _NUMBERS and left.lstrip("-").isdigit() and right.lstrip("-").isdigit():
        return _NUMBERS[operator](int(left), int(right))
    return None
