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

from megabuild.errors import AuditError

_LONGEST = 2048
_HOST = re.compile(r"(?:[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])")
_SCP = re.compile(r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)@)?(?P<host>[^/:@\s]+):(?P<path>.*)", re.DOTALL)
_SCHEMES = {"https": "https", "http": "http", "git": "git", "ssh": "ssh", "git+ssh": "ssh", "ssh+git": "ssh"}
_NO_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_WEB = re.compile(r"(github\.com|gitlab\.[a-z.]+|[a-z0-9.-]*gitlab[a-z0-9.-]*|codeberg\.org)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a repository is.

    Parameters
    ----------
    text:
        As git gets it.
    protocol:
        ``https``, ``http``, ``git``, ``ssh`` or ``file``.
    host:
        Without user and port; empty for ``file``.
    path:
        On that host, with a leading slash.
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
    if not text:
        raise AuditError("the address is empty")
    if len(text) > _LONGEST:
        raise AuditError(f"the address has {len(text)} characters: refused")
    if _NO_TEXT.search(text) or _NO_TEXT.search(unquote(text)):
        raise AuditError("the address has control characters in it: refused")
    if text.startswith("-"):
        raise AuditError("the address could be taken for an option: refused")
    if "::" in text.partition("/")[0].partition("[")[0]:
        raise AuditError(f"the address names a transport program ('{text.partition('::')[0]}::'): refused")
    if "://" in text:
        return _url(text)
    scp = _SCP.fullmatch(text)
    if scp is not None:
        return _checked(Address(text=text, protocol="ssh", host=scp["host"], path=_rooted(scp["path"])))
    path = Path(text).expanduser().absolute()
    return Address(text=str(path), protocol="file", host="", path=str(path))


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
        raise AuditError("the address is a folder of this machine, and no absolute one: refused")
    elif not parent.local and text.startswith("/"):
        raise AuditError("the address is a folder of this machine, named by a remote repository: refused")
    found = parse(text)
    if found.local and not parent.local:
        raise AuditError("the address is a folder of this machine, named by a remote repository: refused")
    return found


def also(address: Address) -> tuple[Address, ...]:
    """Return the addresses to try, in order: without a key, an ssh address is better asked over https."""
    if address.protocol != "ssh" or not re.search("[.]", address.host):
        return (address,)
    return (parse(f"https://{address.host}{address.path}"), address)


def page(address: Address, commit: str, path: str, line: int | None = None) -> str:
    """Return where a person can look at a file, or an empty string for hosts whose form is not known."""
    if address.local or not _WEB.fullmatch(address.host):
        return ""
    plain = address.path.rstrip("/").removesuffix(".git")
    middle = "src/commit" if address.host.lower() == "codeberg.org" else "blob"
    middle = f"-/{middle}" if "gitlab" in address.host.lower() else middle
    return f"https://{address.host}{plain}/{middle}/{commit}/{path}" + (f"#L{line}" if line else "")


def _url(text: str) -> Address:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise AuditError("the address cannot be read: refused") from None
    scheme = parts.scheme.lower()
    if scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise AuditError("the address is no file: address of this machine: refused")
        return _checked(Address(text=text, protocol="file", host="", path=unquote(parts.path)))
    if scheme not in _SCHEMES:
        raise AuditError(f"'{parts.scheme[:20]}:' is none of https, http, git, ssh, file: refused")
    if parts.username is not None and parts.username.startswith("-"):
        raise AuditError("the address's user could be taken for an option: refused")
    host = parts.netloc.rpartition("@")[2]
    host = re.sub(r":\d*$", "", host)
    return _checked(Address(text=text, protocol=_SCHEMES[scheme], host=host, path=_rooted(parts.path)))


def _checked(address: Address) -> Address:
    if not address.local and not _HOST.fullmatch(address.host):
        raise AuditError("the address has no proper host name: refused")
    if not address.path.strip("/"):
        raise AuditError("the address names no repository: refused")
    if address.path.lstrip("/").startswith("-"):
        raise AuditError("the address's path could be taken for an option: refused")
    if not address.local and ".." in unquote(address.path).split("/"):
        raise AuditError("the address climbs with '..': refused")
    return address


def _rooted(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"


def _relative(text: str, parent: Address) -> str:
    """Join like git's relative_url(): each ``../`` takes one part off, but here never the host."""
    base = parent.text.rstrip("/")
    scheme, mark, rest = base.partition("://")
    if mark:
        host, slash, path = rest.partition("/")
        fixed = f"{scheme}://{host}{slash}"
    elif parent.local:
        fixed, path = "/", base.lstrip("/")
    else:  # user@host:path, where the last part goes with the colon as its joint
        fixed, _, path = base.partition(":")
        fixed += ":"
    parts = [part for part in path.split("/") if part]
    fixed += "/" if not mark and path.startswith("/") else ""
    while True:
        if text.startswith("../"):
            if not parts:
                raise AuditError("the relative address climbs out of the parent's host: refused")
            parts.pop()
            text = text[3:]
        elif text.startswith("./"):
            text = text[2:]
        else:
            break
    if ".." in text.split("/"):
        raise AuditError("the address climbs with '..': refused")
    return fixed + "/".join([*parts, text.rstrip("/")])
