"""Words of a shell script and what they expand to; None where that is not known."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

from tree_sitter import Node

Lookup = Callable[[str], str | None]
Output = Callable[[Node], str | None]

_PARAMETER = re.compile(
    r"(?P<length>#)?(?P<name>\w+|[@*#])"
    r"(?:(?P<default>:?[-=+])(?P<other>.*)|:(?P<offset>\d+)(?::(?P<count>\d+))?"
    r"|(?P<trim>%%?|\#\#?)(?P<glob>.*)|/(?P<all>/?)(?P<old>(?:\\.|\$\{\w+\}|[^/])*)(?:/(?P<new>.*))?)?",
    re.DOTALL,
)
_NESTED = re.compile(r"\$\{(\w+)\}|\$(\w+)")


def expand(node: Node, value: Lookup, output: Output) -> str | None:
    """Return what a word stands for.

    Parameters
    ----------
    node:
        The word.
    value:
        Returns a variable's or a parameter's value.
    output:
        Returns what a command substitution gives.
    """
    text = (node.text or b"").decode(errors="replace")
    if node.type in ("simple_expansion", "expansion"):
        blanks = text[
            : text.index("$")
        ]  # the grammar counts blanks in a string as a part of what follows them
        found = _parameter(text[len(blanks) :], value)
        return None if found is None else blanks + found
    if node.type == "command_substitution":
        return output(node)
    if node.type == "raw_string":
        return text[1:-1]
    if node.type in ("string", "concatenation", "command_name"):
        return _pieces(node, value, output)
    if node.type in ("array", "arithmetic_expansion", "process_substitution", "ansi_c_string", "subscript"):
        return None
    if node.named_child_count:
        return _pieces(node, value, output)
    return re.sub(r"\\(.)", r"\1", text) if node.type == "word" else text


def _pieces(node: Node, value: Lookup, output: Output) -> str | None:
    """Join a word's parts. What lies between two parts of a string belongs to it: the grammar leaves out blanks."""
    quoted = node.type == "string"
    whole, start = node.text or b"", node.start_byte
    at = 1 if quoted else 0
    joined: list[str] = []
    for child in node.named_children:
        between = whole[at : child.start_byte - start].decode(errors="replace")
        if not quoted and between.endswith("$"):
            return None  # a parameter that the grammar takes for a number: a-$2
        joined.append(between)
        part = expand(child, value, output)
        if part is None:
            return None
        joined.append(part)
        at = child.end_byte - start
    joined.append(whole[at : len(whole) - 1 if quoted else len(whole)].decode(errors="replace"))
    return "".join(joined)


def _parameter(text: str, value: Lookup) -> str | None:
    inner = text[2:-1] if text.startswith("${") else text[1:]
    match = _PARAMETER.fullmatch(inner)
    if match is None:
        return None
    if inner == "#":
        return value("#")
    found = value(match["name"])
    if found is None:
        return None
    if match["length"]:
        return str(len(found))
    if match["default"]:
        other = _nested(match["other"], value)
        chosen = found or match["default"].endswith("+")
        return (other if found else "") if match["default"].endswith("+") else (found if chosen else other)
    if match["offset"]:
        start = int(match["offset"])
        return found[start : start + int(match["count"])] if match["count"] else found[start:]
    if match["trim"]:
        glob = _nested(match["glob"], value)
        return None if glob is None else _trimmed(found, match["trim"], glob)
    if match["old"]:
        old, new = _nested(match["old"], value), _nested(match["new"] or "", value)
        if old is None or new is None:
            return None
        return _replaced(found, old, new, everywhere=bool(match["all"]))
    return found


def _nested(text: str, value: Lookup) -> str | None:
    """Return a pattern or a default value with the plain variables in it replaced."""
    unknown = False

    def replace(match: re.Match[str]) -> str:
        nonlocal unknown
        found = value(match[1] or match[2])
        unknown = unknown or found is None
        return found or ""

    replaced = _NESTED.sub(replace, text.strip('"'))
    return None if unknown or "$(" in replaced else replaced


def _trimmed(text: str, operator: str, glob: str) -> str:
    ends = range(len(text) + 1)
    if operator.startswith("%"):
        cuts = [at for at in ends if fnmatch.fnmatchcase(text[at:], glob)]
        return text[: min(cuts) if operator == "%%" else max(cuts)] if cuts else text
    cuts = [at for at in ends if fnmatch.fnmatchcase(text[:at], glob)]
    return text[max(cuts) if operator == "##" else min(cuts) :] if cuts else text


def _replaced(text: str, old: str, new: str, *, everywhere: bool) -> str:
    pattern = re.sub(r"\\Z$|\\z$", "", fnmatch.translate(re.sub(r"\\(.)", r"\1", old)))
    return re.sub(pattern, lambda _match: new, text, count=0 if everywhere else 1)
