"""Upstream's repositories through GitPython: clones without files in the cache, and a commit's files.

A clone has every commit and tag (``--filter=tree:0``), or one tag's folders (``blob:none``); git fetches other objects
on demand. Each command gets the address as an option, so that no file in the clone contains it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import unquote, urlsplit

from filelock import FileLock, Timeout

from groundwork.errors import AuditError
from groundwork.keys import Key
from groundwork.network.cache import age, now
from pin_audit.addresses import clean, parse_address
from pin_audit.git_command import SECONDS, options_of, run_git
from pin_audit.services import Services

_WEB = re.compile(
    r"https?://(?P<host>github\.com|[\w.-]*gitlab[\w.-]*)/(?P<path>.+?)(?:\.git)?/?", re.IGNORECASE
)
#: The password is in the environment: git passes addresses to its helpers as arguments, which all users can read.
_PASSWORD_FROM_ENVIRONMENT = (
    "credential.helper=",
    'credential.helper=!f() { printf "username=%s\\npassword=%s\\n" "$AUDIT_USER" "$AUDIT_PASSWORD"; }; f',
)
#: git's variables that select the caller's repository; those for settings, proxies and certificates are kept.
_OF_A_REPOSITORY = re.compile(r"GIT_(?!CONFIG_|SSH|SSL_|PROXY_|HTTP_|PYTHON_).*")
_SHA256_DIGITS = 64
_GITLINK = "160000"
#: Options of ``git describe``, in the order of ``git submodule status``.
_DESCRIPTIONS = (("--exact-match", "--tags"), (), ("--tags",), ("--contains", "--exclude=*/*"))
_ALL = 2147483647  # git's depth for all commits
#: In the error of a server that lacks a commit; a server that cannot be asked has others.
_NOT_THERE = "not our ref"
_OFFLINE = "not in the cache, and --offline forbids downloads"


class Repositories:
    """All remote repositories of an audit, each updated once. Safe for threads."""

    def __init__(self, services: Services) -> None:
        for name in filter(_OF_A_REPOSITORY.fullmatch, tuple(os.environ)):
            del os.environ[name]
        self.services = services
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Repository] = {}

    def open(self, address: str, only: str = "", parent: str = "") -> Repository:
        """Return an updated repository, with only one tag or commit if ``only`` is given; raises AuditError."""
        address = parse_address(address, parent)
        with self._lock:
            repository = self._known.setdefault((address, only), Repository(address, self.services, only))
        repository.update()
        return repository


@dataclass(frozen=True, kw_only=True)
class Clone(Key):
    """A repository's clone in the cache."""

    address: str  #: without user and password
    only: str  #: the only branch or tag that it has, or empty


@dataclass(frozen=True)
class TreeEntry:
    """A file or submodule of a commit, as git stores it."""

    mode: str  #: six octal digits
    hash: str  #: of the contents, or the submodule's commit

    @property
    def is_submodule(self) -> bool:
        """Whether it is a gitlink."""
        return self.mode == _GITLINK

    @property
    def is_regular(self) -> bool:
        """Whether it is a file, not a link or a folder."""
        return self.mode.startswith("100")


@dataclass(frozen=True)
class Login:
    """The user and password in an address."""

    user: str
    password: str = field(repr=False)


