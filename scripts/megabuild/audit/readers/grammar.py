"""Pieces of tree-sitter's grammar of shell scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from tree_sitter import Node


def branches(node: Node) -> Iterator[tuple[Sequence[Node], Sequence[Node]]]:
    """Yield condition and body of ``if``, each ``elif`` and ``else``; no condition for the last."""
    tests = [child for child in node.children_by_field_name("condition") if child.is_named]
    others = ("elif_clause", "else_clause", "comment")
    yield tests, [child for child in node.named_children if child not in tests and child.type not in others]
    for clause in node.named_children:
        inner = [child for child in clause.named_children if child.type != "comment"]
        if clause.type == "elif_clause":
            yield inner[:1], inner[1:]
        elif clause.type == "else_clause":
            yield (), inner


def case_body(item: Node) -> Sequence[Node]:
    """Return what a label of ``case`` leads to."""
    patterns = item.children_by_field_name("value")
    return [child for child in item.named_children if child not in patterns]


def text(node: Node) -> str:
    """Return a node as it is written."""
    return (node.text or b"").decode(errors="replace")


def line(node: Node) -> int:
    """Return the line where a node starts, counted from 1."""
    return int(node.start_point[0]) + 1


def apart(first: Node, second: Node) -> bool:
    """Return whether there is a blank between two nodes of one command, or something else that is no ``$``."""
    parent = first.parent
    if parent is None or parent.text is None:
        return True
    return parent.text[first.end_byte - parent.start_byte : second.start_byte - parent.start_byte] not in (
        b"",
        b"$",
    )


def words(command: Node, word: Callable[[Node], str | None]) -> list[str | None]:
    """Return a command's arguments; unknown are those without a blank between them: one word that the grammar cut."""
    nodes = command.children_by_field_name("argument")
    pieces = {
        node.id for first, second in pairwise(nodes) if not apart(first, second) for node in (first, second)
    }
    return [None if node.id in pieces else word(node) for node in nodes]
