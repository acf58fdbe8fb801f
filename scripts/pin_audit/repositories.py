"""Upstream's repositories through GitPython: clones without files in the cache, and a commit's files.

A clone has every commit and tag (``--filter=tree:0``), or one tag's folders (``blob:none``); git fetches what else is
asked for. The address is an option of each command, so that no file in the clone has it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

from filelock import FileLock, Timeout

from groundwork.errors import AuditError
from groundwork.network.cache import age, now
from pin_audit.addresses import page, parse_address, shown
from pin_audit.facts import AuditTarget
from pin_audit.services import Services

_SETTINGS = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.abbrev=7", "gc.auto=0", "maintenance.auto=false",
    "protocol.ext.allow=never", "credential.interactive=never", "fetch.recurseSubmodules=false", "fetch.unpackLimit=1",
    "transfer.bundleURI=false", "http.lowSpeedLimit=1", "http.lowSpeedTime=30",
)  # fmt: skip
_QUIET = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "GIT_NO_REPLACE_OBJECTS": "1"}
#: git hands an address to its helpers as an argument, which everybody can read; the environment is private.
_PASSWORD_FROM_ENVIRONMENT = (
    "credential.helper=",
    'credential.helper=!f() { printf "username=%s\\npassword=%s\\n" "$AUDIT_USER" "$AUDIT_PASSWORD"; }; f',
)
#: Of git's variables those of a caller's repository, in place of settings, proxies and certificates.
_OF_A_REPOSITORY = re.compile(r"GIT_(?!CONFIG_|SSH|SSL_|PROXY_|HTTP_|PYTHON_).*")
_UNREACHABLE = re.compile(r"resolve|unable to (look up|connect)|onnect|No route|unreachable|took longer")
_PRIVATE = re.compile(r"Authentication failed|could not read (Username|Password)|returned error: 40[134]")
_FILES = ("100644", "100755", "100664")  # git's modes of regular files
_SECONDS = 240.0  # for one command
_running: set[subprocess.Popen[bytes]] = set()


class Absent(AuditError):
    """The repository does not have the tag or commit."""


def stop() -> None:
    """Kill the git processes that still run when the audit ends."""
    for process in tuple(_running):
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # git's helpers outlive git where only that is killed


def run_git(folder: Path, *words: str, seconds: float = _SECONDS, **environ: str) -> str:
    """Run git in a folder without prompts, hooks and transport programs; raises AuditError."""
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    from git import Git, GitCommandNotFound  # looks for the program when it is imported

    if seconds <= 0:
        raise AuditError("the time limit was reached", "allow more: --timeout SECONDS")
    options = [word for one in _SETTINGS for word in ("-c", one)]
    own = {**_QUIET, "GIT_ALLOW_PROTOCOL": "none", **environ}
    try:
        command = ["git", *options, *words]
        started = Git(folder).execute(command, as_process=True, env=own, start_new_session=True)
    except GitCommandNotFound:
        raise AuditError("git is not installed", "install it (Debian: git; conda: git)") from None
    process = started.proc  # as long as `started` is there: it ends the process when it goes
    assert process is not None
    _running.add(process)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise AuditError(f"git took longer than {seconds:.0f} s", "allow more: --timeout SECONDS") from None
    finally:
        _kill(process)
        process.wait()
        _running.discard(process)
    if process.returncode:
        lines = [shown(line) for line in re.split(r"[\r\n]+", err.decode(errors="replace")) if line.strip()]
        serious = [line for line in lines if line.startswith(("fatal:", "error:", "remote: fatal:"))]
        raise AuditError((serious or lines or [f"git ended with status {process.returncode}"])[0][:300])
    return str(out.decode(errors="surrogateescape"))


class Repositories:
    """All remote repositories of an audit, each updated once. Safe for threads."""

    def __init__(self, services: Services) -> None:
        for name in filter(_OF_A_REPOSITORY.fullmatch, tuple(os.environ)):
            del os.environ[name]
        self.services, self.silent = services, set[str]()
        self._lock, self._known = threading.Lock(), dict[tuple[str, str], Repository]()

    def open(self, address: str, only: str = "") -> Repository:
        """Return a repository, of one tag or commit alone where ``only`` names it; raises AuditError."""
        with self._lock:
            found = self._known.setdefault((address, only), Repository(address, self, only))
        found.update()
        return found


class Repository:
    """A clone in the cache, whose folder may be deleted. Safe for threads and for several processes."""

    def __init__(self, address: str, repositories: Repositories, only: str) -> None:
        parts = urlsplit(address)
        self.given = address  #: with user and password
        self.address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        self._login = unquote(parts.username or ""), unquote(parts.password or "")
        self.repositories, self.fetched = repositories, ""
        self._services, self._only = repositories.services, only
        name = re.sub(r"\W", "_", parts.path.rstrip("/").removesuffix(".git").rpartition("/")[2])[:60]
        digest = hashlib.sha256(f"{self.address}\n{only}".encode()).hexdigest()[:16]
        self._folder = self._services.folder / "git" / f"{name}-{digest}.git"
        self._filter = "blob:none" if only else "tree:0"
        self._offline = self._services.offline and parts.scheme != "file"
        self._lock, self._ready = threading.RLock(), False

    def update(self) -> None:
        """Make the clone or update it, once; raises AuditError."""
        with self._lock:
            if not self._ready:
                try:
                    self._folder.parent.mkdir(parents=True, exist_ok=True)
                    with FileLock(f"{self._folder}.lock", timeout=self._services.remaining()):
                        self._update()
                except (OSError, Timeout) as error:
                    raise AuditError(
                        f"the cache cannot be written: {error}", "wait for other runs"
                    ) from error
                self._ready = True

    def _update(self) -> None:
        try:
            self.fetched = (self._folder / "fetched").read_text(encoding="ascii")
            young = 0 <= age(self.fetched) <= self._services.max_age and not self.address.startswith("file:")
            self._git("rev-list", "--all", "--max-count=1")  # fails where packs are damaged
        except (OSError, ValueError, AuditError):
            if self._offline:
                raise AuditError(
                    "not in the cache, and --offline forbids to fetch it", "run it once online"
                ) from None
            if self.fetched:
                self._services.report("cache", f"{self._folder.name} is damaged and is fetched again")
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir()
            self._git("init", "--quiet", "--bare", "--template=")
            self._fetch_all()
            return
        try:
            if not (self._offline or young):
                self._fetch_all()
        except AuditError as error:
            self._services.report("cache", f"{error.message}: what was fetched at {self.fetched} is used")

    def _fetch_all(self) -> None:
        """Fetch branches and tags, or the one tag."""
        if not self._only:  # with a depth, of a shallow server all that it has
            self._fetch("--depth=2147483647", "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        elif not re.fullmatch(r"\w[\w./+@-]*", self._only):
            raise AuditError(f"'{self._only}' cannot be a tag")
        else:
            named = self._only == "HEAD" or re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", self._only)
            self._fetch("--depth=1", f"+{self._only if named else f'refs/tags/{self._only}'}:refs/audit/top")
        self.fetched = now()
        (self._folder / "fetched").write_text(self.fetched, encoding="ascii")

    def describe(self, commit: str) -> dict[str, str]:
        """Return git's description as ``git submodule status`` prints it, a tag that is exactly there, and a day.

        Branches are left out: a description by one changes with the next push. Raises Absent.
        """
        self._ensure(commit)
        modes: tuple[list[str], ...] = (
            ["--exact-match", "--tags"],
            [],
            ["--tags"],
            ["--contains", "--exclude=*/*"],
        )
        tag, *values = (shown(self._try("describe", *mode, commit)) for mode in modes)
        value, day = next(filter(None, values), ""), ""
        if not value:
            value, day = (
                shown(self._try("rev-parse", "--short", commit)),
                shown(self._try("log", "-1", "--format=%cs", commit)),
            )
        return {"value": value, "tag": "" if tag == value else tag, "day": day}

    def listing(self, commit: str, *paths: str) -> dict[str, tuple[str, str]]:
        """Return mode and hash by path: of all that a commit has, or of some paths."""
        self._ensure(commit)
        listed = self._ask("ls-tree", "-z", *([] if paths else ["-r"]), commit, "--", *paths)
        rows = (line.partition("\t") for line in listed.split("\0") if line)
        return {path: (head.split()[0], head.split()[2]) for head, _, path in rows}

    def contents(self, hashes: Sequence[str]) -> dict[str, bytes]:
        """Return the contents of files by their hashes; what is missing comes in one request."""
        if missing := [item for item in hashes if not self._try("cat-file", "-t", item)]:
            self._fetch(*missing, negotiate=False)  # as git itself fetches what is missing
        return {item: self._git("cat-file", "blob", item).encode(errors="surrogateescape") for item in hashes}

    # ---- as a tree: the files of the one tag ----------------------------------------------------
    @cached_property
    def commit(self) -> str:
        """The commit of the tag."""
        return self._git("rev-parse", "refs/audit/top^{commit}").strip()

    @cached_property
    def entries(self) -> Mapping[str, tuple[str, str]]:
        """Mode and hash of everything, by path."""
        return self.listing(self.commit)

    def names(self) -> Sequence[str]:
        """Return the paths of all regular files, sorted."""
        return sorted(path for path, (mode, _) in self.entries.items() if mode in _FILES)

    def read(self, paths: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of those files that exist."""
        hashes = {path: self.entries[path][1] for path in {*paths}.intersection(self.names())}
        found = self.contents(list(hashes.values()))
        return {path: found[item] for path, item in hashes.items()}

    def url(self, path: str, line: int | None = None) -> str:
        """Return an address of a file for a person to open, or an empty string."""
        return page(self.address, self.commit, path, line)

    # ---- commands -------------------------------------------------------------------------------
    def _ensure(self, commit: str) -> None:
        """Fetch a commit that no branch or tag leads to, as git does for a submodule; else raises Absent."""
        if not self._try("cat-file", "-t", f"{commit}^{{commit}}"):
            with contextlib.suppress(AuditError):
                self._fetch(commit)
            if not self._try("cat-file", "-t", f"{commit}^{{commit}}"):
                raise Absent(f"it has no commit {commit}")

    def _fetch(self, *words: str, negotiate: bool = True) -> None:
        options = [f"--filter={self._filter}"] if self._filter else []
        options += [word for word in words if word.startswith("--")]
        try:
            refs = [word for word in words if not word.startswith("--")]
            how = [] if negotiate else ["-c", "fetch.negotiationAlgorithm=noop"]
            self._ask(
                *how, "fetch", "--no-tags", "--force", "--no-write-fetch-head", *options, "origin", *refs
            )
        except AuditError as error:
            if "couldn't find remote ref" in error.message:
                raise Absent(f"the repository has no tag {self._only}", "name another one") from error
            if not (self._filter and "filter" in error.message):
                raise
            self._filter = ""  # the server knows filters and refuses this one
            self._fetch(*words, negotiate=negotiate)

    def _git(self, *words: str) -> str:
        return run_git(self._folder, *words, GIT_DIR=str(self._folder))

    def _try(self, *words: str) -> str:
        """Run git on what the clone has; returns nothing where it fails."""
        with contextlib.suppress(AuditError):
            return self._git(*words)
        return ""

    def _ask(self, *words: str) -> str:
        """Run git, which may fetch missing objects unless offline."""
        host = urlsplit(self.address).hostname or "git"
        if self._offline or host in self.repositories.silent:
            try:
                return self._git(*words)
            except AuditError:
                raise AuditError(f"{host} was not asked: offline, or it did not answer before") from None
        settings = [f"remote.origin.url={self.address}"]
        if self._filter:
            settings += ["remote.origin.promisor=true", f"remote.origin.partialclonefilter={self._filter}"]
        settings += _PASSWORD_FROM_ENVIRONMENT if any(self._login) else ()
        options = [word for one in settings for word in ("-c", one)]
        environ = {"GIT_DIR": str(self._folder), "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh"}
        environ |= dict(zip(("AUDIT_USER", "AUDIT_PASSWORD"), self._login, strict=True))
        try:
            with self._lock:
                seconds = min(_SECONDS, self._services.remaining())
                return run_git(self._folder, *options, *words, seconds=seconds, **environ)
        except AuditError as error:
            if _UNREACHABLE.search(error.message):
                self.repositories.silent.add(host)
            hint = (
                " (there is no such repository, or it is private)" if _PRIVATE.search(error.message) else ""
            )
            raise AuditError(f"{host}: {error.message}{hint}", error.remedy) from error


def open_tree(target: AuditTarget, services: Services) -> Repository:
    """Open the target's repository at its tag; raises AuditError on failure, or if the tag does not exist."""
    if not target.repository or not target.tag:
        lacking = "the recipe names no upstream repository with a tag"
        raise AuditError(lacking, "name them: --upstream URL --ref TAG")
    return Repositories(services).open(parse_address(target.repository), target.tag)
