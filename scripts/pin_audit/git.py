"""Upstream's repositories by git: processes with time limits, and clones without files.

A clone is what `git clone --filter=tree:0` brings, kept in the cache: every commit, branch and tag. Folders and files
are fetched when git is asked for them. It is made by init and fetch: `git clone` would write the address to the disk.
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
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from groundwork import redact
from groundwork.errors import AuditError
from groundwork.network.cache import age, now
from groundwork.wording import plain
from pin_audit.addresses import Address
from pin_audit.services import Services

#: Of git's variables those that hold settings (insteadOf), proxies, certificates and ways to connect; the others are
#: what a caller's repository sets for its hooks, and tracing.
_KEPT = re.compile(r"(?!GIT_).*|GIT_(CONFIG_|SSH|SSL_|PROXY_|HTTP_).*")
_QUIET = {
    "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "SSH_ASKPASS": "true", "SSH_ASKPASS_REQUIRE": "never",
    "GIT_NO_REPLACE_OBJECTS": "1", "LC_ALL": "C", "LANGUAGE": "C",
}  # fmt: skip
_SETTINGS = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.alternateRefsCommand=true", "core.abbrev=7",
    "gc.auto=0", "maintenance.auto=false", "protocol.ext.allow=never", "credential.interactive=never",
    "fetch.unpackLimit=1", "fetch.recurseSubmodules=false", "transfer.bundleURI=false",
    "http.lowSpeedLimit=1", "http.lowSpeedTime=30",
)  # fmt: skip
#: git hands an address to its helpers as an argument, and everybody can read those; not so the environment.
_PASSWORD_FROM_ENVIRONMENT = (
    "credential.helper=",  # whatever else is configured does not know this password
    'credential.helper=!f() { printf "username=%s\\npassword=%s\\n" "$AUDIT_USER" "$AUDIT_PASSWORD"; }; f',
)
_running: set[subprocess.Popen[bytes]] = set()


class GitFailed(AuditError):
    """git failed; the message is its own, or the server's."""


def shown(text: str) -> str:
    """Return text from outside as it may go to a terminal: no control characters, no secrets in addresses."""
    return redact.text(plain(text)).strip()


def git(
    *arguments: str,
    seconds: float = 60.0,
    folder: Path | None = None,
    protocols: str = "none",
    settings: Sequence[str] = (),
    login: tuple[str, str] | None = None,
    stdin: bytes = b"",
) -> bytes:
    """Run git without prompts, hooks and what a repository names, and return what it wrote.

    Nothing in the arguments that came from outside may start with a dash. The folder is a bare repository. Protocols
    have colons between them; without any, git cannot fetch behind our back. Settings are as for ``git -c``.

    Raises GitFailed: It ended with an error.
    Raises AuditError: It is not installed, or took too long: then it is killed, with all its children.
    """
    if seconds <= 0:
        raise AuditError("the time limit was reached", "allow more: --timeout SECONDS")
    settings = (*_SETTINGS, *settings, *(_PASSWORD_FROM_ENVIRONMENT if login else ()))
    words = ["git", *(word for text in settings for word in ("-c", text)), *arguments]
    environment = {key: value for key, value in os.environ.items() if _KEPT.fullmatch(key)}
    # without a repository of its own, git must not find one around the current folder
    environment |= _QUIET | {"GIT_ALLOW_PROTOCOL": protocols, "GIT_DIR": str(folder or os.devnull)}
    environment |= {"AUDIT_USER": login[0], "AUDIT_PASSWORD": login[1]} if login else {}
    pipe = subprocess.PIPE
    try:
        # a session of its own: no terminal to ask at, and a group to kill
        process = subprocess.Popen(
            words, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd="/", start_new_session=True
        )
    except FileNotFoundError:
        raise AuditError("git is not installed", "install it (Debian: git; conda: git)") from None
    with process:
        _running.add(process)
        try:
            out, err = process.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise AuditError(
                f"git took longer than {seconds:.0f} s",
                "the server is slow or does not answer: try later, or allow more with --timeout SECONDS",
            ) from None
        finally:
            # git's helpers for a protocol outlive git itself when only that is killed
            _kill(process)
            _running.discard(process)
    if process.returncode:
        lines = [shown(line) for line in re.split(r"[\r\n]+", err.decode(errors="replace")) if line.strip()]
        serious = [line for line in lines if line.startswith(("fatal:", "error:", "remote: fatal:", "ssh:"))]
        raise GitFailed((serious or lines or [f"git ended with status {process.returncode}"])[0][:300])
    return out


