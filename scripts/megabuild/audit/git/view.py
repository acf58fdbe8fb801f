"""A passing repository over kept objects: the branches and tags of a fresh clone, and nothing else.

It has no remote, so git cannot fetch what is missing: it stumbles over it, which is how one knows that more is needed.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from megabuild.audit.git.partial import Spoilt, Store
from megabuild.audit.git.process import Answer, run
from megabuild.audit.git.remote import Refs

_SECONDS = 120.0
# What git says when it walks into a commit that is not here (parse_commit() in commit.c, name-rev's own words).
_STUMBLED = re.compile(r"Could not read|could not parse|bad object|unable to parse|missing", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Said:
    """What git said of a commit.

    Parameters
    ----------
    text:
        Its output, or None where it could not tell.
    cut:
        It walked into the end of what is kept: the text does not count.
    """

    text: str | None
    cut: bool


class View:
    """Kept objects with chosen branches and tags."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def missing(self, hashes: Collection[str]) -> set[str]:
        """Return those objects that are not kept.

        Raises
        ------
        Spoilt
            git cannot tell.
        """
        if not hashes:
            return set()
        answer = self.git(["cat-file", "--batch-check=%(objectname)"], _lines(hashes))
        if answer.code != 0:
            raise Spoilt(f"kept objects are spoilt: {answer.problem}")
        lines = answer.out.decode(errors="replace").splitlines()
        return {line.removesuffix(" missing") for line in lines if line.endswith(" missing")}

    def put(self, refs: Refs, missing: Collection[str], default: str = "") -> None:
        """Set the branches and tags, under the names they have in a fresh clone.

        Parameters
        ----------
        missing:
            Objects that are not kept: what points to them is left out.
        default:
            The branch that the server's HEAD names: a clone has it twice more, as its own and as ``origin/HEAD``.
        """
        packed = self.folder / "packed-refs"
        packed.write_text(_packed(refs, default, missing), encoding="utf-8", errors="surrogateescape")
        if default in refs.heads and refs.heads[default] not in missing:
            link = self.folder / "refs/remotes/origin/HEAD"
            link.write_text(f"ref: refs/remotes/origin/{default}\n", encoding="utf-8")

    def cut(self, commits: Collection[str]) -> None:
        """Take these commits for the beginning of history, as in a shallow clone."""
        (self.folder / "shallow").write_bytes(_lines(sorted(commits)))

    def say(self, arguments: Sequence[str]) -> Said:
        """Run git, which writes hashes in full."""
        answer = self.git(arguments)
        text = answer.out.decode(errors="replace").strip()
        return Said(
            text=text if answer.code == 0 and text else None, cut=_STUMBLED.search(answer.err) is not None
        )

    def git(self, arguments: Sequence[str], stdin: bytes = b"") -> Answer:
        """Run git over the view."""
        return run(
            arguments, seconds=_SECONDS, folder=self.folder, settings={"core.abbrev": "no"}, stdin=stdin
        )

    def whole(self, commit: str) -> bool:
        """Return whether all ancestors of a commit are kept."""
        return self.git(["rev-list", "--count", commit]).code == 0

    def read(self, hashes: Sequence[str], largest: int) -> Mapping[str, bytes]:
        """Return the contents of objects that are here and not too large.

        Raises
        ------
        Spoilt
            git cannot read one of them.
        """
        answer = self.git(["cat-file", "--batch-check=%(objectname) %(objectsize)"], _lines(hashes))
        fitting = []
        for line in answer.out.decode(errors="replace").splitlines():
            name, _, size = line.partition(" ")
            if size.isdigit() and int(size) <= largest:
                fitting.append(name)
        answer = self.git(["cat-file", "--batch=%(objectname) %(objectsize)"], _lines(fitting))
        found: dict[str, bytes] = {}
        rest = memoryview(answer.out)
        for name in fitting:
            end = bytes(rest[:120]).find(b"\n")
            head = bytes(rest[: max(end, 0)]).decode(errors="replace").split(" ")
            if head[0] != name or not head[-1].isdigit():
                raise Spoilt(f"an object is spoilt: {answer.problem}")
            start, length = end + 1, int(head[-1])
            found[name] = bytes(rest[start : start + length])
            rest = rest[start + length + 1 :]
        return found


@contextmanager
def view(store: Store, commit: str) -> Iterator[View]:
    """Make a view without branches and tags; called with the store held.

    Parameters
    ----------
    commit:
        What is asked about; the view's HEAD, as in a submodule.
    """
    with tempfile.TemporaryDirectory(prefix=".view-", dir=store.folder.parent) as temporary:
        folder = Path(temporary)
        for name in ("objects/info", "objects/pack", "refs/remotes/origin"):
            (folder / name).mkdir(parents=True)
        (folder / "HEAD").write_text(f"{commit}\n", encoding="ascii")
        (folder / "objects/info/alternates").write_text(f"{store.objects}\n", encoding="utf-8")
        settings = "[core]\n\tbare = true\n\trepositoryFormatVersion = "
        settings += "1\n[extensions]\n\tobjectFormat = sha256\n" if len(commit) == 64 else "0\n"
        (folder / "config").write_text(settings, encoding="ascii")
        yield View(folder)


def _packed(refs: Refs, default: str, missing: Collection[str]) -> str:
    lines = {}
    for name, commit in refs.heads.items():
        if commit not in missing:
            lines[f"refs/remotes/origin/{name}"] = f"{commit} refs/remotes/origin/{name}\n"
            if name == default:
                lines[f"refs/heads/{name}"] = f"{commit} refs/heads/{name}\n"
    for name, tag in refs.tags.items():
        if tag.object not in missing and tag.commit not in missing:
            peeled = f"^{tag.commit}\n" if tag.annotated else ""
            lines[f"refs/tags/{name}"] = f"{tag.object} refs/tags/{name}\n{peeled}"
    ordered = sorted(lines, key=lambda name: name.encode(errors="surrogateescape"))
    return "# pack-refs with: peeled fully-peeled sorted \n" + "".join(lines[name] for name in ordered)


def _lines(hashes: Iterable[str]) -> bytes:
    return "".join(f"{item}\n" for item in hashes).encode()
