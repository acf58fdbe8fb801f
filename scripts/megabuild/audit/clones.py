"""Histories without files, by plain git: what `git clone --filter=tree:0` brings, kept in the cache.

A clone has every commit, branch and tag, and no folders: those and files are fetched when git is asked for them. It is
made by init and fetch, since `git clone` would write an address with its password to the disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from filelock import FileLock, Timeout

from megabuild.audit.addresses import Address, also
from megabuild.audit.git import Hosts, Said, git
from megabuild.audit.services import Services
from megabuild.errors import AuditError
from megabuild.network.cache import age, now

_FETCH_SECONDS = 240.0
_OFFLINE = "run it once with the network, without --offline"
# `parse` and `resolve` decide which address is asked; the user's own insteadOf may lead to another one
_PROTOCOLS = "file:git:http:https:ssh"
_NAME = re.compile(r"[\w][\w./+@-]*")  # of a branch or tag: nothing that means more to git
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# Hosts do not tell strangers which private repositories there are.
_UNKNOWN = re.compile(
    r"Authentication failed|could not read (Username|Password)|returned error: 40[134]", re.IGNORECASE
)
Result = TypeVar("Result")


class Absent(AuditError):
    """The repository answers and does not have that."""


class Clones:
    """All remote repositories of a run, each brought up to date once. Safe for threads."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Clone] = {}
        self.hosts = Hosts()

    def reach(self, address: Address, only: str = "") -> Clone:
        """Return the repository at the first address that answers: ssh addresses are tried over https before.

        Parameters
        ----------
        only:
            A tag or a commit: that one alone with its folders, in place of all history without them.

        Raises
        ------
        AuditError
            None answers; the complaint is that of the first.
        """
        problems: list[AuditError] = []
        for candidate in also(address):
            with self._lock:
                clone = self._known.setdefault((candidate.text, only), Clone(candidate, self, only))
            try:
                clone.use(lambda: None)
            except Absent:
                raise
            except AuditError as error:
                problems.append(error)
            else:
                return clone
        raise problems[0]


