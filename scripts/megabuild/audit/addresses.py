"""Addresses of repositories: which may be asked, what relative ones mean, which others lead to the same place.

The forms are those of gitrepository(7) "GIT URLS"; relative addresses are resolved as git-submodule(1) does, from the
parent's address. What git itself has refused since CVE-2017-1000117 (a leading dash), CVE-2018-17456 (dashes in
.gitmodules) and CVE-2020-5260 (encoded line breaks) is refused here before git sees it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from megabuild.audit.facts import plain
from megabuild.errors import AuditError

_LONGEST = 2048
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\]")
_SCP = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?(?P<host>[^/:@\s]+):(?P<path>.*)", re.DOTALL)
_SCHEMES = {"https": "https", "http": "http", "git": "git", "ssh": "ssh", "git+ssh": "ssh", "ssh+git": "ssh"}
_WEB = re.compile(r"github\.com|[a-z0-9.-]*gitlab[a-z0-9.-]*", re.IGNORECASE)
_HERE = "the address is a folder of this machine, {}: refused"


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a repository is.

    Parameters
    ----------
    text:
        As git gets it.
    protocol:
        ``https``, ``http``, ``git``, ``ssh`` or ``file``.
    host, path:
        Without user and port, empty for ``file``; and the path there, with a leading slash.
    """

    text: str
    protocol: str
    host: str
    path: str

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
    """Return an address that may be handed to git.

    Raises
    ------
    AuditError
        It names a program, could be taken for an option, or is no address at all.
    """
    _refuse(not text, "is empty")
    _refuse(len(text) > _LONGEST, f"has {len(text)} characters: refused")
    _refuse(any(plain(one) != one for one in (text, unquote(text))), "has control characters in it: refused")
    _refuse(text.startswith("-"), "could be taken for an option: refused")
    program = text.partition("::")[0]
    _refuse(
        "::" in text.partition("/")[0].partition("[")[0],
        f"names a transport program ('{program}::'): refused",
    )
    if "://" in text:
        return _url(text)
    if scp := _SCP.fullmatch(text):
        return _checked(Address(text=text, protocol="ssh", host=scp["host"], path=_rooted(scp["path"])))
    path = str(Path(text).expanduser().absolute())
    return Address(text=path, protocol="file", host="", path=path)


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
    elif ":" not in text and not text.startswith(("-", "/")):
        raise AuditError(_HERE.format("and no absolute one"))
    found = parse(text)
    if found.local and not parent.local:
        raise AuditError(_HERE.format("named by a remote repository"))
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


def _url(text: str) -> Address:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise AuditError("the address cannot be read: refused") from None
    if parts.scheme == "file":
        elsewhere = parts.netloc not in ("", "localhost") or not parts.path.startswith("/")
        _refuse(elsewhere, "is no file: address of this machine: refused")
        return _checked(Address(text=text, protocol="file", host="", path=unquote(parts.path)))
    if parts.scheme not in _SCHEMES:
        raise AuditError(f"'{parts.scheme[:20]}:' is none of https, http, git, ssh, file: refused")
    _refuse((parts.username or "").startswith("-"), "has a user that could be taken for an option: refused")
    host = re.sub(r":\d*$", "", parts.netloc.rpartition("@")[2])
    return _checked(Address(text=text, protocol=_SCHEMES[parts.scheme], host=host, path=_rooted(parts.path)))


def _checked(address: Address) -> Address:
    _refuse(not address.local and not _HOST.fullmatch(address.host), "has no proper host name: refused")
    _refuse(not address.path.strip("/"), "names no repository: refused")
    _refuse(address.path.lstrip("/").startswith("-"), "has a path that could be taken for an option: refused")
    _refuse(not address.local and ".." in unquote(address.path).split("/"), "climbs with '..': refused")
    return address


def _refuse(bad: bool, why: str) -> None:
    if bad:
        raise AuditError(f"the address {why}")


def _rooted(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"


def _relative(text: str, parent: Address) -> str:
    """Join like git's relative_url(): each ``../`` takes one part off, but here never the host."""
    base = parent.text.rstrip("/")
    # scheme://host/, user@host: or nothing, and then the path
    fixed = re.match(r"[^/]*://[^/]*/?|[^/:]*:/?|/?", base)
    head = fixed[0] if fixed else ""
    parts = [part for part in base[len(head) :].split("/") if part]
    while step := re.match(r"\.\.?/", text):
        if step[0] == "../":
            _refuse(not parts, "is relative and climbs out of the parent's host: refused")
            parts.pop()
        text = text[len(step[0]) :]
    _refuse(".." in text.split("/"), "climbs with '..': refused")
    return head + "/".join([*parts, text.rstrip("/")])
