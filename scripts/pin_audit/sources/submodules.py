"""The submodules that upstream vendors, recursively, described as ``git submodule status --recursive`` does.

Nothing is checked out and no working tree is made: a submodule is a gitlink in its parent's folders, an address in its
parent's .gitmodules, and a description that its history without files gives (`pin_audit.git`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from groundwork import redact
from groundwork.errors import AuditError
from pin_audit import gitlinks
from pin_audit.addresses import Address
from pin_audit.facts import SourceOutcome, Submodule, TagCommit, Where
from pin_audit.git import Absent, Clone, Clones, git, shown
from pin_audit.gitlinks import Gitlink
from pin_audit.request import AuditRequest

SOURCE = "submodules"
_AT_ONCE = 4
_DEEPEST = 8  # submodules of submodules of …; PyTorch has three levels
_MOST = 500  # PyTorch has about seventy
_MODULES = ".gitmodules"
_GITLINK = "160000"
_LARGEST = 1 << 20  # bytes of a .gitmodules; PyTorch's has five thousand
_HEADER = re.compile(r'\s*\[\s*submodule\s+"((?:[^"\\]|\\.)*)"\s*\]', re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class DeclaredSubmodule:
    """One submodule that a .gitmodules declares."""

    url: str
    update: str
    line: int | None  #: of its header


@dataclass(frozen=True, kw_only=True)
class _Parent:
    """A repository that may have submodules, and what its commit holds."""

    chain: tuple[str, ...]  #: of paths that leads to it
    clone: Clone
    commit: str
    gitlinks: Mapping[str, str]
    entries: Mapping[str, DeclaredSubmodule]
    trouble: str  #: why submodules of it are not known


#: The chain of paths to a submodule, what is known of it, and what may have submodules below it.
_Found = tuple[tuple[str, ...], Submodule, _Parent | None]


def read(request: AuditRequest) -> SourceOutcome:
    """Return every submodule of the target at its tag, in git's order; those of a submodule follow it.

    With a local folder for upstream's files, submodules still come from the repository: only git knows their commits.
    A list of gitlinks stands in for all of it.
    """
    if request.local.gitlinks is not None:
        return _listed(request.local.gitlinks, Clones(request.services))
    tree = request.repository()
    top = _parent((), tree.clone, tree.commit, tree.entries)
    found, trouble = _walk(top, tree.clones)
    found.sort(key=lambda one: [part.encode(errors="surrogateescape") for part in one[0]])
    below = (child.trouble for _, _, child in found if child)
    troubles = dict.fromkeys(filter(None, (top.trouble, trouble, *below)))
    return SourceOutcome(
        source=SOURCE, facts=tuple(fact for _, fact, _ in found), trouble="; ".join(troubles)
    )


def _described(clone: Clone, commit: str) -> dict[str, str]:
    """Return git's description, a tag that is exactly there if it names another one, and a day where no tag is near."""
    value, tag = shown(clone.describe(commit)), shown(clone.tagged(commit))
    day = shown(clone.day(commit)) if commit.startswith(value) else ""
    return {"value": value, "tag": "" if tag == value else tag, "day": day}


def _listed(file: Path, clones: Clones) -> SourceOutcome:
    """Return the submodules of a list, described as far as their repositories answer."""
    unread: dict[str, str] = {}

    def fact(link: Gitlink) -> Submodule:
        known = {"value": link.text or link.commit[:7]}
        address = redact.address(link.address) if link.address else ""
        if link.address and not link.text:
            try:
                clone = clones.reach(Address.parse(link.address))
                known = _described(clone, link.commit)
            except AuditError as error:
                unread.setdefault(error.message, link.path)
        where = Where(file=file.name)
        plain = Submodule(name=link.path, where=where, commit=link.commit, address=address)
        return structs.replace(plain, **known)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        facts = tuple(pool.map(fact, gitlinks.read(file)))
    troubles = [f"{path} is not described: {why}" for why, path in unread.items()][:3]
    trouble = "; ".join([f"read from a list (--gitlinks {file.name})", *troubles])
    return SourceOutcome(source=SOURCE, facts=facts, trouble=trouble)


def read_commit(request: AuditRequest) -> SourceOutcome:
    """Return the commit of upstream's tag, as one fact: for recipes that take a commit in place of an archive.

    A local folder for upstream's files is not asked: it need not be a commit's.
    """
    target, tree = request.target, request.repository()
    where = Where(
        file=target.tag if target.tag == tree.commit else f"refs/tags/{target.tag}",
        url=tree.url("").replace(f"/blob/{tree.commit}", f"/tree/{tree.commit}").rstrip("/"),
        commit=tree.commit,
        fetched=tree.clone.fetched,
    )
    facts = (TagCommit(name=target.package, value=tree.commit, where=where),)
    return SourceOutcome(source="upstream_commit", facts=facts)


