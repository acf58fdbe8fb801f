"""YAML files that people write, checked: what is wrong is said with file, line and key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from packaging.version import InvalidVersion, Version
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from megabuild.errors import AuditError


class Checker:
    """Turns what a file says into what was asked for, or says where it is not that.

    Parameters
    ----------
    path:
        The file.
    remedy:
        What a person can do about a mistake in it.

    All methods raise AuditError with the file, the line and the key at fault.
    """

    def __init__(self, path: Path, remedy: str) -> None:
        self.path = path
        self._remedy = remedy

    def load(self) -> object:
        """Return what the file says, with line numbers."""
        try:
            data: object = YAML(typ="rt").load(self.path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise AuditError(f"{self.path}: cannot be read: {error}", self._remedy) from error
        except MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise AuditError(f"{self.path}:{line}: {error.problem}", self._remedy) from error
        except YAMLError as error:
            raise AuditError(f"{self.path}: {error}", self._remedy) from error
        return data

    def fail(self, line: int, text: str) -> NoReturn:
        """Say what is wrong in a line."""
        raise AuditError(f"{self.path}:{line}: {text}", self._remedy)

    def mapping(
        self, node: object, what: str, line: int, known: Sequence[str] | None, needed: Sequence[str] = ()
    ) -> CommentedMap:
        """Return a mapping that has the needed keys, and none but the known ones."""
        if not isinstance(node, CommentedMap):
            self.fail(line, f"{what} must be a mapping")
        for key in node:
            if not isinstance(key, str) or (known is not None and key not in known):
                self.fail(
                    line_of(node, key), f"unknown key {key!r} in {what}; known are {', '.join(known or ())}"
                )
        for key in needed:
            if key not in node:
                self.fail(line, f"{what} has no {key!r}")
        return node

    def items(self, node: CommentedMap, key: str) -> Iterator[tuple[int, object]]:
        """Yield the items of a list under a key, with their lines."""
        found = node.get(key)
        if not isinstance(found, CommentedSeq) or not found:
            self.fail(line_of(node, key), f"{key} must be a list with at least one item")
        for index, item in enumerate(found):
            yield line_of(found, index), item

    def text(self, node: CommentedMap, key: str, otherwise: str = "") -> str:
        """Return the text under a key."""
        found = node.get(key, otherwise)
        if not isinstance(found, str):
            self.fail(line_of(node, key), f"{key} must be text; put it in quotes")
        return str(found)

    def texts(self, node: CommentedMap, key: str, otherwise: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the texts under a key; a single one stands for a list."""
        found = node.get(key, list(otherwise))
        found = [found] if isinstance(found, str) else found
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            self.fail(line_of(node, key), f"{key} must be text or a list of texts; put numbers in quotes")
        return tuple(str(item) for item in found)

    def truth(self, node: CommentedMap, key: str) -> bool:
        """Return the truth value under a key; false if it is not there."""
        found = node.get(key, False)
        if not isinstance(found, bool):
            self.fail(line_of(node, key), f"{key} must be true or false")
        return bool(found)

    def version(self, node: CommentedMap, key: str) -> Version | None:
        """Return the version under a key, or None if it is not there."""
        text = self.text(node, key)
        try:
            return Version(text) if text else None
        except InvalidVersion:
            self.fail(line_of(node, key), f"{key}: {text!r} is no version")

    def pattern(self, text: object, line: int, key: str) -> re.Pattern[str]:
        """Return a regular expression."""
        if not isinstance(text, str):
            self.fail(line, f"{key} must be text; put it in quotes")
        try:
            return re.compile(text)
        except re.error as error:
            self.fail(line, f"{key}: {text!r} is no regular expression: {error}")


def line_of(node: CommentedMap | CommentedSeq, key: object) -> int:
    """Return the line of an entry; ruamel.yaml counts from 0."""
    try:
        return int(node.lc.data[key][0]) + 1
    except (AttributeError, KeyError, TypeError):
        return int(node.lc.line or 0) + 1
