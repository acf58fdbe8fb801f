"""What a .gitmodules file says, read by git itself from a copy outside any repository."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from megabuild.audit.git.process import run
from megabuild.errors import AuditError

_LARGEST = 1 << 20  # bytes; PyTorch's has five thousand
_SECONDS = 20.0
_HEADER = re.compile(r'\s*\[\s*submodule\s+"((?:[^"\\]|\\.)*)"\s*\]', re.IGNORECASE)
_TRUE = ("", "true", "yes", "on", "1")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One submodule that .gitmodules declares.

    Parameters
    ----------
    name:
        Between the quotes of its header.
    path:
        Where it is checked out.
    url:
        As it is written, or None where there is none.
    line:
        Of its header, counted from 1; None if it could not be told.
    shallow:
        git clones it with a depth of 1.
    update:
        ``checkout`` unless it is set; with ``none`` git leaves it out.
    """

    name: str
    path: str
    url: str | None
    line: int | None
    shallow: bool
    update: str


def parse(content: bytes) -> Mapping[str, Entry]:
    """Return what a .gitmodules file declares, by path.

    Entries that git ignores are left out: without a path, with a name that climbs (CVE-2018-11235), with a path that
    starts with a dash (CVE-2018-17456).

    Raises
    ------
    AuditError
        It is too large, or git cannot read it.
    """
    if len(content) > _LARGEST:
        raise AuditError(f".gitmodules has {len(content)} bytes: refused")
    answer = run(
        ["config", "--file", "-", "--no-includes", "--null", "--list"], seconds=_SECONDS, stdin=content
    )
    if answer.code != 0:
        raise AuditError(f".gitmodules cannot be read: {answer.problem}")
    settings: dict[str, dict[str, str]] = {}
    for item in answer.out.decode(errors="surrogateescape").split("\0"):
        key, _, value = item.partition("\n")
        section, _, rest = key.partition(".")
        name, dot, setting = rest.rpartition(".")
        if section == "submodule" and dot and _fit(name):
            settings.setdefault(name, {})[setting] = value
    lines = _lines(content)
    return {
        found["path"]: Entry(
            name=name,
            path=found["path"],
            url=found.get("url"),
            line=lines.get(name),
            shallow=found.get("shallow", "false").lower() in _TRUE,
            update=found.get("update", "checkout"),
        )
        for name, found in settings.items()
        if found.get("path") and not found["path"].startswith("-")
    }


def _fit(name: str) -> bool:
    return bool(name) and ".." not in re.split(r"[/\\]", name)


def _lines(content: bytes) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, line in enumerate(content.decode(errors="surrogateescape").splitlines(), 1):
        header = _HEADER.match(line)
        if header is not None:
            found.setdefault(re.sub(r"\\(.)", r"\1", header[1]), number)
    return found
