"""The requirements of a source archive, for projects that release no wheels."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import tarfile

from packaging.utils import canonicalize_name

from megabuild.errors import AuditError
from megabuild.network import redact
from megabuild.network.services import Services
from megabuild.network.simple.released import Archive
from megabuild.network.simple.wheel_text import Text, checked, required
from megabuild.network.web import Web

_LARGEST, _LARGEST_UNPACKED = (
    16 << 20,
    256 << 20,
)  # bytes; those of PyG's extensions have a tenth of a megabyte


def from_archive(archive: Archive, services: Services, web: Web) -> Text:
    """Return the requirements of a .tar.gz on an index, which is small and fetched whole.

    From its PKG-INFO; where that names none, since setuptools did not write them there before 2024, from the
    ``requires.txt`` that it wrote beside it.

    Raises
    ------
    AuditError
        It cannot be fetched, is too large, or is no such archive.
    """
    file = archive.file
    key = f"source-archive:{file.name}:{file.sha256 or redact.address(file.url)}"

    def make() -> bytes:
        content = web.get(file.url, limit=_LARGEST).body
        found = hashlib.sha256(content).hexdigest()
        if file.sha256 and found != file.sha256:
            raise AuditError(
                f"{file.name}: sha256 is {found[:12]}…, the index says {file.sha256[:12]}…",
                "the index or a proxy in between is at fault",
            )
        _read(content, archive)
        return content

    entry = services.cached(key, math.inf, make)
    path, requirements = _read(entry.data, archive)
    return Text(
        wheel=file.name,
        path=path,
        requirements=requirements,
        version=archive.version,
        platform="",
        uploaded=file.uploaded,
        fetched=entry.when,
    )


def _read(content: bytes, archive: Archive) -> tuple[str, tuple[tuple[int, str], ...]]:
    """Return the file that names the requirements, and them."""
    members: dict[str, bytes] = {}
    name = archive.file.name
    try:
        with gzip.open(io.BytesIO(content)) as stream:
            plain = stream.read(_LARGEST_UNPACKED)
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as packed:
            for member in packed:
                parts = member.name.split("/")
                wanted = parts[1:] == ["PKG-INFO"] or member.name.endswith(".egg-info/requires.txt")
                stream_of = packed.extractfile(member) if member.isfile() and wanted else None
                if stream_of is not None:
                    members[member.name] = stream_of.read()
    except (OSError, EOFError, tarfile.TarError, ValueError) as error:
        raise AuditError(f"{name} is no source archive: {error}", "check the index") from error
    info = next((path for path in members if path.endswith("/PKG-INFO")), None)
    if info is None:
        raise AuditError(f"{name} has no PKG-INFO", "check the index")
    checked(members[info], canonicalize_name(name.rpartition("-")[0]), archive.version)
    requirements = required(members[info])
    other = next((path for path in members if path.endswith("requires.txt")), None)
    if requirements or other is None:
        return info, requirements
    return other, _from_requires(members[other].decode("utf-8", errors="replace"))


def _from_requires(text: str) -> tuple[tuple[int, str], ...]:
    """Return a requires.txt as Requires-Dist; its sections are ``[extra]``, ``[:marker]`` and ``[extra:marker]``."""
    found = []
    condition = ""
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            extra, _, marker = line[1:-1].partition(":")
            parts = [f"({marker})"] if marker and extra else [marker] if marker else []
            parts += [f'extra == "{extra}"'] if extra else []
            condition = " and ".join(parts)
        elif line:
            found.append((number, f"{line}; {condition}" if condition else line))
    return tuple(found)
