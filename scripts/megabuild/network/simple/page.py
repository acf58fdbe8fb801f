"""Pages of the simple API: HTML (PEP 503, 658, 714) and JSON (PEP 691, 700)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from megabuild.errors import AuditError

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"
_HASH = re.compile(r"sha256=([0-9a-fA-F]{64})")
#: The names of the attribute and key: PEP 714's, then PEP 658's, which some indexes still use.
_METADATA = ("core-metadata", "dist-info-metadata")


@dataclass(frozen=True, kw_only=True)
class File:
    """A file that an index offers; all of it is the index's word.

    Parameters
    ----------
    url:
        Without a fragment; may hold credentials.
    sha256:
        Of the file, or empty.
    metadata:
        Whether its metadata lies beside it, at ``url`` + ``.metadata``.
    metadata_sha256:
        Of the metadata, or empty.
    uploaded:
        ISO 8601, or empty.
    """

    name: str
    url: str
    sha256: str = ""
    metadata: bool = False
    metadata_sha256: str = ""
    uploaded: str = ""
    yanked: bool = False


def files(body: bytes, address: str) -> tuple[File, ...]:
    """Return the files that a page links to, in its order.

    Parameters
    ----------
    body:
        The page, in either form.
    address:
        Where it came from: links are relative to it.

    Raises
    ------
    AuditError
        It is neither form.
    """
    text = body.decode("utf-8", errors="replace")
    if text.lstrip().startswith("{"):
        return _from_json(text, address)
    if "<" not in text:
        raise AuditError("the index answers with something that is no page of an index", "check the index")
    parser = _Page(address)
    parser.feed(text)
    parser.close()
    return tuple(parser.found)


def _from_json(text: str, address: str) -> tuple[File, ...]:
    try:
        page = json.loads(text)
        return tuple(_json_file(entry, address) for entry in page["files"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AuditError(
            "the index answers with JSON that is no page of an index", "check the index"
        ) from error


def _json_file(entry: Mapping[str, Any], address: str) -> File:
    metadata = next((entry[key] for key in _METADATA if entry.get(key)), False)
    hashes = metadata if isinstance(metadata, Mapping) else {}
    return File(
        name=str(entry["filename"]),
        url=urldefrag(urljoin(address, str(entry["url"])))[0],
        sha256=str(entry.get("hashes", {}).get("sha256", "")).lower(),
        metadata=bool(metadata),
        metadata_sha256=str(hashes.get("sha256", "")).lower(),
        uploaded=str(entry.get("upload-time") or ""),
        yanked=bool(entry.get("yanked", False)),
    )


class _Page(HTMLParser):
    """Collects files; a ``<base>`` in the head changes what links are relative to."""

    def __init__(self, address: str) -> None:
        super().__init__(convert_charrefs=True)
        self.base = address
        self.found: list[File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        target = given.get("href")
        if not target:
            return
        try:
            if tag == "base":
                self.base = urljoin(self.base, target)
            elif tag == "a":
                self._add(urljoin(self.base, target.strip()), given)
        except ValueError:  # not an address at all
            return

    def _add(self, link: str, given: Mapping[str, str | None]) -> None:
        url, fragment = urldefrag(link)
        name = unquote(urlsplit(url).path).rpartition("/")[2]
        metadata = (
            next((given[f"data-{key}"] for key in _METADATA if f"data-{key}" in given), "false") or "true"
        )
        found, hashed = _HASH.search(fragment), _HASH.search(metadata)
        self.found.append(
            File(
                name=name,
                url=url,
                sha256=found[1].lower() if found else "",
                metadata=metadata != "false",
                metadata_sha256=hashed[1].lower() if hashed else "",
                uploaded=given.get("data-upload-time") or "",
                yanked="data-yanked" in given,
            )
        )
