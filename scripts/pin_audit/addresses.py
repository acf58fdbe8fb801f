"""Addresses of repositories: validated, resolved against a parent, with alternatives to try."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from groundwork.errors import AuditError
from groundwork.user_folders import expanded
from groundwork.wording import plain

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
    """Where a repository is, in one of the forms of gitrepository(7) "GIT URLS".

    What is not clearly one of them never reaches git: no transport programs, and nothing that could be taken for an
    option (CVE-2017-1000117, CVE-2018-17456) or ends a line (CVE-2020-5260).
    """

    text: str  #: as it was written, with user and password
    protocol: str  #: ``https``, ``http``, ``git``, ``ssh`` or ``file``
    host: str  #: without user and port; empty for ``file``
    path: str  #: there, with a leading slash

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return an address that may be handed to git; raises AuditError for anything else."""
        steering = any(plain(one) != one for one in (text, unquote(text)))
        if not text or len(text) > _LONGEST or text.startswith("-") or steering:
            raise AuditError("not a repository address: refused")
        if ":" not in text.partition("/")[0]:
            path = str(expanded(text))
            return cls(text=path, protocol="file", host="", path=path)
        if local := _FILE.fullmatch(text):
            return cls(text=text, protocol="file", host="", path=unquote(local["path"]))
        found = (_URL if "://" in text else _SCP).fullmatch(text)
        path = f"/{found['path'].removeprefix('/')}" if found else ""
        if found is None or not path.strip("/") or path[1:2] == "-":
            raise AuditError("not an https, http, git, ssh or file address: refused")
        if ".." in unquote(path).split("/"):
            raise AuditError("the address climbs with '..': refused")
        protocol = found.groupdict().get("protocol") or "ssh"
        return cls(
            text=text, protocol="ssh" if "ssh" in protocol else protocol, host=found["host"], path=path
        )

    def resolve(self, text: str) -> Address:
        """Return the address of a submodule that this repository's .gitmodules gives, as git-submodule(1) does.

        Raises AuditError where it must not be used, or leads from a remote repository to this machine's files.
        """
        if text.startswith(("./", "../")):
            text = self._join_relative(text)
        elif ":" not in text and not text.startswith("/"):
            raise AuditError("the address is a relative folder of this machine: refused")
        found = Address.parse(text)
        if found.local and not self.local:
            raise AuditError("the address is a folder of this machine, named by a remote repository: refused")
        return found

    def _join_relative(self, text: str) -> str:
        """Join like git's relative_url(): each ``../`` at the beginning takes one part off, but here never the host."""
        # scheme://host/, user@host: or nothing, and then the path
        fixed = re.match(r"[^/]*://[^/]*/?|[^/:]*:/?|/?", self.text)
        head = fixed[0] if fixed else ""
        parts = [part for part in self.text[len(head) :].split("/") if part]
        rest = re.sub(r"^(\.\.?/)+", "", text)
        kept = len(parts) - text[: len(text) - len(rest)].count("../")
        if kept < 0 or ".." in rest.split("/"):
            raise AuditError("the address is relative and climbs out of its host: refused")
        return head + "/".join([*parts[:kept], rest.rstrip("/")])

    @property
    def local(self) -> bool:
        """Whether it is on this machine."""
        return self.protocol == "file"

    @property
    def repository(self) -> str:
        """The repository's path without ``.git``: the same for all ways to it."""
        return self.path.rstrip("/").removesuffix("/.git").removesuffix(".git")

    @property
    def name(self) -> str:
        """The repository's own name, for folders and messages."""
        last = self.repository.rpartition("/")[2]
        return re.sub(r"[^A-Za-z0-9._-]", "_", last)[:60].lstrip(".") or "repository"

    @property
    def public(self) -> str:
        """The address as git gets it and people see it: over HTTP without user and password."""
        if not self.protocol.startswith("http"):
            return self.text
        parts = urlsplit(self.text)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    @property
    def login(self) -> tuple[str, str] | None:
        """User and password that stand in an address for HTTP."""
        parts = urlsplit(self.text)
        if not self.protocol.startswith("http") or "@" not in parts.netloc:
            return None
        return unquote(parts.username or ""), unquote(parts.password or "")

    def candidates(self) -> tuple[Address, ...]:
        """Return the addresses to try, in order: without a key, an ssh address is better asked over https."""
        if self.protocol != "ssh" or "." not in self.host:
            return (self,)
        return (Address.parse(f"https://{self.host}{self.path}"), self)

    def page(self, commit: str, path: str, line: int | None = None) -> str:
        """Return where a person can look at a file; empty for hosts whose form is not known."""
        if not _WEB.fullmatch(self.host):
            return ""
        middle = "-/blob" if "gitlab" in self.host.lower() else "blob"
        return f"https://{self.host}{self.repository}/{middle}/{commit}/{path}" + (
            f"#L{line}" if line else ""
        )