def stop() -> None:
    """Kill the git processes that are still running when the audit ends or is interrupted."""
    for process in tuple(_running):
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


# ---- clones --------------------------------------------------------------------------------------------------------
_FETCH_SECONDS = 240.0
_PAUSES = (0.3, 0.9)  # seconds before a request is retried
_MAX_FAILURES = 2  # after which a host is given up
_NO_NETWORK = "check the network, its proxy settings and git's own configuration"
_TRANSIENT = re.compile(
    r"early EOF|RPC failed|hung up|unexpected disconnect|reset by peer|requested URL returned error: (5\d\d|429)"
    r"|unexpected EOF"
)
_UNREACHABLE = re.compile(
    r"Could not resolve|unable to look up|unable to connect|Connection refused|Failed to connect|timed out"
    r"|Couldn't connect|No route|unreachable|resolve hostname|took longer",
    re.IGNORECASE,
)
# Hosts do not tell private repositories from missing ones.
_PRIVATE = re.compile(r"Authentication failed|could not read (Username|Password)|returned error: 40[134]")
# `Address` decides which one is asked; the user's own insteadOf may lead to another one
_PROTOCOLS = "file:git:http:https:ssh"
_NAME = re.compile(r"[\w][\w./+@-]*")  # of a branch or tag: nothing that means more to git
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Absent(AuditError):
    """The repository does not have the tag or commit."""


