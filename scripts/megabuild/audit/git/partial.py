"""What is kept of a remote repository: a bare one without files, or with them where the server cannot leave them out.

Each lies in the cache under its address' name and hash, with a lock beside it that other runs respect. Branches and
tags are not kept in it, since they move: :mod:`megabuild.audit.git.view` puts today's over its objects.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from megabuild.audit.git.connection import Connection, failure
from megabuild.audit.git.process import Answer, run
from megabuild.errors import AuditError
from megabuild.network import redact

ALL = 2147483647  #: git's own number for "no limit" (git-fetch(1), --unshallow)
_FETCH_SECONDS = 240.0
_LOCAL_SECONDS = 60.0
_ABSENT = re.compile(
    r"not our ref|couldn't find remote ref|no such remote ref|did not send all necessary", re.I
)
_NO_FILTER = re.compile(r"filter '[^']*' not (supported|allowed)|filtering not (recognized|supported)", re.I)
_NO_HASH = re.compile(r"unadvertised object|not valid|does not support (shallow|dumb)|dumb http", re.I)


class Absent(AuditError):
    """The server does not have the commit, branch or tag (any more)."""


class Refused(AuditError):
    """The server does not do it in this way: another way may work."""


class Spoilt(AuditError):
    """What is kept on disk has been harmed."""


class Store:
    """The objects of one remote repository. Safe for threads and for several processes.

    Parameters
    ----------
    connection:
        To that repository.
    filtered:
        Without files and folders, but for those that are asked for.
    """

    def __init__(self, connection: Connection, *, filtered: bool) -> None:
        self.connection = connection
        self.filtered = filtered
        key = hashlib.sha256(redact.address(connection.address.text).encode()).hexdigest()[:16]
        base = connection.folder
        kind = "partial" if filtered else "full"
        self.folder = base / f"{connection.address.name}-{key}.{kind}.git"
        self._lock = FileLock(f"{self.folder}.lock")

    @property
    def objects(self) -> Path:
        """Folder of the objects."""
        return self.folder / "objects"

    @contextmanager
    def held(self, hash_length: int = 40) -> Iterator[None]:
        """Keep other threads and runs out; what they left half done is cleared away.

        Raises
        ------
        AuditError
            Another run holds it until the audit's end, or the cache cannot be written.
        """
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            with self._lock.acquire(timeout=max(self.connection.services.remaining(), 0.01)):
                self._ready(hash_length)
                yield
        except Timeout:
            raise AuditError(
                f"another run holds {self.folder.name}", "wait for it, or allow more: --timeout SECONDS"
            ) from None
        except OSError as error:
            raise AuditError(
                f"the cache cannot be written: {error.strerror or error}", "check its folder and the disk"
            ) from error

    def fetch(
        self,
        wanted: Sequence[str],
        *,
        depth: int | None = None,
        leave_out: str = "tree:0",
        anew: bool = False,
    ) -> None:
        """Fetch commits, tags, folders or files; called with the store held.

        Parameters
        ----------
        wanted:
            Hashes, each as it is or with the ref that keeps it (``<hash>:refs/audit/<name>``), or refspecs.
        depth:
            Commits from each; None for what is not here yet.
        leave_out:
            The filter: ``tree:0`` leaves out folders and files, ``blob:none`` files, apart from those that are wanted.
        anew:
            Do not tell the server what is here: it would take a commit's folders and files to be here as well.

        Raises
        ------
        Absent
            The server does not have one of them.
        Refused
            The server does not filter, or does not serve hashes.
        AuditError
            It does not answer, or its answer makes no sense.
        """
        before = self._sizes()
        words = ["fetch", "--quiet", "--force", "--no-tags", "--no-write-fetch-head", "--refmap="]
        words += [f"--filter={leave_out}"] if self.filtered else []
        words += [f"--depth={depth}"] if depth is not None else []
        words += (
            ["--prune"] if any("*" in item for item in wanted) else []
        )  # a tag that went may be in a folder's way
        try:
            answer = self.connection.ask(
                [*words, "--stdin", "origin"],
                seconds=_FETCH_SECONDS,
                folder=self.folder,
                settings={
                    "remote.origin.url": self.connection.address.text,
                    "fetch.negotiationAlgorithm": "noop" if anew else "consecutive",
                },
                stdin="".join(f"{item}\n" for item in wanted).encode(),
            )
        finally:
            self.connection.add(sum(self._sizes().values()) - sum(before.values()))
        self._judge(answer)

    def remove(self) -> None:
        """Throw away what is kept, since it is spoilt; called with the store held."""
        self.connection.services.report("git", f"{self.folder.name} is spoilt: it is fetched again")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _ready(self, hash_length: int) -> None:
        if self.folder.is_dir():
            for pattern in ("*.lock", "objects/pack/tmp_*", "objects/pack/.tmp*"):  # of a run that was killed
                for left in self.folder.glob(pattern):
                    with contextlib.suppress(OSError):
                        left.unlink()
            return
        with tempfile.TemporaryDirectory(prefix=".new-", dir=self.folder.parent) as temporary:
            made = Path(temporary) / "made"
            kind = "sha256" if hash_length == 64 else "sha1"
            answer = run(
                ["init", "--quiet", "--bare", "--template=", f"--object-format={kind}"],
                seconds=_LOCAL_SECONDS,
                folder=made,
            )
            if answer.code != 0:
                raise AuditError(
                    f"the cache cannot be used: {answer.problem}", "check its folder and the disk"
                )
            if self.filtered:
                with (made / "config").open("a", encoding="utf-8") as stream:
                    stream.write('[remote "origin"]\n\tpromisor = true\n\tpartialCloneFilter = tree:0\n')
            os.replace(made, self.folder)

    def _sizes(self) -> Mapping[str, int]:
        """Sizes of what came over the network, also in packs that broke off."""
        sizes: dict[str, int] = {}
        for pattern in ("*.pack", "tmp_pack_*"):
            for path in (self.objects / "pack").glob(pattern):
                with contextlib.suppress(OSError):
                    sizes[path.name] = path.stat().st_size
        return sizes

    def _judge(self, answer: Answer) -> None:
        if answer.code == 0:  # a server that does not know filters sends everything: no harm
            return
        if self.filtered and _NO_FILTER.search(answer.err):
            raise Refused(answer.problem)
        if _ABSENT.search(answer.err):
            raise Absent(answer.problem)
        if _NO_HASH.search(answer.err):
            raise Refused(answer.problem)
        if self._harmed():
            raise Spoilt(answer.problem)
        raise failure(self.connection.address, answer)

    def _harmed(self) -> bool:
        """Whether the disk, rather than the server, is to blame."""
        packs = sorted((self.objects / "pack").glob("*.pack"))
        indices = [pack.with_suffix(".idx") for pack in packs]
        if not all(index.is_file() for index in indices):
            return True
        asked = [["for-each-ref", "--format=%(objecttype)"]]
        asked += [["verify-pack", *map(str, indices)]] if indices else []
        return any(run(words, seconds=_LOCAL_SECONDS, folder=self.folder).code != 0 for words in asked)
