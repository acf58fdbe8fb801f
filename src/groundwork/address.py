"""Addresses as users write them, in options, variables and pip's configuration."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit


def is_readable(address: str) -> bool:
    """Return whether a URL can be taken apart: unlike ``https://[host`` and ``https://host:port``."""
    try:
        urlsplit(address).port  # noqa: B018 - it is parsed when it is read
    except ValueError:
        return False
    return True


def is_on_server(address: str, schemes: Collection[str]) -> bool:
    """Return whether an address has one of these schemes, such as ``https``, and names a host."""
    if not is_readable(address):
        return False
    parts = urlsplit(address)
    return parts.scheme in schemes and bool(parts.hostname)
