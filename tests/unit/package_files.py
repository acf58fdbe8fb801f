"""What package files hold, for comparisons: the mode, link target and content of everything."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import zstandard

from groundwork import files


class Entry(NamedTuple):
    """A file or link of a package."""

    mode: str
    link: str  #: where a link leads
    sha256: str  #: of a file


def entries(
    package: Path, view: Callable[[str, bytes], bytes] = lambda path, content: content
) -> dict[str, Entry]:
    """Everything that a ``.conda`` file holds, its own metadata among it, by path; hashes are of a view of contents."""
    found = {}
    with zipfile.ZipFile(package) as outer:
        for part in outer.namelist():
            if not part.endswith(".tar.zst"):
                continue
            reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(outer.read(part)))
            with tarfile.open(fileobj=reader, mode="r|") as inner:
                for member in inner:
                    content = inner.extractfile(member) if member.isreg() else None
                    digest = hashlib.sha256(view(member.name, content.read())).hexdigest() if content else ""
                    found[member.name] = Entry(oct(member.mode), member.linkname, digest)
    return found


def published(channel: Path) -> dict[str, dict[str, Entry] | str]:
    """Every package file below a channel, by name: its sha256, and what is in it."""
    packages = sorted(channel.rglob("*.conda"))
    return {path.name: files.sha256(path) for path in packages} | {
        f"in {path.name}": entries(path) for path in packages
    }


def rot(package: Path) -> None:
    """Change a byte in the middle of a file, as a disk does: its date stays."""
    status = package.stat()
    with package.open("r+b") as file:
        file.seek(status.st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0x55]))
    os.utime(package, ns=(status.st_atime_ns, status.st_mtime_ns))
