"""Follows rattler-build's log files while they grow.

rattler-build prints nothing. Each build or test script writes a ``conda_build.log`` to its work folder, which is
replaced for the next output and removed soon after the script ends.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import BinaryIO, NamedTuple

from groundwork import files
from groundwork.errors import IntegrityError
from groundwork.names import PackageId

UNKNOWN = "?"
_HEAD_BYTES = 256
_EXPORT = re.compile(r"^export (PKG_NAME|PKG_VERSION|PKG_BUILD_STRING|PY_VER)='?([^'\n]*)'?$", re.MULTILINE)
#: ``test_<package><six random characters>``; the environment file of import tests names no package
_TEST_FOLDER = re.compile(r"test_(.+).{6}")
_LOG = "conda_build.log"
#: Bytes read at once, and of the longest line: a link command of PyTorch has 50,000.
_BLOCK = 4 << 20
_LONGEST_LINE = 100_000
#: The most equal lines in a row.
_LONGEST_RUN = 1000


class ScriptKind(str, Enum):
    """The program that prints a line; the value is shown."""

    BUILD = "build"  #: a build script
    TEST = "test"  #: the script of a package's test
    ENGINE = "engine"  #: the worker itself


class Script(NamedTuple):
    """Identifies a script."""

    kind: ScriptKind
    package: str = ""  #: empty for staging
    build_string: str = ""  #: empty for tests, and if the script does not know it


#: The worker itself, in place of a script.
ENGINE = Script(ScriptKind.ENGINE)
STAGING_SCRIPT = Script(ScriptKind.BUILD)


@dataclass(frozen=True, kw_only=True)
class ScriptLine:
    """One line that a script printed."""

    kind: ScriptKind
    #: Its name is empty for staging, ``UNKNOWN`` if its folder was removed before it could be read. Version and build
    #: string are empty if the script does not know them.
    package: PackageId
    python: str
    text: str  #: without the line break

    @property
    def script(self) -> Script:
        """Identifies the script; all tests of a package count as one, because some lack a build string."""
        if self.kind is ScriptKind.TEST:
            return Script(self.kind, self.package.name)
        return Script(self.kind, self.package.name, self.package.build_string)


@dataclass
class _Open:
    kind: ScriptKind
    path: Path
    file: BinaryIO
    head: bytes = b""
    unfinished: bytes = b""  #: beginning of the line that is being written
    dropped: int = 0  #: further bytes of that line
    facts: dict[str, str] = field(default_factory=dict)

    def extend(self, part: bytes) -> None:
        """Add a part to the unfinished line; bytes beyond the longest line are only counted."""
        kept = part[: max(0, _LONGEST_LINE - len(self.unfinished))]
        self.unfinished += kept
        self.dropped += len(part) - len(kept)

    def take(self) -> bytes:
        """Return the unfinished line, and begin another."""
        line = _marked(self.unfinished, self.dropped)
        self.unfinished = b""
        self.dropped = 0
        return line


def _marked(line: bytes, dropped: int) -> bytes:
    """Return the beginning of a line with the number of bytes that were dropped after it."""
    if not dropped:
        return line
    return line + f" ({dropped} more bytes)".encode()


def _cut(line: bytes) -> bytes:
    return _marked(line[:_LONGEST_LINE], max(0, len(line) - _LONGEST_LINE))


def _without_long_runs(lines: Sequence[bytes]) -> Iterator[bytes]:
    """Yield lines, and instead of many equal ones in a row their number.

    The driver masks, logs and parses every line. A script can write millions of empty lines in a second.
    """
    for line, equal in itertools.groupby(lines):
        number = len(list(equal))
        yield from itertools.repeat(line, min(number, _LONGEST_RUN))
        if number > _LONGEST_RUN:
            yield f"(this line {number - _LONGEST_RUN} more times)".encode()


#: Folders of build scripts, of tests right after a build, and of tests of packages built earlier.
_PATTERNS = (
    (ScriptKind.BUILD, "out/bld/*/work"),
    (ScriptKind.TEST, "out/test/*/test"),
    (ScriptKind.TEST, "tmp/.tmp*/test_*/test"),
)


class LogFollower(AbstractContextManager["LogFollower"]):
    """Reads all logs in the folders ``out`` and ``tmp`` of ``folder``.

    An opened log is read to its end even after its removal.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[tuple[int, int], _Open] = {}

    def __exit__(self, *_: object) -> None:
        """Close all logs."""
        for log in self._open.values():
            log.file.close()
        self._open.clear()

    def poll(self, *, last: bool = False) -> Iterator[ScriptLine]:
        """Yield the lines added since the last call; with ``last``, also unfinished lines."""
        present = set(self._find())
        for key, log in list(self._open.items()):
            yield from self._read(log, current=key in present, last=last)
            if last or key not in present:
                log.file.close()
                del self._open[key]

    def _find(self) -> Iterator[tuple[int, int]]:
        """Open new logs; yield device and inode of each log that exists and is open."""
        for kind, pattern in _PATTERNS:
            # iglob skips folders that disappear meanwhile
            for folder in sorted(glob.iglob(pattern, root_dir=self._folder)):
                path = self._folder / folder / _LOG
                try:
                    status = path.lstat()
                    key = (status.st_dev, status.st_ino)
                    log = self._open.get(key) or self._begin(kind, path)
                except (OSError, IntegrityError):
                    continue  # removed meanwhile, or not a regular file
                if log is not None:
                    self._open[key] = log
                    yield key

    def _begin(self, kind: ScriptKind, path: Path) -> _Open | None:
        """Open a new log; return None while staging's lines are being copied into it."""
        log = _Open(kind=kind, path=path, file=files.open_regular(path, below=self._folder, buffering=0))
        # A work folder restored from the staging cache contains staging's log; the output's script appends to it.
        for cached in glob.iglob(f"out/build_cache/*/work_dir/{_LOG}", root_dir=self._folder):
            copied = files.read_untrusted(self._folder / cached, below=self._folder) or b""
            here = log.file.read(len(copied)) or b""
            log.file.seek(0)
            if copied and copied.startswith(here):
                if len(here) < len(copied):
                    log.file.close()
                    return None
                log.head = here[:_HEAD_BYTES]
                log.file.seek(len(copied))
        log.facts = self._facts(log)
        return log

    def _facts(self, log: _Open) -> dict[str, str]:
        """Return a script's package and Python, from the environment file next to its log and its folder's name."""
        content = files.read_untrusted(log.path.with_name("build_env.sh"), below=self._folder)
        if content is None:
            return {}
        facts = {"known": "yes", **dict(_EXPORT.findall(content.decode(errors="replace")))}
        if log.kind is ScriptKind.TEST:
            match = _TEST_FOLDER.fullmatch(log.path.parent.parent.name)
            if match:
                facts["PKG_NAME"] = match[1]
        return facts

    def _read(self, log: _Open, *, current: bool, last: bool) -> Iterator[ScriptLine]:
        position = log.file.tell()
        log.file.seek(0)
        head = log.file.read(_HEAD_BYTES) or b""
        if not head.startswith(log.head) or os.fstat(log.file.fileno()).st_size < position:
            position = 0  # rewritten by another script
            log.take()
        log.head = head
        log.file.seek(position)
        end = os.fstat(log.file.fileno()).st_size  # a script may write faster than this loop reads
        while block := log.file.read(min(_BLOCK, end - log.file.tell())):
            first, *others = block.split(b"\n")
            log.extend(first)
            if not others:
                continue
            if current:
                log.facts = self._facts(log) or log.facts
            yield from self._as_lines(log, [log.take(), *map(_cut, others[:-1])])
            log.extend(others[-1])
        if last and log.unfinished:
            yield from self._as_lines(log, [log.take()])

    def _as_lines(self, log: _Open, lines: Sequence[bytes]) -> Iterator[ScriptLine]:
        facts = log.facts
        name = facts.get("PKG_NAME", "") if facts else UNKNOWN
        package = PackageId(name, facts.get("PKG_VERSION", ""), facts.get("PKG_BUILD_STRING", ""))
        python = ""
        if "PKG_NAME" in facts:
            python = facts.get("PY_VER", "")
        for line in _without_long_runs(lines):
            text = line.decode(errors="replace").rstrip("\r")
            yield ScriptLine(kind=log.kind, package=package, python=python, text=text)