def parse(content: bytes) -> Mapping[str, DeclaredSubmodule]:
    """Return what a .gitmodules declares, by path, as git itself reads it from a copy outside any repository.

    Entries that git ignores are left out: without a path, with a name that climbs (CVE-2018-11235), with a path that
    starts with a dash (CVE-2018-17456). Raises AuditError where it is too large, or git cannot read it.
    """
    if len(content) > _LARGEST:
        raise AuditError(f".gitmodules has {len(content)} bytes: refused")
    try:
        listed = git("config", "--file", "-", "--no-includes", "--null", "--list", stdin=content)
    except AuditError as error:
        raise AuditError(f".gitmodules cannot be read: {error.message}", error.remedy) from error
    settings: dict[str, dict[str, str]] = {}
    for item in listed.decode(errors="surrogateescape").split("\0"):
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
        found["path"]: DeclaredSubmodule(
            url=found.get("url", ""), update=found.get("update", "checkout"), line=lines.get(name)
        )
        for name, found in settings.items()
        if found.get("path") and not found["path"].startswith("-")
    }


def _walk(top: _Parent, clones: Clones) -> tuple[list[_Found], str]:
    """Read the submodules level by level, several at once."""
    found: list[_Found] = []
    parents = [top]
    for _ in range(_DEEPEST):
        places = [(parent, path) for parent in parents for path in parent.gitlinks]
        room = _MOST - len(found)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            level = list(pool.map(lambda place: _look(place[0], place[1], clones), places[:room]))
        found += level
        parents = [child for _, _, child in level if child is not None]
        if len(places) > room:
            return found, f"only the first {_MOST} submodules were read"
        if not parents:
            return found, ""
    return found, f"submodules more than {_DEEPEST} levels down were not read"


def _look(parent: _Parent, path: str, clones: Clones) -> _Found:
    chain, commit = (*parent.chain, path), parent.gitlinks[path]
    entry = parent.entries.get(path)
    name = "/".join(map(shown, chain))
    clones.services.report(SOURCE, name)
    known: dict[str, str] = {}
    trouble = asked = ""
    child = None
    try:
        if entry is None:
            raise AuditError(parent.trouble or ".gitmodules does not mention it")
        if not entry.url:
            raise AuditError(".gitmodules gives it no URL")
        address = parent.clone.address.resolve(entry.url)
        asked = shown(redact.address(address.text) if "://" in address.text else address.text)
        if entry.update.startswith("!"):
            raise AuditError(".gitmodules sets a command as its update: refused")
        clone = clones.reach(address)
        try:
            known = _described(clone, commit)
        except Absent:
            raise AuditError(f"{asked} does not have commit {commit[:12]} any more") from None
        if entry.update != "none":  # git leaves out what is below
            child = _parent(chain, clone, commit)
    except AuditError as error:
        trouble = shown(error.message)
    except Exception as error:  # a bug in one submodule must not cost the others
        trouble = shown(f"unexpected {type(error).__name__}: {error}")
    line = entry.line if entry is not None else None
    where = Where(
        file=_MODULES,
        line=line,
        url=parent.clone.address.page(parent.commit, _MODULES, line),
        commit=parent.commit,
        fetched=parent.clone.fetched,
    )
    fact = Submodule(name=name, where=where, trouble=trouble, commit=commit, address=asked)
    return chain, structs.replace(fact, **known), child


def _parent(
    chain: tuple[str, ...], clone: Clone, commit: str, held: Mapping[str, tuple[str, str]] | None = None
) -> _Parent:
    """Return a repository with its submodules; what its commit holds is asked for, unless it is known, where needed."""
    entries: Mapping[str, DeclaredSubmodule] = {}
    trouble = ""
    try:
        modules = clone.listing(commit, _MODULES) if held is None else held
        if _MODULES in modules:
            item = modules[_MODULES][1]
            entries = parse(clone.read([item]).get(item, b""))
            held = clone.listing(commit, *entries) if held is None and entries else held
    except AuditError as error:
        whose = f"submodules of {'/'.join(map(shown, chain))}" if chain else "the repository"
        trouble = f"{whose}: {shown(error.message)}"
    gitlinks = {path: item for path, (mode, item) in (held or {}).items() if mode == _GITLINK}
    return _Parent(
        chain=chain, clone=clone, commit=commit, gitlinks=gitlinks, entries=entries, trouble=trouble
    )