class Repository:
    """A clone in the cache; users may delete its folder. Safe for threads and for several processes."""

    def __init__(self, address: str, services: Services, only: str) -> None:
        parts = urlsplit(address)
        self.given = address  #: with user and password
        self.address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        self.fetched = ""
        self._login = Login(unquote(parts.username or ""), unquote(parts.password or ""))
        self._services = services
        self._only = only
        self.clone = Clone(address=self.address, only=only)
        self._folder = services.folder / "git" / f"{self.clone.digest[:16]}.git"
        self._filter = "blob:none" if only else "tree:0"
        self._offline = services.offline and parts.scheme != "file"
        self._lock = threading.RLock()
        self._trouble: str | None = None  #: why the update failed; None before the first try

    def update(self) -> None:
        """Make or update the clone, once; raises AuditError."""
        with self._lock:
            if self._trouble is None:
                self._trouble = self._try_update()
            if self._trouble:
                raise AuditError(self._trouble)

    def _try_update(self) -> str:
        """Make or update the clone; return why that failed, or an empty string."""
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self._folder}.lock", timeout=self._services.remaining()):
                self._update()
        except AuditError as error:
            return error.message
        except (OSError, Timeout) as error:
            return f"{self._folder}: cannot be written: {error}"
        return ""

    def _update(self) -> None:
        stamp = self._folder / "fetched"
        with contextlib.suppress(OSError, ValueError):
            self.fetched = stamp.read_text(encoding="ascii")
            if self._offline or self._is_young():
                return
        if self._offline:
            raise AuditError(_OFFLINE)
        if not re.fullmatch(r"(\w[\w./+@-]*)?", self._only):
            raise AuditError(f"'{self._only}': not a tag's name")
        if self.fetched:
            try:
                self._fetch_wanted()
            except AuditError as error:
                self._services.warn(f"{error.message}; using the clone of {self.fetched}")
                return
        else:
            self._make()
        self.fetched = now()
        stamp.write_text(self.fetched, encoding="ascii")

    def _is_young(self) -> bool:
        """Whether the clone need not be updated; raises ValueError if its time cannot be read."""
        seconds = age(self.fetched)
        return 0 <= seconds <= self._services.max_age and not self.address.startswith("file:")

    def _make(self) -> None:
        """Make the clone in the format of the remote's objects; a full hash as the wanted commit tells it."""
        self._init("sha256" if len(self._only) == _SHA256_DIGITS else "sha1")
        try:
            self._fetch_wanted()
        except AuditError:
            if not self._has_sha256():
                raise
            self._init("sha256")
            self._fetch_wanted()

    def _init(self, object_format: str) -> None:
        """Make an empty clone. git's default format depends on its version, and must be the remote's."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        self._git("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}")

    def _has_sha256(self) -> bool:
        """Return whether the remote's objects have names of 64 digits; False if it does not answer."""
        shutil.rmtree(self._folder, ignore_errors=True)  # git reads no names of another format in a clone
        self._folder.mkdir()
        try:
            listed = self._git("ls-remote", "origin", fetches=True, in_clone=False)
        except AuditError:
            return False
        return len(listed.partition("\t")[0]) == _SHA256_DIGITS

    def _fetch_wanted(self) -> None:
        if not self._only:  # with a depth, even a shallow server sends all its commits
            self._fetch("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*", depth=_ALL)
            return
        wanted = f"refs/tags/{self._only}"
        if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", self._only):
            wanted = self._only
        self._fetch(f"+{wanted}:refs/audit/top", depth=1)

    def describe(self, commit: str) -> str:
        """Return a commit's tag, or ``git describe``'s text, or its short hash. Raises AuditError."""
        self._ensure(commit)
        for mode in _DESCRIPTIONS:
            value = self._try("describe", *mode, commit)
            if value:
                return value
        return self._try("rev-parse", "--short", commit)

    def listing(self, commit: str, *paths: str) -> dict[str, TreeEntry]:
        """Return files and submodules by path: of a whole commit, or of `paths`."""
        self._ensure(commit)
        recursive = [] if paths else ["-r"]
        listed = self._git("ls-tree", "-z", *recursive, commit, "--", *paths, fetches=True)
        entries = {}
        for row in listed.split("\0"):
            if row:
                head, _, path = row.partition("\t")
                mode, _, item = head.split()
                entries[path] = TreeEntry(mode, item)
        return entries

    def contents(self, hashes: Sequence[str]) -> dict[str, bytes]:
        """Return the contents of files by their hashes; one request fetches all missing files."""
        missing = [item for item in hashes if not self._try("cat-file", "-t", item)]
        if missing:
            self._fetch(*missing)
        contents = {}
        for item in hashes:
            contents[item] = self._git("cat-file", "blob", item).encode(errors="surrogateescape")
        return contents

    @cached_property
    def commit(self) -> str:
        """The commit of the tag."""
        return self._git("rev-parse", "refs/audit/top^{commit}").strip()

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of those `paths` at the tag that are regular files."""
        if not paths:
            return {}
        listed = self.listing(self.commit, *paths)
        hashes = {path: entry.hash for path, entry in listed.items() if entry.is_regular}
        contents = self.contents(list(hashes.values()))
        return {path: contents[item] for path, item in hashes.items()}

    def url(self, path: str, line: int | None = None, commit: str = "") -> str:
        """Return a file's web page; empty unless the host is GitHub or GitLab."""
        web = _WEB.fullmatch(self.address)
        if web is None:
            return ""
        middle = "-/blob" if "gitlab" in web["host"].lower() else "blob"
        page = f"https://{web['host']}/{web['path']}/{middle}/{commit or self.commit}/{path}"
        if line:
            page += f"#L{line}"
        return page

    def _ensure(self, commit: str) -> None:
        """Fetch a commit if no branch or tag has brought it, as git does for a submodule."""
        if self._has(commit):
            return
        reason = "no commit has this name"
        try:
            self._fetch(commit)
        except AuditError as error:
            reason = error.message
        if self._has(commit):
            return
        trouble = "no longer exists" if _NOT_THERE in reason else f"cannot be fetched: {reason}"
        raise AuditError(f"{clean(self.address)}: commit {commit[:12]} {trouble}")

    def _has(self, commit: str) -> bool:
        return bool(self._try("cat-file", "-t", f"{commit}^{{commit}}"))

    def _fetch(self, *words: str, depth: int = 0) -> None:
        # noop: git would otherwise offer the commit that it has, and the server would leave out the missing files
        settings = [] if depth else ["fetch.negotiationAlgorithm=noop"]
        options = [f"--filter={self._filter}", "--no-tags", "--force", "--no-write-fetch-head"]
        if depth:
            options.append(f"--depth={depth}")
        self._git(*options_of(settings), "fetch", *options, "origin", *words, fetches=True)

    def _try(self, *words: str) -> str:
        """Run git without network access; return an empty string if it fails."""
        with contextlib.suppress(AuditError):
            return clean(self._git(*words))
        return ""

    def _git(self, *words: str, fetches: bool = False, in_clone: bool = True) -> str:
        """Run git in the clone; it may fetch missing objects if `fetches`, unless offline."""
        # without a clone, git must not find one in a folder above the cache
        place = {"GIT_DIR": str(self._folder)}
        if not in_clone:
            place = {"GIT_CEILING_DIRECTORIES": str(self._folder.parent)}
        if not fetches:
            return run_git(self._folder, *words, seconds=SECONDS, **place)
        if self._offline:
            try:
                return run_git(self._folder, *words, seconds=SECONDS, **place)
            except AuditError as error:  # git says that no transport is allowed, or that an object is no tree
                raise AuditError(_OFFLINE) from error
        settings = [
            f"remote.origin.url={self.address}",
            "remote.origin.promisor=true",
            f"remote.origin.partialclonefilter={self._filter}",
        ]
        if self._login.user or self._login.password:
            settings += _PASSWORD_FROM_ENVIRONMENT
        with self._lock:
            try:
                return run_git(
                    self._folder,
                    *options_of(settings),
                    *words,
                    seconds=min(SECONDS, self._services.remaining()),
                    GIT_ALLOW_PROTOCOL="file:git:http:https:ssh",
                    AUDIT_USER=self._login.user,
                    AUDIT_PASSWORD=self._login.password,
                    **place,
                )
            except AuditError as error:
                host = urlsplit(self.address).hostname or "git"
                raise AuditError(f"{host}: {error.message}", error.remedy) from error
