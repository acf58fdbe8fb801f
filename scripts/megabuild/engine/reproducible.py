"""Makes package files reproducible: normalises what the engine stamps with time and place.

Measured with rattler-build 0.73: it dates every entry of the archives and ``index.json`` by the clock whatever
``SOURCE_DATE_EPOCH`` says, writes byte code that names its source's date, lists requirements in an order that changes,
and notes the channels that it was given, which may be folders of this machine.

A local provider's package would ask for the glibc of the system that compiled it, and be refused where an older one is
all that its libraries need: the pin is what the symbols of its files need, which is known once they are linked.
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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from cuda_code.elf_file import ElfFile, NotElf
from groundwork import archives, files

_BLOCK = 1 << 20
_ELF = b"\x7fELF"
#: Bytes above which an entry of a zip file needs wide fields; compressed anew it is smaller than it was.
_WIDE = 2**31 - 1

#: A version of glibc; None for an unknown marker.
Glibc = tuple[int, ...] | None

#: The oldest that is ever named (conda-forge's oldest and that of manylinux2014, PEP 599): nobody has an older one.
_OLDEST: tuple[int, ...] = (2, 17)
_PIN = re.compile(r"__glibc >=[\d.]+,<3\.0\.a0")
#: Markers that are not versions, and the glibc that introduced them (its NEWS).
_MARKS = {"ABI_DT_RELR": (2, 36)}
_NEED, _SYMBOL = struct.Struct("<HHIII"), struct.Struct("<8xII")


@dataclass(kw_only=True)
class _Context:
    """What is true of a package, and what was found in its files so far."""

    date: int  #: seconds since 1970, for everything that has a date
    level: int  #: of zstd's compression
    local: bool  #: make the pin on glibc that of ``glibc``
    folder: Path  #: for temporary files
    #: digest and size of files that became others
    changed: dict[str, tuple[str, int]] = field(default_factory=dict)
    glibc: set[Glibc] = field(default_factory=set)  #: versions of glibc that files need


def normalise(
    package: Path,
    target: Path,
    date: int,
    *,
    level: int,
    local: bool = False,
    halt: Callable[[], None] = lambda: None,
) -> None:
    """Write a ``.conda`` file once more so that it depends on its content alone; it appears in full or not at all.

    ``target`` is in another folder: a build could change its packages while they are being read. ``date`` is in
    seconds since 1970, ``level`` zstd's: the engine is told to compress weakly, since all is compressed again here.
    A ``local`` package, compiled against the system's own glibc, is to ask for no newer one than
    its files need. What ``halt`` raises, which is called all the time, ends it: minutes for a large package.

    Raises IntegrityError: The package is not a regular file.
    Raises OSError: The disk is full, or the file cannot be written to.
    """
    with files.replacing(target, f".tmp-{target.name}") as beside:
        with (
            files.open_regular(package) as read,
            zipfile.ZipFile(read) as old,
            zipfile.ZipFile(beside, "x") as new,
        ):
            _open_entry(new, "metadata.json", date).write(old.read("metadata.json"))
            seen = _Context(date=date, level=level, local=local, folder=target.parent)
            for kind in ("pkg-", "info-"):  # info names the digests of the other's files
                (name,) = (name for name in old.namelist() if name.startswith(kind))
                wide = old.getinfo(name).file_size > _WIDE
                with old.open(name) as source, _open_entry(new, name, date, wide=wide) as part:
                    _copy_archive(cast("IO[bytes]", _Halting(source, halt)), part, seen)
        beside.chmod(0o644)


class _Halting:
    """A file that asks before every read whether it is to go on."""

    def __init__(self, file: IO[bytes], halt: Callable[[], None]) -> None:
        self._file, self._halt = file, halt

    def read(self, size: int = -1) -> bytes:
        """Read, as files do."""
        self._halt()
        return self._file.read(size)


def _open_entry(file: zipfile.ZipFile, name: str, date: int, *, wide: bool = False) -> IO[bytes]:
    entry = zipfile.ZipInfo(name, time.gmtime(date)[:6])
    entry.external_attr = 0o644 << 16
    return file.open(entry, "w", force_zip64=wide)


def _copy_archive(source: IO[bytes], target: IO[bytes], seen: _Context) -> None:
    """Copy a compressed tar archive."""
    with archives.open_tar_pair(source, target, level=seen.level, tar_format=tarfile.GNU_FORMAT) as (
        old,
        new,
    ):
        for member in old:
            content: IO[bytes] | None = old.extractfile(member) if member.isreg() else None
            member.mtime, member.uid, member.gid, member.uname, member.gname = seen.date, 0, 0, "", ""
            if member.isreg():
                member.mode = 0o755 if member.mode & 0o100 else 0o644
            if content is not None and (edited := _edit(member.name, content, seen)) is not None:
                member.size = len(edited)
                new.addfile(member, io.BytesIO(edited))
            elif content is not None and seen.local and cast(io.BufferedReader, content).peek(4)[:4] == _ELF:
                with _map(content, seen.folder) as (copy, mapped):
                    with contextlib.suppress(NotElf):  # of another kind of machine
                        seen.glibc.update(needed_glibc(ElfFile(mapped)))
                    new.addfile(member, copy)
            else:
                new.addfile(member, content)


@contextlib.contextmanager
def _map(content: IO[bytes], folder: Path) -> Iterator[tuple[IO[bytes], mmap.mmap]]:
    """Copy what can be read only once, and may be larger than memory, into a file without a name."""
    with tempfile.TemporaryFile(dir=folder) as copy:
        shutil.copyfileobj(content, copy, _BLOCK)
        copy.seek(0)
        with mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield copy, mapped


def _edit(name: str, content: IO[bytes], seen: _Context) -> bytes | None:
    """Return what a file becomes, or None where it stays."""
    if name.endswith(".pyc"):
        code = _byte_code(content.read(), seen.date)
        seen.changed[name] = hashlib.sha256(code).hexdigest(), len(code)
        return code
    if name not in ("info/index.json", "info/about.json", "info/paths.json"):
        return None
    data = json.loads(content.read())
    match name:
        case "info/index.json":
            data["timestamp"] = seen.date * 1000
            if seen.local:
                data["depends"] = pin_glibc(data.get("depends", ()), seen.glibc)
            for key in {"depends", "constrains"} & data.keys():
                data[key] = sorted(data[key])
        case "info/about.json":
            data["channels"] = [url for url in data.get("channels", ()) if not url.startswith("file:")]
        case _:
            for entry in data["paths"]:
                if found := seen.changed.get(entry["_path"]):
                    entry["sha256"], entry["size_in_bytes"] = found
    return json.dumps(data, indent=2, ensure_ascii=False).encode()


def _byte_code(code: bytes, date: int) -> bytes:
    """Give byte code its source's new date, where it names one (PEP 552: no flags), or Python would not use it."""
    magic, flags = code[:4], code[4:8]
    return magic + flags + struct.pack("<I", date & 0xFFFFFFFF) + code[12:] if flags == bytes(4) else code


