"""Makes package files reproducible: normalises dates, orders and local paths in them.

Measured with rattler-build 0.73: despite ``SOURCE_DATE_EPOCH``, it dates archive entries and ``index.json`` by the
clock. It writes byte code with its source's date, lists requirements in a varying order, and records its channels,
which may be folders of this machine.

A local provider's package would require the glibc of the system that compiled it, though older ones may suffice. So its
pin is set to the glibc that the symbols in its files need, which is known only after linking.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import mmap
import re
import shutil
import struct
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from packaging.version import Version

from cuda_code.elf_file import ElfFile, NotElf
from groundwork import archives, files
from groundwork.damage import reading
from groundwork.zip_archive import open_zip, read_member

_BLOCK = 1 << 20
_ELF = b"\x7fELF"
#: Entries of more bytes get ZIP64 fields. The old size decides: recompressed entries are smaller.
_WIDE = 2**31 - 1

#: Lowest pin: the oldest glibc of conda-forge and of manylinux2014 (PEP 599).
_OLDEST = "2.17"
_PIN = re.compile(r"__glibc >=[\d.]+,<3\.0\.a0")
#: Markers without a version, and the glibc that introduced each (glibc's NEWS).
_MARKS = {"ABI_DT_RELR": "2.36"}
#: Entries of ``.gnu.version_r``: Elfxx_Verneed, and of Elfxx_Vernaux the name and the distance to the next.
_NEED = struct.Struct("<HHIII")
_SYMBOL = struct.Struct("<8xII")


@dataclass(frozen=True, kw_only=True)
class _Rewritten:
    sha256: str
    size: int


@dataclass(kw_only=True)
class _Context:
    """Settings for one package, and facts collected from its files."""

    date: int  #: seconds since 1970, written to everything dated
    level: int  #: zstd's compression level
    local: bool  #: set the glibc pin to the newest of ``glibc``
    channels: Sequence[str]  #: addresses of the channels to record in place of folders
    folder: Path  #: for temporary files
    changed: dict[str, _Rewritten] = field(default_factory=dict)  #: rewritten files, by path
    glibc: set[str] = field(default_factory=set)  #: glibc versions and markers that files need


def normalise(
    package: Path,
    target: Path,
    date: int,
    *,
    level: int,
    local: bool = False,
    channels: Sequence[str] = (),
    halt: Callable[[], None] = lambda: None,
) -> None:
    """Write a normalised copy of a ``.conda`` file, atomically. A large package takes minutes.

    ``target`` must be in a folder that builds cannot write. ``date`` is in seconds since 1970, ``level`` is zstd's.
    ``local`` packages, compiled against the system's glibc, get the glibc pin that their files need. ``channels`` are
    recorded in place of the folders that rattler-build saw. ``halt`` is called before every read; it may raise to stop
    the copy. Raises IntegrityError: The package is not a regular file.
    """
    with files.replacing(target, f".tmp-{target.name}") as temporary:
        with (
            reading(package, "delete this package and run again"),
            files.open_regular(package) as read,
            open_zip(read) as old,
            zipfile.ZipFile(temporary, "x") as new,
        ):
            _open_entry(new, "metadata.json", date).write(read_member(old, "metadata.json"))
            seen = _Context(date=date, level=level, local=local, channels=channels, folder=target.parent)
            for kind in ("pkg-", "info-"):  # pkg first: info contains the digests of its files
                (name,) = (name for name in old.namelist() if name.startswith(kind))
                wide = old.getinfo(name).file_size > _WIDE
                with old.open(name) as source, _open_entry(new, name, date, wide=wide) as part:
                    _copy_archive(cast("IO[bytes]", _Halting(source, halt)), part, seen)
        temporary.chmod(0o644)


class _Halting:
    """A file that calls ``halt`` before every read."""

    def __init__(self, file: IO[bytes], halt: Callable[[], None]) -> None:
        self._file = file
        self._halt = halt

    def read(self, size: int = -1) -> bytes:
        self._halt()
        return self._file.read(size)


def _open_entry(file: zipfile.ZipFile, name: str, date: int, *, wide: bool = False) -> IO[bytes]:
    entry = zipfile.ZipInfo(name, time.gmtime(date)[:6])
    entry.external_attr = 0o644 << 16
    return file.open(entry, "w", force_zip64=wide)


def _copy_archive(source: IO[bytes], target: IO[bytes], seen: _Context) -> None:
    """Copy a compressed tar archive with normalised entries."""
    with archives.open_tar_pair(source, target, level=seen.level, tar_format=tarfile.GNU_FORMAT) as (
        old,
        new,
    ):
        for member in archives.entries(old):
            member.mtime = seen.date
            member.uid = 0
            member.gid = 0
            member.uname = ""
            member.gname = ""
            content = old.extractfile(member) if member.isreg() else None
            if content is None:
                new.addfile(member)
                continue
            member.mode = 0o755 if member.mode & 0o100 else 0o644
            _copy_file(member, content, new, seen)


def _copy_file(member: tarfile.TarInfo, content: IO[bytes], new: tarfile.TarFile, seen: _Context) -> None:
    """Copy a file with normalised content, and note the glibc that it needs."""
    edited = _edit(member.name, content, seen)
    if edited is not None:
        member.size = len(edited)
        new.addfile(member, io.BytesIO(edited))
        return
    if not seen.local or cast(io.BufferedReader, content).peek(4)[:4] != _ELF:
        new.addfile(member, content)
        return
    with _map(content, seen.folder) as (copy, mapped):
        with contextlib.suppress(NotElf):  # for another kind of CPU
            seen.glibc.update(needed_glibc(ElfFile(mapped)))
        new.addfile(member, copy)


@contextlib.contextmanager
def _map(content: IO[bytes], folder: Path) -> Iterator[tuple[IO[bytes], mmap.mmap]]:
    """Copy a stream, which may be larger than the memory, to an unnamed file and map that."""
    with tempfile.TemporaryFile(dir=folder) as copy:
        shutil.copyfileobj(content, copy, _BLOCK)
        copy.seek(0)
        with mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield copy, mapped


def _edit(name: str, content: IO[bytes], seen: _Context) -> bytes | None:
    """Return a file's new content, or None to keep it."""
    if name.endswith(".pyc"):
        code = _byte_code(content.read(), seen.date)
        seen.changed[name] = _Rewritten(sha256=hashlib.sha256(code).hexdigest(), size=len(code))
        return code
    edit = _EDITS.get(name)
    if edit is None:
        return None
    data = json.loads(content.read())
    edit(data, seen)
    return json.dumps(data, indent=2, ensure_ascii=False).encode()