class Clone:
    """A remote repository in the cache. Safe for threads and for several processes."""

    def __init__(self, address: Address, clones: Clones, only: str) -> None:
        self.address = address
        self.fetched = ""
        self._clones, self._services, self._only = clones, clones.services, only
        name = hashlib.sha256(f"{address.text}\n{only}".encode()).hexdigest()[:16]
        self._folder = self._services.folder / "git" / f"{address.name}-{name}.git"
        self._filter = "blob:none" if only else "tree:0"
        self._forbidden = self._services.offline and not address.local
        self._lock = threading.RLock()
        self._ready = self._new = False

    def use(self, work: Callable[[], Result]) -> Result:
        """Do something with the clone, which is made or brought up to date before; one that is spoilt is made again.

        Raises
        ------
        AuditError
            No answer, a refusal, or it must not be asked (offline) and there is no clone.
        """
        with self._lock, self._held():
            if not self._ready:
                self._update()
                self._ready = True
            try:
                return work()
            except AuditError as error:
                if self._services.offline or isinstance(error, Absent) or (self._new and not self._filter):
                    raise
                if self._new:  # the server, not the disk, is at fault, and may be asked for everything
                    self._filter = ""
                else:
                    self._services.report("cache", f"{self._folder.name} is spoilt: it is fetched again")
                self._make()
                return work()

    def describe(self, commit: str) -> str:
        """Return a commit's description as ``git submodule status`` prints it: git tries four ways in turn.

        Raises Absent where the repository does not have the commit (any more).
        """

        def work() -> str:
            self._ensure(commit)
            for mode in ([], ["--tags"], ["--contains"], ["--all", "--always"]):
                said = self._local("describe", *mode, commit)
                if said.code == 0 and said.text:
                    return said.text
            raise AuditError(f"git cannot describe the commit: {said.problem}")

        return self.use(work)

    def top(self) -> str:
        """Return the commit of the tag that the clone is of."""

        def work() -> str:
            commit = self._local("rev-parse", "refs/audit/top^{commit}").text
            if not _HASH.fullmatch(commit):
                raise AuditError(f"{self._only} names no commit")
            return commit

        return self.use(work)

    def listing(self, commit: str, *paths: str) -> dict[str, tuple[str, str]]:
        """Return mode and hash by path: of all that a commit has, or of some paths."""

        def work() -> bytes:
            self._ensure(commit)
            # commits that others' folders share are asked for folder by folder: there are few on the way to a path
            return self._asked("ls-tree", "-z", *([] if paths else ["-r"]), commit, "--", *paths)

        found = {}
        for line in self.use(work).decode(errors="surrogateescape").split("\0"):
            head, _, path = line.partition("\t")
            words = head.split()
            if len(words) == 3 and path:
                found[path] = (words[0], words[2])
        return found

    def read(self, hashes: Sequence[str]) -> Mapping[str, bytes]:
        """Return the contents of files by their hashes; one request for all of them."""

        def work() -> dict[str, bytes]:
            wanted = "".join(f"{item}\n" for item in hashes).encode()
            sizes = self._local("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=wanted)
            lines = sizes.text.splitlines()
            if missing := sorted({line.split()[0] for line in lines if line.endswith("missing")}):
                # as git itself fetches what is missing: by saying nothing of what there is
                anew = ["fetch.negotiationAlgorithm=noop"]
                self._fetch("--no-write-fetch-head", *missing, settings=anew)
            return {item: self._asked("cat-file", "blob", item) for item in hashes}

        return self.use(work) if hashes else {}

    # ------------------------------------------------------------------ the clone itself
    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        try:
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self._folder}.lock", timeout=self._services.remaining()):
                yield
        except Timeout:
            remedy = "wait for it, or allow more: --timeout SECONDS"
            raise AuditError("another run holds the cache", remedy) from None
        except OSError as error:
            raise AuditError(f"the cache cannot be written: {error.strerror or error}") from error

    def _update(self) -> None:
        try:
            self.fetched = (self._folder / "fetched").read_text(encoding="ascii")
            old = age(self.fetched)
        except (OSError, ValueError):
            self._make()
            return
        if self._forbidden or (not self.address.local and 0 <= old <= self._services.max_age):
            return
        try:
            self._bring()
        except AuditError as error:
            self._services.report("cache", f"{error.message}: what was fetched at {self.fetched} is used")

    def _make(self) -> None:
        if self._forbidden:
            raise AuditError("not in the cache, and --offline forbids to fetch it", _OFFLINE)
        try:
            self._make_beside()
        except AuditError as error:
            if not (self._filter and "filter" in error.message):
                raise
            self._filter = ""  # the server knows filters and refuses this one
            self._make_beside()

    def _make_beside(self) -> None:
        """Make it beside what there is: a spoilt clone may still be more than none."""
        folder, self._folder = self._folder, self._folder.with_suffix(".new")
        try:
            shutil.rmtree(self._folder, ignore_errors=True)
            made = git("init", "--quiet", "--bare", "--template=", str(self._folder))
            if made.code != 0:
                raise AuditError(f"the cache cannot be written: {made.problem}")
            self._bring()
            shutil.rmtree(folder, ignore_errors=True)
            self._folder.rename(folder)
            self._new = True
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = folder

    def _bring(self) -> None:
        """Fetch what is new: branches and tags as a fresh clone has them, or the one tag."""
        head = self._ask("ls-remote", "--symref", "origin", "HEAD")
        if head.code != 0:
            raise self._refusal(head)
        if not head.out and self.address.protocol.startswith("http"):
            # fetch would take a web page for a repository of files, and ask for its objects one by one, without end
            raise AuditError(
                f"{self.address.host}: what answers for {self.address.name} is no repository",
                "open the address: it may be the page of a proxy or of a login",
            )
        if self._only:
            ref = self._only if _HASH.fullmatch(self._only) else f"refs/tags/{self._only}"
            if not _NAME.fullmatch(self._only):
                raise AuditError(f"'{self._only}' cannot be a tag")
            self._fetch("--depth=1", f"+{ref}:refs/audit/top")
        else:
            wanted = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
            # as much of the history as the server has: without a depth, git refuses a shallow server's, or hangs
            self._fetch("--prune", "--force", "--depth=2147483647", *wanted)
            branch = re.match(r"ref: refs/heads/(\S+)\tHEAD", head.text)
            if branch and _NAME.fullmatch(branch[1]):  # a fresh clone has it as its own
                self._local("update-ref", f"refs/heads/{branch[1]}", f"refs/remotes/origin/{branch[1]}")
        self.fetched = now()
        (self._folder / "fetched").write_text(self.fetched, encoding="ascii")

    def _fetch(self, *words: str, settings: Sequence[str] = ()) -> None:
        filtered = [f"--filter={self._filter}"] if self._filter else []
        # what is wanted goes over standard input: there may be thousands of files
        options = [*filtered, *(word for word in words if word.startswith("--"))]
        wanted = "".join(f"{word}\n" for word in words if not word.startswith("--")).encode()
        said = self._ask("fetch", "--no-tags", *options, "--stdin", "origin", stdin=wanted, settings=settings)
        if said.code != 0 and "couldn't find remote ref" in said.err:
            raise Absent(f"{self.address.name} has no tag {self._only}", "name another: --version")
        if said.code != 0:
            raise self._refusal(said)

    def _refusal(self, said: Said) -> AuditError:
        hint = " (there is no such repository, or it is private)" if _UNKNOWN.search(said.err) else ""
        return AuditError(f"{self.address.host or 'git'}: {said.problem}{hint}")

    def _ensure(self, commit: str) -> None:
        """Fetch a commit that no branch or tag leads to any more, as git does for a submodule."""
        if self._local("cat-file", "-e", f"{commit}^{{commit}}").code == 0:
            return
        if not self._forbidden:
            with contextlib.suppress(AuditError):
                self._fetch(commit)
        if self._local("cat-file", "-e", f"{commit}^{{commit}}").code != 0:
            broken = self._local("rev-list", "--all", "--max-count=1").code != 0
            raise AuditError("the clone is spoilt") if broken else Absent(f"it has no commit {commit}")

    def _local(self, *arguments: str, stdin: bytes = b"") -> Said:
        return git(*arguments, folder=self._folder, stdin=stdin)

    def _asked(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Run git where it may fetch what is missing; offline it may not."""
        run = self._local if self._forbidden else self._ask
        said = run(*arguments, stdin=stdin)
        if said.code != 0:
            raise AuditError(f"{self.address.host or 'git'}: {said.problem}")
        return said.out

    def _ask(self, *arguments: str, stdin: bytes = b"", settings: Sequence[str] = ()) -> Said:
        """Run a git command that talks to the repository; what may pass is tried three times."""
        settings = [*settings, f"remote.origin.url={self.address.text}"]
        if (
            self._filter
        ):  # said here and not written to the clone: git fetches nothing where it is not allowed to
            settings += ["remote.origin.promisor=true", f"remote.origin.partialclonefilter={self._filter}"]

        def once() -> Said:
            seconds = min(_FETCH_SECONDS, self._services.remaining())
            return git(
                *arguments,
                seconds=seconds,
                folder=self._folder,
                protocols=_PROTOCOLS,
                settings=settings,
                stdin=stdin,
            )

        return self._clones.hosts.ask(self.address.host or "local files", once)
