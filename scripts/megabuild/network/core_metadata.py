"""METADATA of a wheel on a server, beside it or out of it, without fetching the wheel."""

from __future__ import annotations

import hashlib
import re
import zipfile
from urllib.parse import urlsplit

from megabuild.network import parts
from megabuild.network.client import Client, NetworkError
from megabuild.network.index import File
from megabuild.network.parts import Directory, directory

#: What reading a broken wheel raises.
BROKEN = (*parts.BROKEN, ValueError)
_LARGEST = 4 << 20  # bytes of metadata
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")


def member(archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    """Return the METADATA of a wheel.

    Raises
    ------
    ValueError
        It has none, several, or an unreasonably long one.
    """
    members = [one for one in archive.infolist() if _METADATA.fullmatch(one.filename)]
    if len(members) != 1 or members[0].file_size > _LARGEST:
        raise ValueError("it has no METADATA, several, or an unreasonably long one")
    return members[0]


def beside(client: Client, file: File) -> bytes:
    """Return the METADATA that an index has beside a wheel (PEP 658).

    Raises
    ------
    NetworkError
        No answer, or another hash than the index says.
    """
    address = urlsplit(file.url)
    content = client.get(address._replace(path=f"{address.path}.metadata").geturl(), limit=_LARGEST).body
    found = hashlib.sha256(content).hexdigest()
    if file.metadata_sha256 not in ("", found):
        said = f"sha256 is {found[:12]}…, the index says {file.metadata_sha256[:12]}…"
        raise NetworkError(f"{file.name}.metadata: {said}", "the index or a proxy in between is at fault")
    return content


def inside(client: Client, file: File) -> Directory:
    """Return a wheel's directory with its METADATA, out of the wheel's end.

    Raises
    ------
    NetworkError
        No answer, a server that gives no parts of files, or a broken wheel.
    """
    try:
        return directory(client, file.url, member)
    except BROKEN as error:
        raise NetworkError(f"{file.name} is no wheel, or a broken one: {error}", "check the wheel") from error
