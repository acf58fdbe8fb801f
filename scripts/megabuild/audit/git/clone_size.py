"""How many objects a fresh clone has, told by the first twelve bytes of the pack that a server sends for one.

git makes short hashes longer in larger repositories, so without this number ``v2.7.0-481-gfaca86cc08`` would read
``v2.7.0-481-gfaca86c``. The clone is asked for and given up as soon as its pack begins.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from megabuild.audit.git.connection import Connection
from megabuild.audit.git.process import run
from megabuild.errors import AuditError

EVERYTHING = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
_HEADER = re.compile(rb"--pack_header=\d+,(\d+)")  # what git passes on to index-pack, seen in GIT_TRACE
_SECONDS = 120.0
_LOCAL_SECONDS = 20.0
_WRITTEN = 64 << 10  # bytes of the pack after which the system stops git, should it not be stopped by then


def objects(connection: Connection, wanted: Sequence[str] = EVERYTHING, depth: int | None = None) -> int:
    """Return the number of objects in the pack for what is wanted.

    Parameters
    ----------
    wanted:
        Refspecs or hashes.
    depth:
        Commits from each; None for all.

    Raises
    ------
    AuditError
        The server does not answer, or git does not tell the number.
    """
    base = connection.folder
    base.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".size-", dir=base, ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary) / "size.git"
        made = run(["init", "--quiet", "--bare", "--template="], seconds=_LOCAL_SECONDS, folder=folder)
        if made.code != 0:
            raise AuditError(f"the cache cannot be used: {made.problem}")
        words = ["fetch", "--no-tags", "--no-write-fetch-head", "--refmap=", "--no-progress"]
        words += [f"--depth={depth}"] if depth is not None else []
        answer = connection.ask(
            [*words, "--stdin", "origin"],
            seconds=_SECONDS,
            folder=folder,
            settings={"remote.origin.url": connection.address.text},
            stdin="".join(f"{item}\n" for item in wanted).encode(),
            written=_WRITTEN,
            until=_HEADER,
        )
        for path in (folder / "objects/pack").glob("*"):
            with contextlib.suppress(OSError):
                connection.add(path.stat().st_size)
    found = _HEADER.search(answer.err.encode())
    if found is None:
        raise AuditError(f"git does not tell the clone's size: {answer.problem}")
    return int(found[1])
