"""The record of the files outside a tree that its build read, with their contents.

``build/environment-inputs.json`` is written when a compile is complete and checked. Other programs may read it::

    {
      "version": 1,
      "files": {"/abs/path": "sha256"},
      "folders": {"/abs/path": "sha256"},
      "packages": [
        {"source": "host", "name": "libexample", "role": "objects", "links": 4,
         "objects": {"core": 3, "cuda": 0, "bindings": 5, "kernels": 0}}
      ],
      "objects": {"core": 1207, "cuda": 114, "bindings": 165, "kernels": 240},
      "checks": {}
    }

`files`: headers, link inputs, CMake files and programs; an empty hash if the file changed during the compile.
`folders`: hashes over the names in a folder that CMake searches, and over the contents below an include folder.
`packages`: the packages that own these files; files without an owner are in `files` only. `objects` and `links` are the
  numbers of objects and of linked files that name a file of the package.
`objects`: the number of all objects, by kind.
`checks`: further facts of this package's own.

A build writes the record, so a reader must not follow links, and takes a damaged record for a missing one.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn

from .contents import UNKNOWN, follow

#: The record of a complete compile.
COMPLETE = "environment-inputs.json"
#: The files that a compile starts with, which hold until it is complete.
STARTED = "environment-start.json"
VERSION = 1
_LARGEST = 256 << 20  # bytes; a record of PyTorch has 3 MB


class Source(str, Enum):
    """The place of a package."""

    BUILD = "build"  #: the build environment, $BUILD_PREFIX
    HOST = "host"  #: the host environment, $PREFIX
    SYSTEM = "system"  #: dpkg's packages


class Role(str, Enum):
    """The part of the build that reads a package; the first that fits counts."""

    COMPILERS = "compilers"  #: a program that compiles, or a file that every object reads
    OBJECTS = "objects"  #: headers of some objects, or a file that is linked
    CONFIGURE = "configure"  #: CMake files and programs of CMake only


class Kind(str, Enum):
    """The kinds of objects."""

    CORE = "core"  #: C and C++ of libtorch
    CUDA = "cuda"  #: C and C++ of the libraries for CUDA
    BINDINGS = "bindings"  #: the Python side
    KERNELS = "kernels"  #: compiled by CUDA's compiler


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package that the build read."""

    source: Source
    name: str
    role: Role
    objects: Mapping[Kind, int]  #: that name one of its files
    links: int  #: linked files that have one of its files as input


@dataclass(frozen=True, kw_only=True)
class Checks:
    """Facts of a record that only `compare` reads."""

    #: programs and files that every output of a language reads, by language
    languages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: hashes over everything that a generator of sources runs, by its program
    generators: Mapping[str, str] = field(default_factory=dict)
    #: the folders in `Record.folders` whose files' contents count
    include_folders: tuple[str, ...] = ()
    #: links in the folders of headers, with the paths that they led to
    aliases: Mapping[str, str] = field(default_factory=dict)
    #: files that could shadow a header, but did not change the outputs
    harmless: tuple[str, ...] = ()
    #: names that files ask for with ``__has_include``, by file
    probes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: nanoseconds from the date of each output to the date of the record; an output with another age is newer
    ages: Mapping[str, int] = field(default_factory=dict)
    #: for a compile that was started: the identity of the record of the compile before, or ""
    follows: str = ""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The files that a build read; :mod:`record` describes the fields."""

    files: Mapping[str, str]
    folders: Mapping[str, str]
    checks: Checks
    packages: tuple[Package, ...] = ()
    objects: Mapping[Kind, int] = field(default_factory=dict)

    def content(self, path: str) -> str:
        """Return the recorded hash of a file, which a link may have led to; UNKNOWN if there is none."""
        if path not in self.files:
            path = follow(path, self.checks.aliases)
        return self.files.get(path, UNKNOWN)


class DamagedRecord(ValueError):
    """A record does not have the format."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A record that was read."""

    record: Record
    identity: str  #: another one for each record that was written
    date: int  #: in nanoseconds since 1970


def read(path: Path) -> Found | None:
    """Return a record; None if there is none, or only a damaged one. Never follows a link or waits for a pipe."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            return None
        with os.fdopen(handle, "rb", closefd=False) as file:
            content = file.read(_LARGEST)
        record = _decode(json.loads(content))
    except (OSError, ValueError, RecursionError):
        return None
    finally:
        os.close(handle)
    return Found(record=record, identity=hashlib.sha256(content).hexdigest(), date=status.st_mtime_ns)


def write(path: Path, record: Record, date: int | None = None) -> None:
    """Write a record atomically, with a date in nanoseconds since 1970 (default: now)."""
    document = {"version": VERSION, **asdict(record)}
    content = json.dumps(document, indent=1, sort_keys=True).encode()
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        if date is not None:
            os.utime(temporary, ns=(date, date))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _decode(document: Any) -> Record:
    """Return the record in a JSON document. Raises DamagedRecord."""
    fields = _object(document)
    if fields.get("version") != VERSION:
        _refuse("version")
    return Record(
        files=_texts(fields.get("files")),
        folders=_texts(fields.get("folders")),
        packages=tuple(map(_package, _items(fields.get("packages")))),
        objects=_counts(fields.get("objects")),
        checks=_checks(fields.get("checks")),
    )


def _package(value: Any) -> Package:
    fields = _object(value)
    return Package(
        source=Source(_text(fields.get("source"))),
        name=_text(fields.get("name")),
        role=Role(_text(fields.get("role"))),
        objects=_counts(fields.get("objects")),
        links=_number(fields.get("links")),
    )


def _checks(value: Any) -> Checks:
    fields = _object(value)
    languages = _object(fields.get("languages"))
    ages = _object(fields.get("ages"))
    probes = _object(fields.get("probes"))
    return Checks(
        languages={name: _names(paths) for name, paths in languages.items()},
        generators=_texts(fields.get("generators")),
        include_folders=_names(fields.get("include_folders")),
        aliases=_texts(fields.get("aliases")),
        harmless=_names(fields.get("harmless")),
        probes={name: _names(asked) for name, asked in probes.items()},
        ages={name: _number(age) for name, age in ages.items()},
        follows=_text(fields.get("follows")),
    )


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        _refuse("object")
    return value


def _items(value: Any) -> Sequence[Any]:
    if not isinstance(value, list):
        _refuse("list")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        _refuse("text")
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        _refuse("number")
    return value


def _names(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, _items(value)))


def _texts(value: Any) -> Mapping[str, str]:
    return {name: _text(text) for name, text in _object(value).items()}


def _counts(value: Any) -> Mapping[Kind, int]:
    return {Kind(name): _number(count) for name, count in _object(value).items()}


def _refuse(expected: str) -> NoReturn:
    raise DamagedRecord(f"a value is no {expected}")
