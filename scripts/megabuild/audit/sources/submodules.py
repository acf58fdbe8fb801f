"""The submodules that upstream vendors, recursively, described as ``git submodule status --recursive`` does.

Nothing is checked out and no working tree is made: a submodule is a gitlink in its parent's folders, an address in its
parent's .gitmodules, and a description that takes as much of its history as is needed (see
:mod:`megabuild.audit.git.describe`).
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from megabuild.audit.git.addresses import page, resolve
from megabuild.audit.git.gitmodules import Entry, parse
from megabuild.audit.git.listing import MODULES, Listing
from megabuild.audit.git.partial import Absent
from megabuild.audit.git.process import shown
from megabuild.audit.git.repositories import Repositories
from megabuild.audit.git.repository import Repository
from megabuild.audit.git.tree import GitTree, open_tree
from megabuild.audit.model import Finding, Kind, Origin, Outcome
from megabuild.audit.request import Request
from megabuild.errors import AuditError
from megabuild.network import redact
from megabuild.network.services import Services

SOURCE = "submodules"
_AT_ONCE = 8
_DEEPEST = 8  # submodules of submodules of …; PyTorch has three levels
_MOST = 500  # PyTorch has about seventy


@dataclass(frozen=True, kw_only=True)
class _Parent:
    """A repository with submodules: the chain of paths that leads to it, and what its commit holds."""

    chain: tuple[str, ...]
    repository: Repository
    listing: Listing
    entries: Mapping[str, Entry]
    trouble: str


@dataclass(frozen=True, kw_only=True)
class _Place:
    """One submodule."""

    parent: _Parent
    path: str

    @property
    def chain(self) -> tuple[str, ...]:
        return (*self.parent.chain, self.path)


@dataclass(frozen=True, kw_only=True)
class _Found:
    chain: tuple[str, ...]
    finding: Finding
    child: _Parent | None = None
    trouble: str = ""


def read(request: Request) -> Outcome:
    """Return every submodule of the target at its tag, in git's order; those of a submodule follow it.

    With a local folder for upstream's files, submodules still come from the repository: only git knows their commits.
    """
    services = request.services
    try:
        tree = request.tree() if request.local.tree is None else None
        if not isinstance(tree, GitTree):
            tree = open_tree(request.target, services)
        top = _parent((), tree.repository, tree.listing)
    except AuditError as error:
        return Outcome(source=SOURCE, trouble=shown(error.message))
    found, trouble = _walk(top, tree.repositories, services)
    found.sort(key=lambda one: [part.encode(errors="surrogateescape") for part in one.chain])
    troubles = dict.fromkeys(text for text in (top.trouble, trouble, *(one.trouble for one in found)) if text)
    return Outcome(
        source=SOURCE,
        findings=tuple(one.finding for one in found),
        trouble="; ".join(troubles),
        received=tree.received,
    )


def _walk(top: _Parent, repositories: Repositories, services: Services) -> tuple[list[_Found], str]:
    """Look at the submodules level by level, several at once."""
    found: list[_Found] = []
    parents = [top]
    for _ in range(_DEEPEST):
        places = [_Place(parent=parent, path=path) for parent in parents for path in parent.listing.gitlinks]
        room = _MOST - len(found)
        level = _each(lambda place: _look(place, repositories, services), places[:room])
        found += level
        parents = [one.child for one in level if one.child is not None]
        if len(places) > room:
            return found, f"only the first {_MOST} submodules were looked at"
        if not parents:
            return found, ""
    return found, f"submodules more than {_DEEPEST} levels down were not looked at"


def _each(look: Callable[[_Place], _Found], places: Sequence[_Place]) -> list[_Found]:
    """Do several at once, in daemons: a server that stays silent must not keep the program from ending."""
    waiting: queue.SimpleQueue[tuple[int, _Place]] = queue.SimpleQueue()
    for task in enumerate(places):
        waiting.put(task)
    found: dict[int, _Found] = {}

    def work() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                number, place = waiting.get_nowait()
                found[number] = look(place)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(_AT_ONCE, len(places)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[number] for number in range(len(places))]


def _look(place: _Place, repositories: Repositories, services: Services) -> _Found:
    parent = place.parent
    commit = parent.listing.gitlinks[place.path]
    entry = parent.entries.get(place.path)
    name = "/".join(shown(part) for part in place.chain)
    services.report(SOURCE, name)
    details = {"commit": commit}
    value = trouble = below = ""
    child = None
    try:
        if entry is None:
            raise AuditError(parent.trouble or ".gitmodules does not mention it")
        if not entry.url:
            raise AuditError(".gitmodules gives it no URL")
        details["url"] = shown(entry.url)[:200]
        address = resolve(entry.url, parent.repository.address)
        details["address"] = shown(redact.address(address.text) if "://" in address.text else address.text)
        if entry.update.startswith("!"):
            raise AuditError(".gitmodules wants a command to be run for it: refused")
        repository = repositories.reach(address)
        try:
            described = repository.describe(commit, shallow=entry.shallow)
            value, note = shown(described.text), described.note
        except Absent:
            raise AuditError(f"{details['address']} does not have commit {commit[:12]} any more") from None
        if entry.update == "none":
            note = "; ".join(filter(None, (note, "git leaves it out (update = none)")))
        else:
            child, below = _child(place, repository, commit, name)
        details |= {"note": note} if note else {}
        if repository.connection.moved:
            details["moved"] = repository.connection.moved
    except AuditError as error:
        trouble = shown(error.message)
    except Exception as error:  # a fault of ours in one submodule must not cost the others
        trouble = shown(f"unexpected {type(error).__name__}: {error}")
    finding = Finding(
        name=name,
        kind=Kind.SUBMODULE,
        value=value,
        origin=_origin(parent, entry),
        trouble=trouble,
        details=details,
    )
    return _Found(chain=place.chain, finding=finding, child=child, trouble=below)


def _child(place: _Place, repository: Repository, commit: str, name: str) -> tuple[_Parent | None, str]:
    """Return a submodule that may have submodules itself, or why that is not known."""
    try:
        listing = repository.listing(commit)
        child = _parent(place.chain, repository, listing) if listing.gitlinks else None
    except AuditError as error:
        return None, f"submodules of {name}: {shown(error.message)}"
    return child, child.trouble if child is not None else ""


def _parent(chain: tuple[str, ...], repository: Repository, listing: Listing) -> _Parent:
    entries: Mapping[str, Entry] = {}
    trouble = ""
    if listing.gitlinks and MODULES in listing.files:
        try:
            entries = parse(repository.read(listing, [MODULES]).get(MODULES, b""))
        except AuditError as error:
            trouble = f"{'/'.join(map(shown, chain)) or 'the repository'}: {shown(error.message)}"
    return _Parent(chain=chain, repository=repository, listing=listing, entries=entries, trouble=trouble)


def _origin(parent: _Parent, entry: Entry | None) -> Origin:
    line = entry.line if entry is not None else None
    commit = parent.listing.commit
    return Origin(
        file=MODULES,
        line=line,
        url=page(parent.repository.address, commit, MODULES, line),
        commit=commit,
        fetched=parent.repository.fetched,
    )
