"""Following the engine's log files while they grow.

The engine prints nothing. Each script it runs, for a build or for a test, writes a ``conda_build.log`` into its work
folder, which is replaced for the next output and removed soon after the script has ended.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from groundwork import files
from groundwork.errors import IntegrityError
from groundwork.names import PackageId

UNKNOWN = "?"
_HEAD_BYTES = 256
_EXPORT = re.compile(r"^export (PKG_NAME|PKG_VERSION|PKG_BUILD_STRING|PY_VER)='?([^'\n]*)'?$", re.MULTILINE)
#: ``test_<package><six random characters>``; tests of imports have no package in their environment
_TEST_FOLDER = re.compile(r"test_(.+).{6}")
#: Build scripts, tests right after a build, and tests of packages that were there already.
_PATTERNS = (("build", "out/bld/*/work"), ("test", "out/test/*/test"), ("test", "tmp/.tmp*/test_*/test"))
_LOG = "conda_build.log"


@dataclass(frozen=True, kw_only=True)
class ScriptLine:
    """One line that a script printed."""

    kind: str  #: ``build`` or ``test``
    #: Its name is empty for staging, ``UNKNOWN`` where its folder was removed before it could be read; version and
    #: build string are empty where the script does not know.
    package: PackageId
    python: str
    text: str  #: without its end

    @property
    def script(self) -> tuple[str, str, str]:
        """Which script: a package's test has several, not all of which know their build string."""
        return self.kind, self.package.name, "" if self.kind == "test" else self.package.build_string


@dataclass
class _Open:
    kind: str
    path: Path
    file: BinaryIO
    head: bytes = b""
    rest: bytes = b""
    facts: dict[str, str] = field(default_factory=dict)


class LogFollower(AbstractContextManager["LogFollower"]):
    """Reads all logs of an engine, whose folders ``out`` and ``tmp`` are in ``folder``.

    Opened files are read to their end even after their removal.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[tuple[int, int], _Open] = {}

    def __exit__(self, *_: object) -> None:
        """Close what is still open."""
        for log in self._open.values():
            log.file.close()
        self._open.clear()

    def poll(self, *, last: bool = False) -> Iterator[ScriptLine]:
        """Give the lines that are new since the last call; at the ``last`` one also those without an end."""
        present = set()
        for kind, pattern in _PATTERNS:
            for folder in sorted(
                glob.iglob(pattern, root_dir=self._folder)
            ):  # passes over what vanishes meanwhile
                path = self._folder / folder / _LOG
                try:
                    status = path.lstat()
                    key = (status.st_dev, status.st_ino)
                    log = self._open.get(key) or self._begin(kind, path)
                except (OSError, IntegrityError):
                    continue  # removed while we looked, or not a file of the engine's
                if log is not None:
                    self._open[key] = log
                    present.add(key)
        for key, log in list(self._open.items()):
            yield from self._read(log, current=key in present, last=last)
            if last or key not in present:
                log.file.close()
                del self._open[key]

    def _begin(self, kind: str, path: Path) -> _Open | None:
        """Open a log that was not open before; None while it is being copied."""
        log = _Open(kind=kind, path=path, file=files.open_regular(path, below=self._folder, buffering=0))
        # A work folder restored from the staging cache holds staging's log, to which the output's script appends.
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
        """What the script that writes a log works on: from the environment file beside it, and its folder's name."""
        content = files.read_untrusted(log.path.with_name("build_env.sh"), below=self._folder)
        if content is None:
            return {}
        facts = {"known": "yes", **dict(_EXPORT.findall(content.decode(errors="replace")))}
        if log.kind == "test" and (match := _TEST_FOLDER.fullmatch(log.path.parent.parent.name)):
            facts["PKG_NAME"] = match[1]
        return facts

    def _read(self, log: _Open, *, current: bool, last: bool) -> Iterator[ScriptLine]:
        position = log.file.tell()
        log.file.seek(0)
        head = log.file.read(_HEAD_BYTES) or b""
        if not head.startswith(log.head) or os.fstat(log.file.fileno()).st_size < position:
            position, log.rest = 0, b""  # begun anew for another script
        log.head = head
        log.file.seek(position)
        lines = (log.rest + (log.file.read() or b"")).split(b"\n")
        log.rest = lines.pop()
        if last and log.rest:
            lines.append(log.rest)
        if lines and current:
            log.facts = self._facts(log) or log.facts
        facts = log.facts
        package = PackageId(
            facts.get("PKG_NAME", "") if facts else UNKNOWN,
            facts.get("PKG_VERSION", ""),
            facts.get("PKG_BUILD_STRING", ""),
        )
        python = facts.get("PY_VER", "") if "PKG_NAME" in facts else ""
        for line in lines:
            text = line.decode(errors="replace").rstrip("\r")
            yield ScriptLine(kind=log.kind, package=package, python=python, text=text)
