"""Checks a new environment against its lock. Standard library only."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from groundwork import process

_SECONDS = 600.0
#: A distribution of a lock, with its version and, where it has one, the condition under which it is installed.
_LOCKED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;]+)[ \t]*(;?)", re.MULTILINE)
_NATIVE = re.compile(r"\.(so|dylib)(\.\d+)*$|^\.\./.*/bin/[^/]+$")
#: By name: what mypyc compiles into a library of several modules has a digest for its own.
_IMPORT = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
_MODULE = re.compile(r"(\w+)(?:/__init__\.py|\.py|\.[\w.-]*so)")


def lacking(environment: Path, lock: Path, note: Path) -> str:
    """Return what an environment lacks of its lock, in words; where it is whole, note its native files' sizes.

    Every file is compared with its distribution's RECORD, and every module of the lock's distributions is imported.
    The sizes go into the file ``note``.
    """
    sizes: dict[str, int] = {}
    modules: list[str] = []
    for name, version, condition in _LOCKED.findall(lock.read_text(encoding="utf-8")):
        record = _record(environment, name, version)
        if record is None:
            if condition:
                continue  # of another Python or machine
            return f"{name} {version} was not installed into {environment}"
        for path, size in _files(record):
            file = record.parent.parent / path
            try:
                there = file.stat().st_size
            except OSError:
                there = -1
            if size is not None and there != size:
                return f"{file} has {max(there, 0)} bytes, and {name} {version} comes with {size}"
            if _NATIVE.search(path):
                sizes[os.path.relpath(file, environment)] = there
            if module := _MODULE.fullmatch(path):
                modules.append(module[1])
    python = environment / "bin" / "python"
    done = process.run([python, "-I", "-c", _IMPORT, *sorted(modules)], timeout=_SECONDS)
    if done.returncode:
        return (
            "\n".join(done.stderr.strip().splitlines()[-3:]) or f"importing it ended with {done.returncode}"
        )
    note.write_text(json.dumps(sizes))
    return ""


def _record(environment: Path, name: str, version: str) -> Path | None:
    wanted = f"{_normal(name)}-{version}.dist-info"
    for folder in environment.glob("lib/python*/site-packages/*.dist-info"):
        project, _, rest = folder.name.partition("-")
        if f"{_normal(project)}-{rest}" == wanted:
            return folder / "RECORD"
    return None


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def _files(record: Path) -> Iterator[tuple[str, int | None]]:
    """Yield what a RECORD lists, with sizes where it has them: paths from site-packages."""
    with record.open(newline="", encoding="utf-8") as file:
        for path, _, size in csv.reader(file):
            yield path, int(size) if size.isdigit() else None
