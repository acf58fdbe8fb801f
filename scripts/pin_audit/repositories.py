"""Upstream's repositories through GitPython: clones without files in the cache, and a commit's files.

A clone has every commit and tag (``--filter=tree:0``), or one tag's folders (``blob:none``); git fetches other objects
on demand. Each command gets the address as an option, so that no file in the clone contains it.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

from filelock import FileLock, Timeout

from groundwork import redact
from groundwork.debian_packages import install_command
from groundwork.errors import AuditError
from groundwork.keys import Key
from groundwork.network.cache import age, now
from groundwork.text import plain
from pin_audit.services import Services

_URL = re.compile(
    r"(?P<protocol>https?|git|(?:git\+)?ssh|ssh\+git)://(?:[^-@/\s][^/\s]*@)?"
    r"(?P<host>[A-Za-z0-9_](?:[\w.-]*\w)?(?::\d*)?|\[[0-9A-Fa-f:.]+\](?::\d*)?)/(?P<path>[^-/].*)", re.ASCII
)  # fmt: skip
_SCP = re.compile(r"(?P<protocol>)(?:\w[\w.-]*@)?(?P<host>\w(?:[\w.-]*\w)?):(?P<path>[^-:].*)", re.ASCII)
_WEB = re.compile(
    r"https?://(?P<host>github\.com|[\w.-]*gitlab[\w.-]*)/(?P<path>.+?)(?:\.git)?/?", re.IGNORECASE
)
_SETTINGS = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.abbrev=7", "gc.auto=0", "maintenance.auto=false",
    "protocol.ext.allow=never", "credential.interactive=never", "fetch.recurseSubmodules=false", "fetch.unpackLimit=1",
    "transfer.bundleURI=false", "http.lowSpeedLimit=1", "http.lowSpeedTime=30",
)  # fmt: skip
_QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "GIT_NO_REPLACE_OBJECTS": "1"}
#: The password is in the environment: git passes addresses to its helpers as arguments, which all users can read.
_PASSWORD_FROM_ENVIRONMENT = (
    "credential.helper=",
    'credential.helper=!f() { printf "username=%s\\npassword=%s\\n" "$AUDIT_USER" "$AUDIT_PASSWORD"; }; f',
)
#: git's variables that select the caller's repository; those for settings, proxies and certificates are kept.
_OF_A_REPOSITORY = re.compile(r"GIT_(?!CONFIG_|SSH|SSL_|PROXY_|HTTP_|PYTHON_).*")
_SHA256_DIGITS = 64
_SECONDS = 240.0  # for one command
_running: set[subprocess.Popen[bytes]] = set()


def parse_address(text: str, parent: str = "") -> str:
    """Return an address that is safe to pass to git; a submodule's may be relative to its parent's.

    Raises AuditError for transport programs, git options (CVE-2017-1000117, CVE-2018-17456), line ends (CVE-2020-5260),
    and local folders named by a remote repository. An ssh address becomes https, which needs no key; the user's
    ``url.<base>.insteadOf`` can change that.
    """
    if parent and text.startswith(("./", "../")):
        parts = urlsplit(parent)
        path = posixpath.normpath(f"{parts.path.strip('/')}/{text}")
        text = parts._replace(path=f"/{path}").geturl()
    odd = text.startswith("-") or any(plain(part) != part for part in (text, unquote(text)))
    local = text.removeprefix("file://localhost").removeprefix("file://")
    if not text or len(text) > 2048 or odd or (local != text and not local.startswith("/")):
        raise AuditError("address refused: not a repository's")
    if ":" not in local.partition("/")[0] and "://" not in local:
        if parent and not (parent.startswith(("/", "file:")) and local.startswith("/")):
            raise AuditError("address refused: a remote repository names a folder of this machine")
        return f"file://{Path(local).expanduser().absolute()}"
    match = (_URL if "://" in text else _SCP).fullmatch(text)
    if match is None or ".." in unquote(match["path"]).split("/"):
        raise AuditError("address refused: not https, http, git, ssh or file, or its path contains '..'")
    if match["protocol"] in ("https", "http", "git"):
        return text
    return f"https://{match['host'].partition(':')[0]}/{match['path'].removeprefix('/')}"


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


def stop(processes: Iterable[subprocess.Popen[bytes]] = _running) -> None:
    """Kill git processes with their helpers, which survive if only git is killed: all that are running by default."""
    for process in tuple(processes):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def run_git(folder: Path, *words: str, seconds: float = _SECONDS, **environ: str) -> str:
    """Run git in a folder without prompts, hooks and transport programs; raises AuditError."""
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    from git import Git, GitCommandNotFound  # the import looks for the git program

    environ = {**_QUIET, "GIT_ALLOW_PROTOCOL": "none", **environ}
    try:
        command = ["git", *(word for setting in _SETTINGS for word in ("-c", setting)), *words]
        started = Git(folder).execute(command, as_process=True, env=environ, start_new_session=True)
    except GitCommandNotFound:
        raise AuditError("git is not installed", f"run: {install_command('git')}") from None
    process = started.proc  # keep `started`: GitPython kills the process when it is collected
    assert process is not None
    _running.add(process)
    try:
        out, err = process.communicate(timeout=max(seconds, 0))
    except subprocess.TimeoutExpired:
        raise AuditError(f"git took longer than {seconds:.0f} s", "pass a longer --timeout SECONDS") from None
    finally:
        stop([process])
        process.wait()
        _running.discard(process)
    if process.returncode:
        lines = [clean(line) for line in re.split(r"[\r\n]+", err.decode(errors="replace")) if line.strip()]
        serious = [line for line in lines if line.startswith(("fatal:", "error:", "remote: fatal:"))]
        raise AuditError((serious or lines or [f"git failed with exit status {process.returncode}"])[0][:300])
    return str(out.decode(errors="surrogateescape"))


class Repositories:
    """All remote repositories of an audit, each updated once. Safe for threads."""

    def __init__(self, services: Services) -> None:
        for name in filter(_OF_A_REPOSITORY.fullmatch, tuple(os.environ)):
            del os.environ[name]
        self.services = services
        self._lock, self._known = threading.Lock(), dict[tuple[str, str], Repository]()

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


class Repository:
    """A clone in the cache; users may delete its folder. Safe for threads and for several processes."""

    def __init__(self, address: str, services: Services, only: str) -> None:
        parts = urlsplit(address)
        self.given = address  #: with user and password
        self.address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        self.fetched = ""
        self._login = unquote(parts.username or ""), unquote(parts.password or "")
        self._services, self._only = services, only
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
                self._trouble = ""
                try:
                    self._folder.parent.mkdir(parents=True, exist_ok=True)
                    with FileLock(f"{self._folder}.lock", timeout=self._services.remaining()):
                        self._update()
                except AuditError as error:
                    self._trouble = error.message
                except (OSError, Timeout) as error:
                    self._trouble = f"{self._folder}: cannot be written: {error}"
            if self._trouble:
                raise AuditError(self._trouble)

    def _update(self) -> None:
        stamp = self._folder / "fetched"
        with contextlib.suppress(OSError, ValueError):
            self.fetched = stamp.read_text(encoding="ascii")
            young = 0 <= age(self.fetched) <= self._services.max_age and not self.address.startswith("file:")
            if self._offline or young:
                return
        if self._offline:
            raise AuditError("not in the cache, and --offline forbids downloads")
        if not re.fullmatch(r"(\w[\w./+@-]*)?", self._only):
            raise AuditError(f"'{self._only}': not a tag's name")
        if not self.fetched:
            self._init("sha256" if len(self._only) == _SHA256_DIGITS else "sha1")
        try:
            self._fetch_wanted()
        except AuditError as error:
            if self.fetched:
                self._services.warn(f"{error.message}; using the clone of {self.fetched}")
                return
            if not self._has_sha256():
                raise
            self._init("sha256")
            self._fetch_wanted()
        self.fetched = now()
        stamp.write_text(self.fetched, encoding="ascii")

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
        is_commit = re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", self._only)
        if self._only:
            wanted = self._only if is_commit else f"refs/tags/{self._only}"
            self._fetch(f"+{wanted}:refs/audit/top", depth=1)
        else:  # with a depth, even a shallow server sends all its commits
            self._fetch("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*", depth=2147483647)

    def describe(self, commit: str) -> str:
        """Return a commit's tag, or ``git describe``'s text, or its short hash. Raises AuditError."""
        self._ensure(commit)
        for mode in (["--exact-match", "--tags"], [], ["--tags"], ["--contains", "--exclude=*/*"]):
            if value := self._try("describe", *mode, commit):
                return value
        return self._try("rev-parse", "--short", commit)

    def listing(self, commit: str, *paths: str) -> dict[str, tuple[str, str]]:
        """Return mode and hash by path: of a whole commit, or of `paths`."""
        self._ensure(commit)
        listed = self._git("ls-tree", "-z", *([] if paths else ["-r"]), commit, "--", *paths, fetches=True)
        rows = (line.partition("\t") for line in listed.split("\0") if line)
        return {path: (head.split()[0], head.split()[2]) for head, _, path in rows}

    def contents(self, hashes: Sequence[str]) -> dict[str, bytes]:
        """Return the contents of files by their hashes; one request fetches all missing files."""
        if missing := [item for item in hashes if not self._try("cat-file", "-t", item)]:
            self._fetch(*missing)
        return {item: self._git("cat-file", "blob", item).encode(errors="surrogateescape") for item in hashes}

    @cached_property
    def commit(self) -> str:
        """The commit of the tag."""
        return self._git("rev-parse", "refs/audit/top^{commit}").strip()

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of those `paths` at the tag that are regular files."""
        listed = self.listing(self.commit, *paths) if paths else {}
        hashes = {path: item for path, (mode, item) in listed.items() if mode.startswith("100")}
        contents = self.contents(list(hashes.values()))
        return {path: contents[item] for path, item in hashes.items()}

    def url(self, path: str, line: int | None = None, commit: str = "") -> str:
        """Return a file's web page; empty unless the host is GitHub or GitLab."""
        if (web := _WEB.fullmatch(self.address)) is None:
            return ""
        middle, anchor = "-/blob" if "gitlab" in web["host"].lower() else "blob", f"#L{line}" if line else ""
        return f"https://{web['host']}/{web['path']}/{middle}/{commit or self.commit}/{path}{anchor}"

    def _ensure(self, commit: str) -> None:
        """Fetch a commit if no branch or tag has brought it, as git does for a submodule."""
        if not self._try("cat-file", "-t", f"{commit}^{{commit}}"):
            with contextlib.suppress(AuditError):
                self._fetch(commit)
            if not self._try("cat-file", "-t", f"{commit}^{{commit}}"):
                raise AuditError(f"{clean(self.address)}: commit {commit[:12]} no longer exists")

    def _fetch(self, *words: str, depth: int = 0) -> None:
        # noop: git would otherwise offer the commit that it has, and the server would leave out the missing files
        how = () if depth else ("-c", "fetch.negotiationAlgorithm=noop")
        options = [f"--filter={self._filter}", "--no-tags", "--force", "--no-write-fetch-head"]
        options += [f"--depth={depth}"] if depth else []
        self._git(*how, "fetch", *options, "origin", *words, fetches=True)

    def _try(self, *words: str) -> str:
        """Run git without network access; return an empty string if it fails."""
        with contextlib.suppress(AuditError):
            return clean(self._git(*words))
        return ""

    def _git(self, *words: str, fetches: bool = False, in_clone: bool = True) -> str:
        """Run git in the clone; it may fetch missing objects if `fetches`, unless offline."""
        # without a clone, git must not find one in a folder above the cache
        place = (
            {"GIT_DIR": str(self._folder)}
            if in_clone
            else {"GIT_CEILING_DIRECTORIES": str(self._folder.parent)}
        )
        if not fetches or self._offline:
            return run_git(self._folder, *words, seconds=_SECONDS, **place)
        settings = [
            f"remote.origin.url={self.address}", "remote.origin.promisor=true",
            f"remote.origin.partialclonefilter={self._filter}",
            *(_PASSWORD_FROM_ENVIRONMENT if any(self._login) else ()),
        ]  # fmt: skip
        options = [word for setting in settings for word in ("-c", setting)]
        with self._lock:
            try:
                return run_git(
                    self._folder, *options, *words, seconds=min(_SECONDS, self._services.remaining()),
                    GIT_ALLOW_PROTOCOL="file:git:http:https:ssh", AUDIT_USER=self._login[0],
                    AUDIT_PASSWORD=self._login[1], **place,
                )  # fmt: skip
            except AuditError as error:
                host = urlsplit(self.address).hostname or "git"
                raise AuditError(f"{host}: {error.message}", error.remedy) from error
