"""Submodules from a file, where no repository can be asked: what git lists, or nixpkgs' ``src.nix`` of PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from groundwork.errors import AuditError

_TREE = re.compile(r"160000 commit (?P<commit>[0-9a-f]{40,64})(?: +-)?\t(?P<path>.+)")
_STATUS = re.compile(r"[ +U-](?P<commit>[0-9a-f]{40,64}) (?P<path>.+?)(?: \((?P<text>[^()]+)\))?")
_SOURCE = re.compile(r"src_(?P<name>[\w.+-]+?) = fetchFrom(?P<host>GitHub|GitLab) \{(?P<fields>[^{}]*)\}")
_FIELD = re.compile(r'(\w+) = "([^"]*)"')
_BELOW = re.compile(r"src_(?P<name>[\w.+-]+)_recursive = runCommand .*?''(?P<script>.*?)''", re.DOTALL)
_COPY = re.compile(r"cp -r \$\{src_(?P<name>[\w.+-]+)_recursive\}/\* \$out/(?P<path>\S+)")
_LARGEST = 4 << 20  # bytes
_DEEPEST = 8


class Gitlink(NamedTuple):
    """One submodule, of however many levels down."""

    path: str
    commit: str
    text: str = ""  #: its description, where the file has one
    address: str = ""


def read(file: Path) -> tuple[Gitlink, ...]:
    """Return the submodules that a file lists.

    The file is the output of ``git ls-tree -r`` or ``git submodule status --recursive``, or nixpkgs' ``src.nix``.

    Raises AuditError: It cannot be read, or is none of these.
    """
    remedy = "name the output of git ls-tree -r, of git submodule status --recursive, or a src.nix"
    try:
        if file.stat().st_size > _LARGEST:
            raise AuditError(f"{file} has more than {_LARGEST >> 20} MB: refused", remedy)
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise AuditError(f"cannot read {file}: {error}", remedy) from error
    found = tuple(_of_nix(text) if "fetchFrom" in text else _of_git(text))
    if not found:
        raise AuditError(f"{file} lists no submodules", remedy)
    return found


def _of_git(text: str) -> Iterator[Gitlink]:
    for line in text.splitlines():
        if match := _TREE.fullmatch(line):
            yield Gitlink(match["path"], match["commit"])
        elif match := _STATUS.fullmatch(line):
            yield Gitlink(match["path"], match["commit"], match["text"] or "")


def _of_nix(text: str) -> Iterator[Gitlink]:
    """Yield what is copied below the one source that is copied nowhere."""
    sources = {
        match["name"]: (match["host"], dict(_FIELD.findall(match["fields"])))
        for match in _SOURCE.finditer(text)
    }
    below = {match["name"]: _COPY.findall(match["script"]) for match in _BELOW.finditer(text)}
    copied = {name for copies in below.values() for name, _ in copies}

    def walk(name: str, folder: str, depth: int) -> Iterator[Gitlink]:
        for child, path in below.get(name, ()) if depth < _DEEPEST else ():
            host, fields = sources.get(child, ("", {}))
            place = f"{folder}{path}"
            if re.fullmatch(r"[0-9a-f]{40,64}", fields.get("rev", "")):
                site = f"https://{host.lower()}.com"
                address = f"{site}/{fields.get('owner', '')}/{fields.get('repo', '')}.git"
                yield Gitlink(place, fields["rev"], address=address)
            yield from walk(child, f"{place}/", depth + 1)

    for top in below.keys() - copied:
        yield from sorted(walk(top, "", 0))
