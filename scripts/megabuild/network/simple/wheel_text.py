"""The METADATA of a wheel, without downloading the wheel."""

from __future__ import annotations

import hashlib
import io
import math
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.metadata import RawMetadata, parse_email
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from megabuild.errors import AuditError, IntegrityError
from megabuild.network import redact
from megabuild.network.services import Services
from megabuild.network.simple.partial_file import PartialFile, metadata
from megabuild.network.simple.released import Wheel, from_file_name
from megabuild.network.web import Web

_LARGEST = 4 << 20
_FIELD = "requires-dist:"


@dataclass(frozen=True, kw_only=True)
class Text:
    """What a METADATA says.

    Parameters
    ----------
    wheel:
        The file's name.
    path:
        Inside the wheel or the source archive.
    requirements:
        With line numbers, counted from 1.
    version:
        Of the distribution, with a local part if there is one.
    platform:
        conda's name for the wheel's; empty for a source archive.
    uploaded, fetched:
        ISO 8601, or empty.
    """

    wheel: str
    path: str
    requirements: tuple[tuple[int, str], ...]
    version: Version
    platform: str
    uploaded: str = ""
    fetched: str = ""


def from_index(wheel: Wheel, services: Services, web: Web) -> Text:
    """Return the metadata of a wheel on an index.

    The separate metadata of PEP 658 where the index announces it, else parts of the wheel's end.

    Raises
    ------
    AuditError
        Neither can be had; the wheel itself is never downloaded.
    """
    parts = urlsplit(wheel.file.url)
    if parts.scheme == "file":
        return from_local(Path(unquote(parts.path)))
    name = wheel.file.name
    project = canonicalize_name(name.split("-")[0])

    def make() -> bytes:
        if wheel.file.metadata:
            try:
                content = _beside(wheel, web)
                checked(content, project, wheel.version)
                services.report("wheel_metadata", f"{name}: metadata beside the wheel, {len(content)} bytes")
                return content
            except AuditError as error:
                services.report("wheel_metadata", f"{name}: {error.message}: the wheel's end is read instead")
            except IntegrityError as error:
                raise AuditError(error.message, error.remedy) from error
        content, received, whole = _from_end(wheel, web)
        checked(content, project, wheel.version)
        services.report("wheel_metadata", f"{name}: {received} of the wheel's {whole} bytes read")
        return content

    entry = services.cached(
        f"wheel-metadata:{name}:{wheel.file.sha256 or redact.address(wheel.file.url)}", math.inf, make
    )
    content, fetched = entry.data, entry.when
    return _text(content, name, project, wheel.version, wheel.platform, wheel.file.uploaded, fetched)


def from_local(path: Path) -> Text:
    """Return the metadata of a wheel on this machine.

    Raises
    ------
    AuditError
        There is no such file, or it is no wheel.
    """
    parsed = from_file_name(path.name)
    if parsed is None:
        raise AuditError(f"{path.name} is not named like a wheel", "name a file *.whl: --wheel FILE")
    try:
        with path.open("rb") as stream:
            content = metadata(stream)
    except AuditError as error:
        raise AuditError(f"{path}: {error.message}", error.remedy) from error
    except OSError as error:
        raise AuditError(
            f"cannot read {path}: {error.strerror or error}", "check the file named by --wheel"
        ) from error
    return _text(content, path.name, parsed[0], parsed[1], parsed[2])


def required(content: bytes) -> tuple[tuple[int, str], ...]:
    """Return the requirements in the head of a METADATA or PKG-INFO, with their lines."""
    found = []
    for number, line in enumerate(content.decode("utf-8", errors="replace").splitlines(), start=1):
        if not line.strip():
            break  # the description follows
        if line.lower().startswith(_FIELD):
            found.append((number, line[len(_FIELD) :].strip()))
    return tuple(found)


def _text(
    content: bytes,
    name: str,
    project: str,
    version: Version,
    platform: str,
    uploaded: str = "",
    fetched: str = "",
) -> Text:
    checked(content, project, version)
    stem = "-".join(name.split("-")[:2])
    return Text(
        wheel=name,
        path=f"{stem}.dist-info/METADATA",
        requirements=required(content),
        version=version,
        platform=platform,
        uploaded=uploaded,
        fetched=fetched,
    )


def _beside(wheel: Wheel, web: Web) -> bytes:
    parts = urlsplit(wheel.file.url)
    url = parts._replace(path=f"{parts.path}.metadata").geturl()
    content = web.get(url, limit=_LARGEST).body
    found, expected = hashlib.sha256(content).hexdigest(), wheel.file.metadata_sha256
    if expected and found != expected:
        raise IntegrityError(
            f"{wheel.file.name}.metadata: sha256 is {found[:12]}…, the index says {expected[:12]}…",
            "the index or a proxy in between is at fault",
        )
    return content


def _from_end(wheel: Wheel, web: Web) -> tuple[bytes, int, int]:
    """Return the metadata, how many bytes were read, and how many the wheel has."""
    url = wheel.file.url
    remote = PartialFile(lambda count: web.tail(url, count), lambda start, end: web.range(url, start, end))
    try:
        content = metadata(io.BufferedReader(remote, buffer_size=1 << 14))
    except AuditError as error:
        raise AuditError(f"{wheel.file.name}: {error.message}", error.remedy) from error
    return content, remote.received, remote.length


def checked(content: bytes, project: str, version: Version) -> RawMetadata:
    raw, _ = parse_email(content)
    try:
        fits = (
            canonicalize_name(raw.get("name", "")) == project and Version(raw.get("version", "")) == version
        )
    except InvalidVersion:
        fits = False
    if not fits:
        raise AuditError(
            f"what came is not the metadata of {project} {version}", "the index or a proxy is at fault"
        )
    return raw
