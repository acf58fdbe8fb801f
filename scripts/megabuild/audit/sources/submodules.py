"""The submodules that upstream vendors, recursively, described as ``git submodule status --recursive`` does.

Nothing is checked out and no working tree is made: a submodule is a gitlink in its parent's folders, an address in its
parent's .gitmodules, and a description that its history without files gives (`megabuild.audit.clones`).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from megabuild.audit.addresses import page, resolve
from megabuild.audit.clones import Absent, Clone, Clones
from megabuild.audit.facts import Outcome, Submodule, Where
from megabuild.audit.git import git, shown
from megabuild.audit.request import Request
from megabuild.errors import AuditError
from megabuild.network import redact

SOURCE = "submodules"
_AT_ONCE = 4
_DEEPEST = 8  # submodules of submodules of …; PyTorch has three levels
_MOST = 500  # PyTorch has about seventy
_MODULES = ".gitmodules"
_GITLINK = "160000"
_LARGEST = 1 << 20  # bytes of a .gitmodules; PyTorch's has five thousand
_HEADER = re.compile(r'\s*\[\s*submodule\s+"((?:[^"\\]|\\.)*)"\s*\]', re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One submodule that a .gitmodules declares; ``line`` is that of its header."""

    url: str
    update: str
    line: int | None


@dataclass(frozen=True, kw_only=True)
class _Parent:
    """A repository with submodules: the chain of paths that leads to it, and what its commit holds.

    ``trouble`` says why its .gitmodules was not read.
    """

    chain: tuple[str, ...]
    clone: Clone
    commit: str
    gitlinks: Mapping[str, str]
    entries: Mapping[str, Entry]
    trouble: str


@dataclass(frozen=True, kw_only=True)
class _Found:
    """A submodule, what may have submodules below it, and why those are not known."""

    chain: tuple[str, ...]
    fact: Submodule
    child: _Parent | None
    trouble: str


def read(request: Request) -> Outcome:
    """Return every submodule of the target at its tag, in git's order; those of a submodule follow it.

    With a local folder for upstream's files, submodules still come from the repository: only git knows their commits.
    """
    tree = request.repository()
    top = _parent((), tree.clone, tree.commit, tree.entries)
    found, trouble = _walk(top, tree.clones)
    found.sort(key=lambda one: [part.encode(errors="surrogateescape") for part in one.chain])
    troubles = dict.fromkeys(text for text in (top.trouble, trouble, *(one.trouble for one in found)) if text)
    return Outcome(source=SOURCE, facts=tuple(one.fact for one in found), trouble="; ".join(troubles))


def parse(content: bytes) -> Mapping[str, Entry]:
    """Return what a .gitmodules declares, by path, as git itself reads it from a copy outside any repository.

    Entries that git ignores are left out: without a path, with a name that climbs (CVE-2018-11235), with a path that
    starts with a dash (CVE-2018-17456).

    Raises
    ------
    AuditError
        It is too large, or git cannot read it.
    """
    if len(content) > _LARGEST:
        raise AuditError(f".gitmodules has {len(content)} bytes: refused")
    said = git("config", "--file", "-", "--no-includes", "--null", "--list", stdin=content)
    if said.code != 0:
        raise AuditError(f".gitmodules cannot be read: {said.problem}")
    settings: dict[str, dict[str, str]] = {}
    for item in said.out.decode(errors="surrogateescape").split("\0"):
        key, _, value = item.partition("\n")
        section, _, rest = key.partition(".")
        name, dot, setting = rest.rpartition(".")
        if section == "submodule" and dot and name and ".." not in re.split(r"[/\\]", name):
            settings.setdefault(name, {})[setting] = value
    lines: dict[str, int] = {}
    for number, line in enumerate(content.decode(errors="surrogateescape").splitlines(), 1):
        if header := _HEADER.match(line):
            lines.setdefault(re.sub(r"\\(.)", r"\1", header[1]), number)
    return {
        found["path"]: Entry(
            url=found.get("url", ""), update=found.get("update", "checkout"), line=lines.get(name)
        )
        for name, found in settings.items()
        if found.get("path") and not found["path"].startswith("-")
    }


