"""Addresses of repositories: which may be asked, what relative ones mean, which others lead to the same place.

The forms are those of gitrepository(7) "GIT URLS"; relative addresses are resolved as git-submodule(1) does, from the
parent's address. What is not clearly one of them never reaches git: no transport programs, and nothing that could be
taken for an option (CVE-2017-1000117, CVE-2018-17456) or ends a line (CVE-2020-5260).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from megabuild.errors import AuditError
from megabuild.wording import plain

_LONGEST = 2048
_HOST = r"(?P<host>[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])"
_URL = re.compile(
    rf"(?P<protocol>https?|git|(git\+)?ssh|ssh\+git)://([^-@/\s][^/\s]*@)?{_HOST}(:\d*)?(?P<path>/.+)"
)
_SCP = re.compile(rf"([A-Za-z0-9_][A-Za-z0-9._-]*@)?{_HOST}:(?P<path>[^:].*)")
_FILE = re.compile(r"file://(localhost)?(?P<path>/.+)")
_WEB = re.compile(r"github\.com|[a-z0-9.-]*gitlab[a-z0-9.-]*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a repository is."""

    text: str  #: as git gets it
    protocol: str  #: ``https``, ``http``, ``git``, ``ssh`` or ``file``
    host: str  #: without user and port; empty for ``file``
    path: str  #: there, with a leading slash

    @property
    def local(self) -> bool:
        """Whether it is on this machine."""
        return self.protocol == "file"

    @property
    def name(self) -> str:
        """The repository's own name, for folders and messages."""
        last = self.path.rstrip("/").removesuffix("/.git").rpartition("/")[2].removesuffix(".git")
        return re.sub(r"[^A-Za-z0-9._-]", "_", last)[:60].lstrip(".") or "repository"


def parse(text: str) -> Address:
    """Return an address that may be handed to git; raises AuditError for anything else."""
    steering = any(plain(one) != one for one in (text, unquote(text)))
    if not text or len(text) > _LONGEST or text.startswith("-") or steering:
        raise AuditError("the address is none of a repository: refused")
    if ":" not in text.partition("/")[0]:
        path = str(Path(text).expanduser().absolute())
        return Address(text=path, protocol="file", host="", path=path)
    if local := _FILE.fullmatch(text):
        return Address(text=text, protocol="file", host="", path=unquote(local["path"]))
    found = (_URL if "://" in text else _SCP).fullmatch(text)
    path = f"/{found['path'].removeprefix('/')}" if found else ""
    if found is None or not path.strip("/") or path[1:2] == "-":
        raise AuditError("the address is none of https, http, git, ssh or file: refused")
    if ".." in unquote(path).split("/"):
        raise AuditError("the address climbs with '..': refused")
    protocol = found.groupdict().get("protocol") or "ssh"
    return Address(
        text=text, protocol="ssh" if "ssh" in protocol else protocol, host=found["host"], path=path
    )


def resolve(text: str, parent: Address) -> Address:
    """Return the address of a submodule.

    Parameters
    ----------
    text:
        As .gitmodules has it: any form, or relative to the parent (``../x.git``).
    parent:
        Address of the repository with that .gitmodules.

    Raises
    ------
    AuditError
        It must not be used, or leads from a remote parent to this machine's files.
    """
    if text.startswith(("./", "../")):
        text = _relative(text, parent)
    elif ":" not in text and not text.startswith("/"):
        raise AuditError("the address is a folder of this machine, and no absolute one: refused")
    found = parse(text)
    if found.local and not parent.local:
        raise AuditError("the address is a folder of this machine, named by a remote repository: refused")
    return found


def also(address: Address) -> tuple[Address, ...]:
    """Return the addresses to try, in order: without a key, an ssh address is better asked over https."""
    if address.protocol != "ssh" or "." not in address.host:
        return (address,)
    return (parse(f"https://{address.host}{address.path}"), address)


def page(address: Address, commit: str, path: str, line: int | None = None) -> str:
    """Return where a person can look at a file, or an empty string for hosts whose form is not known."""
    if not _WEB.fullmatch(address.host):
        return ""
    middle = "-/blob" if "gitlab" in address.host.lower() else "blob"
    repository = address.path.rstrip("/").removesuffix(".git")
    return f"https://{address.host}{repository}/{middle}/{commit}/{path}" + (f"#L{line}" if line else "")


def _relative(text: str, parent: Address) -> str:
    """Join like git's relative_url(): each ``../`` takes one part off, but here never the host."""
    base = parent.text.rstrip("/")
    # scheme://host/, user@host: or nothing, and then the path
    fixed = re.match(r"[^/]*://[^/]*/?|[^/:]*:/?|/?", base)
    head = fixed[0] if fixed else ""
    parts = [part for part in base[len(head) :].split("/") if part]
    while step := re.match(r"\.\.?/", text):
        if step[0] == "../":
            if not parts:
                raise AuditError("the address is relative and climbs out of the parent's host: refused")
            parts.pop()
        text = text[len(step[0]) :]
    if ".." in text.split("/"):
        raise AuditError("the address climbs with '..': refused")
    return head + "/".join([*parts, text.rstrip("/")])