def needed_glibc(library: ElfFile) -> Iterator[Glibc]:
    """Give the versions of glibc whose symbols a library or program takes.

    The format is that of ``.gnu.version_r`` in the Linux Standard Base, Core, "Version Requirements".
    """
    data, names = library.content(".gnu.version_r"), library.content(".dynstr")
    at, following = 0, 1 if data else 0
    while following:
        _, count, _, symbol, following = _NEED.unpack_from(data, at)
        symbol += at
        for _ in range(count):
            start, step = _SYMBOL.unpack_from(data, symbol)
            name = names[start : names.index(b"\0", start)].decode()
            if name.startswith("GLIBC_"):
                yield _glibc_version(name.removeprefix("GLIBC_"))
            symbol += step
        at += following


def _glibc_version(name: str) -> Glibc:
    if re.fullmatch(r"[\d.]+", name):
        return tuple(int(part) for part in name.split("."))
    return _MARKS.get(name)


def pin_glibc(depends: Iterable[str], versions: Iterable[Glibc]) -> list[str]:
    """Return what a package depends on, with its pin on glibc, if any, at what its files need; as it is if unknown."""
    newest = _OLDEST
    for version in versions:
        if version is None:
            return [*depends]
        newest = max(newest, version)
    pin = f"__glibc >={'.'.join(map(str, newest))},<3.0.a0"
    return [_PIN.sub(pin, spec) for spec in depends]
