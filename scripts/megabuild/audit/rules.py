"""The rule file ``ci_pins.yaml``: which file of upstream's tree says what, from which version to which."""

from __future__ import annotations

import dataclasses
import functools
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version
from ruamel.yaml.comments import CommentedMap

from megabuild.audit.checked_yaml import Checker, line_of
from megabuild.audit.readers.data import Data
from megabuild.audit.readers.python import PythonLiteral
from megabuild.audit.readers.requirement import Requirement
from megabuild.audit.readers.shell import Shell
from megabuild.audit.readers.submodule import Submodule
from megabuild.audit.readers.text import Lines, WholeFile
from megabuild.audit.readers.value import Reader

RULE_FILE = Path(__file__).with_name("ci_pins.yaml")

READERS: Mapping[str, type[Reader]] = {
    "data": Data,
    "file": WholeFile,
    "lines": Lines,
    "python": PythonLiteral,
    "requirement": Requirement,
    "shell": Shell,
    "submodule": Submodule,
}
_RULE_KEYS = ("name", "packages", "what", "scope", "some", "forms")
_FORM_KEYS = ("file", "since", "until", "where", "also", "per", "read")
_PER = ("cuda", "shipped", "machine")
_SECTIONS = ("cuda_versions", "pins", "arch_lists")


@dataclass(frozen=True, kw_only=True)
class Form:
    """One way in which upstream writes something down.

    Parameters
    ----------
    files:
        Alternatives, the first that the tree has counts; ``*`` takes all that fit.
    since, until:
        First version of the package that has it, and first that has not; None: open.
    where:
        Only files whose path fits; its named groups tell more of where a value holds.
    also:
        Files that the reader may need besides; ``*`` takes all that fit.
    per:
        What it is asked about, one after another: the CUDA versions of upstream and of our configs (``cuda``), or those
        that upstream ships (``shipped``); ``machine``.
    reader:
        How to read it.
    line:
        In the rule file.
    """

    files: tuple[str, ...]
    since: Version | None
    until: Version | None
    where: re.Pattern[str] | None
    also: tuple[str, ...]
    per: tuple[str, ...]
    reader: Reader
    line: int

    def holds(self, version: str) -> bool:
        """Whether a version has this form; a version that is none may have any."""
        try:
            base = Version(Version(version).base_version)
        except InvalidVersion:
            return True
        return not ((self.since and base < self.since) or (self.until and base >= self.until))


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What is known of one dependency in one respect.

    Parameters
    ----------
    name:
        Of the dependency, as in the mapping of names.
    packages:
        Those in whose tree the rule holds.
    what:
        What the value is to upstream, for people: ``the builder image``.
    scope:
        Where a value holds: a template over what a reader finds and what it is asked about.
    some:
        That upstream has it for some of what it is asked about is enough.
    forms:
        The first of those that hold for a version and yield something counts.
    line:
        In the rule file.
    """

    name: str
    packages: tuple[str, ...]
    what: str
    scope: str
    some: bool
    forms: tuple[Form, ...]
    line: int

    def between(self, version: str) -> bool:
        """Whether forms before and after a version are known, so that there should be one for it as well."""
        try:
            base = Version(Version(version).base_version)
        except InvalidVersion:
            return True
        return any(form.until and base >= form.until for form in self.forms) and any(
            form.since and base < form.since for form in self.forms
        )


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rule file.

    Parameters
    ----------
    cuda_versions:
        Where a package's CUDA versions are listed; the scope is a machine, or empty for all.
    pins:
        What its CI builds and tests with.
    arch_lists:
        The GPU architectures that it ships.
    """

    cuda_versions: tuple[Rule, ...]
    pins: tuple[Rule, ...]
    arch_lists: tuple[Rule, ...]


@functools.cache
def load(path: Path = RULE_FILE) -> Rules:
    """Read and check a rule file.

    Raises
    ------
    AuditError
        With the file, the line and the key at fault.
    """
    check = Checker(path, "correct the rule file; its head describes the keys")
    top = check.mapping(check.load(), "the file", 1, _SECTIONS, needed=_SECTIONS)
    sections = {
        name: tuple(_rule(check, item, line) for line, item in check.items(top, name)) for name in _SECTIONS
    }
    return Rules(**sections)


def _rule(check: Checker, item: object, line: int) -> Rule:
    node = check.mapping(item, "a rule", line, _RULE_KEYS, needed=("name", "forms"))
    return Rule(
        name=check.text(node, "name"),
        packages=check.texts(node, "packages", ("pytorch",)),
        what=check.text(node, "what"),
        scope=check.text(node, "scope"),
        some=check.truth(node, "some"),
        forms=tuple(_form(check, form, at) for at, form in check.items(node, "forms")),
        line=line,
    )


def _form(check: Checker, item: object, line: int) -> Form:
    node = check.mapping(item, "a form", line, None, needed=("file", "read"))
    read = check.text(node, "read")
    if read not in READERS:
        check.fail(line_of(node, "read"), f"unknown reader {read!r}; known are {', '.join(READERS)}")
    options = sorted(field.name for field in _fields(READERS[read]))
    for key in node:
        if key not in _FORM_KEYS and key not in options:
            check.fail(
                line_of(node, key), f"the reader {read} has no option {key!r}; it has {', '.join(options)}"
            )
    per = check.texts(node, "per")
    for unknown in set(per) - set(_PER):
        check.fail(line_of(node, "per"), f"per: unknown {unknown!r}; known are {', '.join(_PER)}")
    return Form(
        files=check.texts(node, "file"),
        since=check.version(node, "since"),
        until=check.version(node, "until"),
        where=check.pattern(node["where"], line_of(node, "where"), "where") if "where" in node else None,
        also=check.texts(node, "also"),
        per=per,
        reader=_reader(check, READERS[read], node, line),
        line=line,
    )


def _fields(kind: type[Reader]) -> tuple[dataclasses.Field[typing.Any], ...]:
    return dataclasses.fields(typing.cast(typing.Any, kind))


def _reader(check: Checker, kind: type[Reader], node: CommentedMap, line: int) -> Reader:
    hints = typing.get_type_hints(kind)
    values: dict[str, object] = {}
    for field in _fields(kind):
        if field.name not in node:
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                check.fail(line, f"this reader needs {field.name!r}")
            continue
        values[field.name] = _option(check, node, field.name, str(hints[field.name]))
    try:
        return kind(**values)
    except ValueError as error:
        check.fail(line, str(error))


def _option(check: Checker, node: CommentedMap, key: str, hint: str) -> object:
    """Return one option as its reader's type hint wants it."""
    line, found = line_of(node, key), node[key]
    if "Mapping" in hint:
        inner = check.mapping(found, key, line, None)
        if "Pattern" in hint:
            return {name: check.pattern(text, line_of(inner, name), name) for name, text in inner.items()}
        return {name: check.text(inner, name) for name in inner}
    if "Pattern" in hint:
        return check.pattern(found, line, key)
    if "tuple" in hint:
        return check.texts(node, key)
    if "bool" in hint:
        return check.truth(node, key)
    if "int" in hint:
        if not isinstance(found, int):
            check.fail(line, f"{key} must be a whole number")
        return int(found)
    return check.text(node, key)