def _walk(top: _Parent, clones: Clones) -> tuple[list[_Found], str]:
    """Look at the submodules level by level, several at once."""
    found: list[_Found] = []
    parents = [top]
    for _ in range(_DEEPEST):
        places = [(parent, path) for parent in parents for path in parent.gitlinks]
        room = _MOST - len(found)
        level = _each(lambda parent, path: _look(parent, path, clones), places[:room])
        found += level
        parents = [one.child for one in level if one.child is not None]
        if len(places) > room:
            return found, f"only the first {_MOST} submodules were looked at"
        if not parents:
            return found, ""
    return found, f"submodules more than {_DEEPEST} levels down were not looked at"


def _each(look: Callable[[_Parent, str], _Found], places: Sequence[tuple[_Parent, str]]) -> list[_Found]:
    """Do several at once, in daemons: a server that stays silent must not keep the program from ending."""
    found: dict[int, _Found] = {}
    waiting = iter(list(enumerate(places)))  # next() on it is one step for threads

    def work() -> None:
        for number, place in waiting:
            found[number] = look(*place)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(_AT_ONCE, len(places)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[number] for number in range(len(places))]


def _look(parent: _Parent, path: str, clones: Clones) -> _Found:
    chain, commit = (*parent.chain, path), parent.gitlinks[path]
    entry = parent.entries.get(path)
    name = "/".join(map(shown, chain))
    clones.services.report(SOURCE, name)
    value = trouble = below = asked = ""
    child = None
    try:
        if entry is None:
            raise AuditError(parent.trouble or ".gitmodules does not mention it")
        if not entry.url:
            raise AuditError(".gitmodules gives it no URL")
        address = resolve(entry.url, parent.clone.address)
        asked = shown(redact.address(address.text) if "://" in address.text else address.text)
        if entry.update.startswith("!"):
            raise AuditError(".gitmodules wants a command to be run for it: refused")
        clone = clones.reach(address)
        try:
            value = shown(clone.describe(commit))
        except Absent:
            raise AuditError(f"{asked} does not have commit {commit[:12]} any more") from None
        if entry.update != "none":  # git leaves out what is below
            child, below = _child(chain, clone, commit, name)
    except AuditError as error:
        trouble = shown(error.message)
    except Exception as error:  # a fault of ours in one submodule must not cost the others
        trouble = shown(f"unexpected {type(error).__name__}: {error}")
    line = entry.line if entry is not None else None
    where = Where(
        file=_MODULES,
        line=line,
        url=page(parent.clone.address, parent.commit, _MODULES, line),
        commit=parent.commit,
        fetched=parent.clone.fetched,
    )
    fact = Submodule(name=name, value=value, where=where, trouble=trouble, commit=commit, address=asked)
    return _Found(chain=chain, fact=fact, child=child, trouble=below)


def _child(chain: tuple[str, ...], clone: Clone, commit: str, name: str) -> tuple[_Parent | None, str]:
    """Return a submodule that may have submodules itself, or why that is not known."""
    try:
        top = clone.listing(commit, _MODULES)
        if _MODULES not in top:
            return None, ""
        declared = parse(clone.read([top[_MODULES][1]]).get(top[_MODULES][1], b""))
        below = clone.listing(commit, *declared) if declared else {}
        child = _parent(chain, clone, commit, {**top, **below})
    except AuditError as error:
        return None, f"submodules of {name}: {shown(error.message)}"
    return child, child.trouble


def _parent(
    chain: tuple[str, ...], clone: Clone, commit: str, listed: Mapping[str, tuple[str, str]]
) -> _Parent:
    gitlinks = {path: item for path, (mode, item) in listed.items() if mode == _GITLINK}
    entries: Mapping[str, Entry] = {}
    trouble = ""
    if gitlinks and _MODULES in listed:
        item = listed[_MODULES][1]
        try:
            entries = parse(clone.read([item]).get(item, b""))
        except AuditError as error:
            trouble = f"{'/'.join(map(shown, chain)) or 'the repository'}: {shown(error.message)}"
    return _Parent(
        chain=chain, clone=clone, commit=commit, gitlinks=gitlinks, entries=entries, trouble=trouble
    )
