"""Addresses and messages without what gives access: they are shown, logged and kept in reports."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

# An @ belongs to the user's part if no slash, question mark or blank comes before it; passwords may hold further ones.
_USER = re.compile(r"(?<=://)[^/?#\s]*@")
_QUERY = re.compile(r"(://[^\s?#]*)\?[^\s'\")>\]]*")
#: Tokens of conda channels stand in the path: ``/t/<token>/conda-forge``.
_TOKEN = re.compile(r"/t/[^/\s]+(?=/)")


def address(url: str) -> str:
    """Return an address without user, password, token, query and fragment."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, _TOKEN.sub("/t/…", parts.path), "", ""))


def text(message: str) -> str:
    """Return a message in which no address shows user, password, token or query."""
    return _TOKEN.sub("/t/…", _QUERY.sub(r"\1", _USER.sub("", message)))