def _edit_index(data: dict[str, Any], seen: _Context) -> None:
    data["timestamp"] = seen.date * 1000
    if seen.local:
        data["depends"] = pin_glibc(data.get("depends", ()), seen.glibc)
    for key in ("depends", "constrains"):
        if key in data:
            data[key] = sorted(data[key])


def _edit_about(data: dict[str, Any], seen: _Context) -> None:
    named = [url for url in data.get("channels", ()) if not url.startswith("file:")]
    data["channels"] = [*named, *(f"{address.rstrip('/')}/" for address in seen.channels)]


def _edit_paths(data: dict[str, Any], seen: _Context) -> None:
    for entry in data["paths"]:
        rewritten = seen.changed.get(entry["_path"])
        if rewritten is not None:
            entry["sha256"] = rewritten.sha256
            entry["size_in_bytes"] = rewritten.size


_EDITS: Mapping[str, Callable[[dict[str, Any], _Context], None]] = {
    "info/index.json": _edit_index,
    "info/about.json": _edit_about,
    "info/paths.json": _edit_paths,
}


def _byte_code(code: bytes, date: int) -> bytes:
    """Set the source's date in byte code that has one (PEP 552: no flags); else Python would not use the byte code."""
    flags = code[4:8]
    if flags != bytes(4):
        return code
    return code[:8] + struct.pack("<I", date & 0xFFFFFFFF) + code[12:]


def needed_glibc(library: ElfFile) -> Iterator[str]:
    """Yield the glibc versions (``2.34``) and markers of the symbols that a library or program imports.

    Format of ``.gnu.version_r``: Linux Standard Base, Core, "Version Requirements".
    """
    data = library.content(".gnu.version_r")
    names = library.content(".dynstr")
    if not data:
        return
    at = 0
    while True:
        _, count, _, first, following = _NEED.unpack_from(data, at)
        symbol = at + first
        for _ in range(count):
            start, step = _SYMBOL.unpack_from(data, symbol)
            name = names[start : names.index(b"\0", start)].decode()
            if name.startswith("GLIBC_"):
                yield name.removeprefix("GLIBC_")
            symbol += step
        if not following:
            return
        at += following


def pin_glibc(depends: Iterable[str], needed: Iterable[str]) -> list[str]:
    """Return ``depends`` with any glibc pin set to the newest version; unchanged if a marker is unknown."""
    versions = [_OLDEST, *(_MARKS.get(name, name) for name in needed)]
    if not all(re.fullmatch(r"\d+(\.\d+)+", version) for version in versions):
        return [*depends]
    pin = f"__glibc >={max(versions, key=Version)},<3.0.a0"
    return [_PIN.sub(pin, spec) for spec in depends]