class Clones:
    """All remote repositories of a run, each brought up to date once. Safe for threads."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Clone] = {}
        self._failures: dict[str, int] = {}

    def reach(self, address: Address, only: str = "") -> Clone:
        """Return the repository at the first address that answers: ssh addresses are tried over https before.

        With `only`, a tag or a commit, it has that one alone with its folders, in place of all history without them.
        Raises AuditError where none answers, with the complaint of the first.
        """
        problems: list[AuditError] = []
        for candidate in address.candidates():
            with self._lock:
                clone = self._known.setdefault((candidate.text, only), Clone(candidate, self, only))
            try:
                clone.bring()
            except Absent:
                raise
            except AuditError as error:
                problems.append(error)
            else:
                return clone
        raise problems[0]

    def ask(self, host: str, question: Callable[[], bytes]) -> bytes:
        """Query a host: transient errors are retried, an unreachable host is given up; raises AuditError."""
        for pause in (*_PAUSES, None):
            if self._failures.get(host, 0) >= _MAX_FAILURES:
                raise AuditError(f"{host} did not answer before: not tried again", _NO_NETWORK)
            try:
                answer = question()
            except AuditError as error:
                silent = _UNREACHABLE.search(error.message) is not None
                with self._lock:
                    self._failures[host] = self._failures.get(host, 0) + 1 if silent else 0
                if silent or pause is None or not _TRANSIENT.search(error.message):
                    private = " (there is no such repository, or it is private)"
                    hint = private if _PRIVATE.search(error.message) else ""
                    remedy = _NO_NETWORK if silent else error.remedy
                    raise AuditError(f"{host}: {error.message}{hint}", remedy) from error
                time.sleep(pause)
            else:
                self._failures[host] = 0
                return answer
        raise AssertionError("the last try returns or raises")


class Clone:
    """A remote repository in the cache, whose folder may be deleted. Safe for threads and for several processes."""

    def __init__(self, address: Address, clones: Clones, only: str) -> None:
        self.address = address
        self.fetched = ""
        self._clones, self._services, self._only = clones, clones.services, only
        name = hashlib.sha256(f"{address.public}\n{only}".encode()).hexdigest()[:16]
        self._folder = self._services.folder / "git" / f"{address.name}-{name}.git"
        self._filter = "blob:none" if only else "tree:0"
        self._offline = self._services.offline and not address.local
        self._lock = threading.RLock()  # one fetch at a time: git's own locks would fail the second
        self._ready = False

    def bring(self) -> None:
        """Make the clone or update it, once; raises AuditError on failure."""
        with self._lock:
            if self._ready:
                return
            try:
                self._folder.parent.mkdir(parents=True, exist_ok=True)
                with FileLock(f"{self._folder}.lock", timeout=self._services.remaining()):
                    self._update()
            except Timeout:
                remedy = "wait for it, or allow more: --timeout SECONDS"
                raise AuditError("another run holds the cache", remedy) from None
            except OSError as error:
                raise AuditError(f"the cache cannot be written: {error.strerror or error}") from error
            self._ready = True

    def _update(self) -> None:
        try:
            self.fetched = (self._folder / "fetched").read_text(encoding="ascii")
            old = age(self.fetched)
            self._local("rev-list", "--all", "--max-count=1")  # fails where packs are not what they were
        except (OSError, ValueError, GitFailed):
            if self._offline:
                remedy = "run it once with the network, without --offline"
                raise AuditError("not in the cache, and --offline forbids to fetch it", remedy) from None
            if self.fetched:
                self._services.report("cache", f"{self._folder.name} is damaged and is fetched again")
            shutil.rmtree(self._folder, ignore_errors=True)
            git("init", "--quiet", "--bare", "--template=", str(self._folder))
            self._fetch_new()
            return
        if self._offline or (not self.address.local and 0 <= old <= self._services.max_age):
            return
        try:
            self._fetch_new()
        except AuditError as error:
            self._services.report("cache", f"{error.message}: what was fetched at {self.fetched} is used")

    def _fetch_new(self) -> None:
        """Fetch branches and tags as a fresh clone has them, or the one tag."""
        head = self._ask("ls-remote", "--symref", "origin", "HEAD").decode(errors="replace")
        if not head and self.address.protocol.startswith("http"):
            # fetch would take a web page for an empty repository, and prune all that a good clone has
            raise AuditError(
                f"{self.address.host}: what answers for {self.address.name} is not a repository",
                "open the address: it may be the page of a proxy or of a login",
            )
        if self._only:
            if not _NAME.fullmatch(self._only):
                raise AuditError(f"'{self._only}' cannot be a tag")
            named = _HASH.fullmatch(self._only) or self._only == "HEAD"
            ref = self._only if named else f"refs/tags/{self._only}"
            self._fetch("--depth=1", f"+{ref}:refs/audit/top")
        else:
            wanted = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
            # as much of the history as the server has: without a depth, git refuses a shallow server's, or hangs
            self._fetch("--prune", "--force", "--depth=2147483647", *wanted)
            branch = re.match(r"ref: refs/heads/(\S+)\tHEAD", head)
            if branch and _NAME.fullmatch(branch[1]):  # a fresh clone has it as its own
                self._local("update-ref", f"refs/heads/{branch[1]}", f"refs/remotes/origin/{branch[1]}")
        self.fetched = now()
        (self._folder / "fetched").write_text(self.fetched, encoding="ascii")

    def describe(self, commit: str) -> str:
        """Return a commit's description by tags as ``git submodule status`` prints it, else its first digits.

        git's last resort, branches, would say something else as soon as somebody pushes to one; so would the later tags
        that bots make (``ciflow/rocm/1416``).

        Raises Absent where the repository does not have the commit (any more).
        """
        self._ensure(commit)
        for mode in ([], ["--tags"], ["--contains", "--exclude=*/*"]):
            with contextlib.suppress(GitFailed):
                if found := self._local("describe", *mode, commit).decode(errors="replace").strip():
                    return found
        return self._local("rev-parse", "--short", commit).decode(errors="replace").strip()

    def day(self, commit: str) -> str:
        """Return the day of a commit, ``2024-12-02``."""
        return self._local("log", "--max-count=1", "--format=%cs", commit).decode(errors="replace").strip()

    def tagged(self, commit: str) -> str:
        """Return a tag that is exactly on a commit, where the description goes by an annotated one further back."""
        try:
            return self._local("describe", "--tags", "--exact-match", commit).decode(errors="replace").strip()
        except GitFailed:
            return ""

    def top(self) -> str:
        """Return the commit of the tag that the clone is of."""
        return self._local("rev-parse", "refs/audit/top^{commit}").decode().strip()

    def listing(self, commit: str, *paths: str) -> dict[str, tuple[str, str]]:
        """Return mode and hash by path: of all that a commit has, or of some paths."""
        self._ensure(commit)
        # commits that others' folders share are asked for folder by folder: there are few on the way to a path
        listed = self._ask("ls-tree", "-z", *([] if paths else ["-r"]), commit, "--", *paths)
        rows = (line.partition("\t") for line in listed.decode(errors="surrogateescape").split("\0") if line)
        return {path: (head.split()[0], head.split()[2]) for head, _, path in rows}

    def read(self, hashes: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of files by their hashes; one request for all of them."""
        wanted = "".join(f"{item}\n" for item in hashes).encode()
        known = self._local("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=wanted).decode()
        if missing := sorted({line.split()[0] for line in known.splitlines() if line.endswith("missing")}):
            # as git itself fetches missing objects: without negotiating
            self._fetch("--no-write-fetch-head", *missing, settings=["fetch.negotiationAlgorithm=noop"])
        return {item: self._ask("cat-file", "blob", item) for item in hashes}

    def _ensure(self, commit: str) -> None:
        """Fetch a commit that no branch or tag leads to any more, as git does for a submodule; else raises Absent."""
        exists = ("cat-file", "-e", f"{commit}^{{commit}}")
        try:
            self._local(*exists)
        except GitFailed:
            try:
                self._fetch(commit)
                self._local(*exists)
            except AuditError:
                raise Absent(f"it has no commit {commit}") from None

    def _fetch(self, *words: str, settings: Sequence[str] = ()) -> None:
        filtered = [f"--filter={self._filter}"] if self._filter else []
        # what is wanted goes over standard input: there may be thousands of files
        options = [*filtered, *(word for word in words if word.startswith("--"))]
        wanted = "".join(f"{word}\n" for word in words if not word.startswith("--")).encode()
        try:
            self._ask("fetch", "--no-tags", *options, "--stdin", "origin", stdin=wanted, settings=settings)
        except AuditError as error:
            if "couldn't find remote ref" in error.message:
                missing = f"{self.address.name} has no tag {self._only}"
                raise Absent(missing, "name another: --release") from error
            if not (self._filter and "filter" in error.message):
                raise
            self._filter = ""  # the server knows filters and refuses this one
            self._fetch(*words, settings=settings)

    def _local(self, *arguments: str, stdin: bytes = b"") -> bytes:
        return git(*arguments, folder=self._folder, stdin=stdin)

    def _ask(self, *arguments: str, stdin: bytes = b"", settings: Sequence[str] = ()) -> bytes:
        """Run git so that it may fetch missing objects, unless offline."""
        if self._offline:
            return self._local(*arguments, stdin=stdin)
        # passed here and not written to the clone: git fetches nothing without permission
        settings = [*settings, f"remote.origin.url={self.address.public}"]
        if self._filter:
            settings += ["remote.origin.promisor=true", f"remote.origin.partialclonefilter={self._filter}"]

        def question() -> bytes:
            return git(
                *arguments,
                seconds=min(_FETCH_SECONDS, self._services.remaining()),
                folder=self._folder,
                protocols=_PROTOCOLS,
                settings=settings,
                login=self.address.login,
                stdin=stdin,
            )

        with self._lock:
            return self._clones.ask(self.address.host or "git", question)
