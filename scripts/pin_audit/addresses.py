"""Addresses of repositories: those that may be handed to git, and pages for a person."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from groundwork import redact
from groundwork.errors import AuditError
from groundwork.text import plain

_URL = re.compile(
    r"(?P<protocol>https?|git|(?:git\+)?ssh|ssh\+git)://(?P<user>[^-@/\s][^/\s]*@)?"
    r"(?P<host>[A-Za-z0-9_](?:[\w.-]*\w)?(?::\d*)?|\[[0-9A-Fa-f:.]+\](?::\d*)?)/(?P<path>[^-/].*)", re.ASCII
)  # fmt: skip
_SCP = re.compile(
    r"(?:[A-Za-z0-9_][\w.-]*@)?(?P<host>[A-Za-z0-9_](?:[\w.-]*\w)?):(?P<path>[^-:].*)", re.ASCII
)
_WEB = re.compile(
    r"https?://(?:[^@/]*@)?(?P<host>github\.com|[\w.-]*gitlab[\w.-]*)/(?P<path>.+?)(?:\.git)?/?",
    re.IGNORECASE,
)


def shown(text: str) -> str:
    """Return text from outside without control characters and without secrets in addresses."""
    return redact.text(plain(text)).strip()


def parse_address(text: str, parent: str = "") -> str:
    """Return an address that may be handed to git, also a submodule's relative to its parent's; raises AuditError.

    No transport programs, nothing that git takes for an option (CVE-2017-1000117, CVE-2018-17456) or that ends a line
    (CVE-2020-5260), no way from a remote repository to this machine's files. An ssh address is asked over https, where
    no key is needed; ``url.<base>.insteadOf`` leads elsewhere.
    """
    remote = parent and not parent.startswith(("/", "file:"))
    if parent and text.startswith(("./", "../")):
        parts, rest = urlsplit(parent), re.sub(r"^(\.\.?/)+", "", text)
        depth = text[: len(text) - len(rest)].count("../")
        if depth > len(parts.path.strip("/").split("/")) or ".." in rest.split("/"):
            raise AuditError("the address is relative and climbs out of its host: refused")
        text = parts._replace(path=posixpath.normpath(f"{parts.path}/{text}")).geturl()
    elif parent and ":" not in text and not text.startswith("/"):
        raise AuditError("the address is a relative folder of this machine: refused")
    if (
        not text
        or len(text) > 2048
        or text.startswith("-")
        or any(plain(one) != one for one in (text, unquote(text)))
    ):
        raise AuditError("not a repository address: refused")
    local = text.removeprefix("file://localhost").removeprefix("file://")
    if local != text and not local.startswith("/"):
        raise AuditError("not a file on this machine: refused")
    if ":" not in local.partition("/")[0] and "://" not in local:
        if remote:
            raise AuditError("the address is a folder of this machine, named by a remote repository: refused")
        return f"file://{Path(local).expanduser().absolute()}"
    found = (_URL if "://" in text else _SCP).fullmatch(text)
    if found is None or ".." in unquote(found["path"]).split("/"):
        raise AuditError(
            "not an https, http, git, ssh or file address, or one that climbs with '..': refused"
        )
    if "://" in text and "ssh" not in found["protocol"]:
        return text
    return f"https://{found['host'].partition(':')[0]}/{found['path'].removeprefix('/')}"


def page(address: str, commit: str, path: str, line: int | None = None) -> str:
    """Return where a person can look at a file; empty for hosts whose form is not known."""
    if (web := _WEB.fullmatch(address)) is None:
        return ""
    middle, anchor = "-/blob" if "gitlab" in web["host"].lower() else "blob", f"#L{line}" if line else ""
    return f"https://{web['host']}/{web['path']}/{middle}/{commit}/{path}{anchor}"
