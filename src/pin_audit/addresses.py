"""Addresses of upstream's repositories: parsed, compared and shown without secrets."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from groundwork import redact
from groundwork.errors import AuditError
from groundwork.text import plain

_URL = re.compile(
    r"(?P<protocol>https?|git|(?:git\+)?ssh|ssh\+git)://(?:[^-@/\s][^/\s]*@)?"
    r"(?P<host>[A-Za-z0-9_](?:[\w.-]*\w)?(?::\d*)?|\[[0-9A-Fa-f:.]+\](?::\d*)?)/(?P<path>[^-/].*)", re.ASCII
)  # fmt: skip
_SCP = re.compile(r"(?P<protocol>)(?:\w[\w.-]*@)?(?P<host>\w(?:[\w.-]*\w)?):(?P<path>[^-:].*)", re.ASCII)
#: Protocols that need no key.
_WITHOUT_KEY = ("https", "http", "git")
_LONGEST = 2048  # characters of an address


def parse_address(text: str, parent: str = "") -> str:
    """Return an address that is safe to pass to git; a submodule's may be relative to its parent's.

    Raises AuditError for transport programs, git options (CVE-2017-1000117, CVE-2018-17456), line ends (CVE-2020-5260),
    and local folders named by a remote repository. An ssh address becomes https, which needs no key; the user's
    ``url.<base>.insteadOf`` can change that.
    """
    if parent and text.startswith(("./", "../")):
        text = _join(parent, text)
    local = text.removeprefix("file://localhost").removeprefix("file://")
    if _is_odd(text) or (local != text and not local.startswith("/")):
        raise AuditError("address refused: not a repository's")
    if "://" in local or ":" in local.partition("/")[0]:
        return _parse_remote(text)
    parent_is_local = parent.startswith(("/", "file:"))
    if parent and not (parent_is_local and local.startswith("/")):
        raise AuditError("address refused: a remote repository names a folder of this machine")
    try:
        folder = Path(local).expanduser().absolute()
    except RuntimeError as error:  # ~name of no user
        raise AuditError(f"address refused: {error}") from error
    return f"file://{folder}"


def _is_odd(text: str) -> bool:
    """Whether a text is no address: empty, too long, an option, or with control characters."""
    if not text or len(text) > _LONGEST or text.startswith("-"):
        return True
    return any(plain(part) != part for part in (text, unquote(text)))


def _join(parent: str, relative: str) -> str:
    """Return the address that a submodule's relative one stands for."""
    parts = urlsplit(parent)
    path = posixpath.normpath(f"{parts.path.strip('/')}/{relative}")
    return parts._replace(path=f"/{path}").geturl()


def _parse_remote(text: str) -> str:
    match = (_URL if "://" in text else _SCP).fullmatch(text)
    if match is None or ".." in unquote(match["path"]).split("/"):
        raise AuditError("address refused: not https, http, git, ssh or file, or its path contains '..'")
    if match["protocol"] in _WITHOUT_KEY:
        return text
    host = match["host"].partition(":")[0]
    return f"https://{host}/{match['path'].removeprefix('/')}"


def identify(address: str) -> str:
    """Return what equal addresses share: https and ssh, with and without ``.git``; empty for an invalid one."""
    try:
        parts = urlsplit(parse_address(address))
    except AuditError:
        return ""
    return f"{parts.hostname or ''}{parts.path.rstrip('/').removesuffix('.git')}".lower()


def clean(text: str) -> str:
    """Remove control characters, and secrets in addresses, from untrusted text."""
    return redact.text(plain(text)).strip()
