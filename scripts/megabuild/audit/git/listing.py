"""Which files and submodules a commit has, and the files' contents, from a store that keeps neither by itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from megabuild.audit.git.describe import ensure
from megabuild.audit.git.partial import Absent, Spoilt, Store
from megabuild.audit.git.process import run
from megabuild.audit.git.view import View, view
from megabuild.errors import AuditError

MODULES = ".gitmodules"
_LARGEST = 16 << 20  # bytes of one file
_LOCAL_SECONDS = 20.0
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_FOLDER, _GITLINK, _FILES = (
    "040000",
    "160000",
    ("100644", "100755", "100664"),
)  # 100664: by old versions of git


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What a commit holds.

    Parameters
    ----------
    commit:
        In full.
    files:
        Hashes of the regular files by path.
    gitlinks:
        Commits of the submodules by path.
    """

    commit: str
    files: Mapping[str, str]
    gitlinks: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class _Item:
    mode: str
    hash: str
    path: str


def tagged(store: Store, ref: str) -> str:
    """Fetch what a tag points to, with all folders and no files, and return its commit; called with the store held.

    Raises
    ------
    Absent
        There is no such tag.
    """
    kept = f"refs/audit/{ref}"
    try:
        store.fetch([f"+{ref}:{kept}"], depth=1, leave_out="blob:none")
    except Absent as error:
        name = ref.removeprefix("refs/tags/")
        raise Absent(
            f"{store.connection.address.name} has no tag {name}", "name another: --version"
        ) from error
    answer = run(
        ["rev-parse", "--verify", "--quiet", f"{kept}^{{commit}}"],
        seconds=_LOCAL_SECONDS,
        folder=store.folder,
    )
    commit = answer.out.decode(errors="replace").strip()
    if not _HASH.fullmatch(commit):
        raise AuditError(f"{ref} names no commit")
    return commit


def listing(store: Store, commit: str, *, everything: bool) -> Listing:
    """Return what a commit holds; called with the store held.

    Parameters
    ----------
    everything:
        Also where there is no .gitmodules at its top; else such a commit has no submodules for git, and its folders are
        not fetched.
    """
    with view(store, commit) as shown:
        ensure(store, shown, commit)
        tree = _tree(shown, commit)
        if shown.missing([tree]):
            store.fetch([tree], anew=True)
        items = _list(shown, tree)
        modules = [item for item in items if item.path == MODULES and item.mode in _FILES]
        if modules or everything:
            folders = [item.hash for item in items if item.mode == _FOLDER]
            wanted = shown.missing([*folders, *(item.hash for item in modules)])
            if wanted:
                store.fetch(sorted(wanted), leave_out="blob:none", anew=True)
            items = _all(store, shown, tree, folders)
    return Listing(
        commit=commit,
        files={item.path: item.hash for item in items if item.mode in _FILES},
        gitlinks={item.path: item.hash for item in items if item.mode == _GITLINK},
    )


def contents(store: Store, listing: Listing, paths: Sequence[str]) -> Mapping[str, bytes]:
    """Return the contents of those files that a listing has, fetched at once; called with the store held."""
    hashes = {path: listing.files[path] for path in paths if path in listing.files}
    if not hashes:
        return {}
    with view(store, listing.commit) as shown:
        missing = shown.missing(set(hashes.values()))
        if missing:
            store.fetch(sorted(missing), leave_out="blob:none", anew=True)
        found = shown.read(sorted(set(hashes.values())), _LARGEST)
    return {path: found[item] for path, item in hashes.items() if item in found}


def _tree(shown: View, commit: str) -> str:
    """Return a commit's top folder as the commit names it, whether that is kept or not."""
    answer = shown.git(["cat-file", "commit", commit])
    first = answer.out.partition(b"\n")[0].decode(errors="replace")
    if answer.code != 0 or not _HASH.fullmatch(first.removeprefix("tree ")):
        raise Spoilt(f"{commit[:12]} is no commit, or is spoilt: {answer.problem}")
    return first.removeprefix("tree ")


def _all(store: Store, shown: View, tree: str, folders: Sequence[str]) -> list[_Item]:
    try:
        return _list(shown, tree, "-r")
    except Spoilt:  # folders further down may be missing where another commit shares the upper ones
        store.fetch(sorted(set(folders)), leave_out="blob:none", anew=True)
        return _list(shown, tree, "-r")


def _list(shown: View, tree: str, *options: str) -> list[_Item]:
    answer = shown.git(["ls-tree", "-z", *options, tree])
    if answer.code != 0:
        raise Spoilt(f"a folder cannot be read: {answer.problem}")
    items = []
    for line in answer.out.decode(errors="surrogateescape").split("\0"):
        head, _, path = line.partition("\t")
        words = head.split()
        if len(words) == 3 and path:
            items.append(_Item(mode=words[0], hash=words[2], path=path))
    return items
