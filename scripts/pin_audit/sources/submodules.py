"""The submodules that upstream vendors, recursively, described as ``git submodule status --recursive`` does.

Nothing is checked out: the parent's tree has a submodule's gitlink, the parent's .gitmodules its address, and a clone
without files its description.
"""

from __future__ import annotations

import configparser
import re
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from groundwork import redact
from groundwork.errors import AuditError
from pin_audit.facts import SourceOutcome, Submodule, TagCommit, Where
from pin_audit.repositories import Repositories, Repository, clean, parse_address
from pin_audit.request import AuditRequest, Source

_AT_ONCE = 4
_DEEPEST = 8  # submodules of submodules of …; PyTorch has three levels
_MOST = 500  # PyTorch has about seventy
_MODULES = ".gitmodules"
_LARGEST = 1 << 20  # bytes of a .gitmodules; PyTorch's has five thousand


class ParentRepository(NamedTuple):
    """A repository that may have submodules, and what its commit declares."""

    chain: tuple[str, ...]  #: the paths of submodules from the top repository to this one
    repository: Repository
    commit: str
    gitlinks: Mapping[str, str]
    declared: Mapping[str, Mapping[str, str]]  #: by path
    trouble: str  #: why its submodules are unknown


def read(request: AuditRequest) -> SourceOutcome:
    """Return every submodule of the target at its tag, in git's order; nested ones follow their parent."""
    top = request.repository()
    parents = [_parent((), top, top.commit)]
    troubles = dict.fromkeys([parents[0].trouble])
    found: list[tuple[tuple[str, ...], Submodule]] = []
    for _ in range(_DEEPEST):
        links = [(parent, path) for parent in parents for path in parent.gitlinks][: _MOST - len(found)]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            level = list(pool.map(lambda link: _look_up(link[0], link[1], request.repositories), links))
        found += [(chain, fact) for chain, fact, _ in level]
        parents = [child for *_, child in level if child is not None]
        troubles |= dict.fromkeys(child.trouble for child in parents)
    if len(found) == _MOST or any(parent.gitlinks for parent in parents):
        troubles[f"only the first {_MOST} submodules and {_DEEPEST} levels were read"] = None
    found.sort(key=lambda item: [part.encode(errors="surrogateescape") for part in item[0]])
    facts = tuple(fact for _, fact in found)
    return SourceOutcome(facts=facts, trouble="; ".join(filter(None, troubles)))


def read_commit(request: AuditRequest) -> SourceOutcome:
    """Return the commit of upstream's tag, for recipes that build from a commit instead of an archive."""
    target, tree = request.target, request.repository()
    where = Where(
        file=target.tag if target.tag == tree.commit else f"refs/tags/{target.tag}",
        url=tree.url("").replace("/blob/", "/tree/").rstrip("/"),
        commit=tree.commit,
        fetched=tree.fetched,
    )
    fact = TagCommit(name=target.package, value=tree.commit, where=where)
    return SourceOutcome(facts=(fact,))


def parse_modules(content: bytes) -> dict[str, dict[str, str]]:
    """Return the entries of a .gitmodules by path, each with the line of its header; raises AuditError.

    Left out are entries that git ignores: without a path, with ``..`` in the name (CVE-2018-11235), or with a path that
    starts with a dash (CVE-2018-17456).
    """
    from git.config import GitConfigParser

    if len(content) > _LARGEST:
        raise AuditError(f".gitmodules refused: {len(content)} bytes, at most {_LARGEST}")
    try:
        with tempfile.NamedTemporaryFile(prefix="megabuild-audit-") as file:
            file.write(content)
            file.flush()
            parser = GitConfigParser(file.name, read_only=True, merge_includes=False)
            sections = [(name, dict(parser.items(name))) for name in parser.sections()]
    except (configparser.Error, UnicodeError, ValueError) as error:
        raise AuditError(f".gitmodules: cannot be parsed: {type(error).__name__}") from error
    lines = content.decode(errors="replace").splitlines()
    modules: dict[str, dict[str, str]] = {}
    for name, options in sections:
        # as for git, case matters in the quoted name alone
        entry = {key.lower(): str(value) for key, value in options.items()}
        path = entry.get("path", "")
        climbs = ".." in re.split(r'[/\\"]', name)
        if re.match("submodule ", name, re.IGNORECASE) and not climbs and path and path[0] != "-":
            number = next((number for number, line in enumerate(lines, 1) if name in line), "")
            modules[path] = {**entry, "line": str(number)}
    return modules


def _look_up(
    parent: ParentRepository, path: str, repositories: Repositories
) -> tuple[tuple[str, ...], Submodule, ParentRepository | None]:
    chain, commit = (*parent.chain, path), parent.gitlinks[path]
    entry = parent.declared.get(path, {})
    name, above = "/".join(map(clean, chain)), parent.repository
    repositories.services.report(name)
    value = trouble = asked = ""
    child = None
    try:
        if not entry.get("url"):
            raise AuditError(parent.trouble or ".gitmodules: no address for this submodule")
        if entry.get("update", "").startswith("!"):
            raise AuditError(".gitmodules refused: the submodule's update setting runs a command")
        asked = clean(redact.address(parse_address(entry["url"], above.given)))
        repository = repositories.open(entry["url"], parent=above.given)
        value = repository.describe(commit)
        if entry.get("update") != "none":  # git ignores nested submodules here
            child = _parent(chain, repository, commit)
    except AuditError as error:
        trouble = clean(error.message)
    line = int(entry["line"]) if entry.get("line") else None
    url = above.url(_MODULES, line, parent.commit)
    where = Where(file=_MODULES, line=line, url=url, commit=parent.commit, fetched=above.fetched)
    fact = Submodule(name=name, value=value, where=where, trouble=trouble, commit=commit, address=asked)
    return chain, fact, child


def _parent(chain: tuple[str, ...], repository: Repository, commit: str) -> ParentRepository:
    declared: dict[str, dict[str, str]] = {}
    held: Mapping[str, tuple[str, str]] = {}
    trouble = ""
    try:
        held = repository.listing(commit, *([_MODULES] if chain else []))
        if _MODULES in held:
            item = held[_MODULES][1]
            declared = parse_modules(repository.contents([item])[item])
            held = repository.listing(commit, *declared) if chain and declared else held
    except AuditError as error:
        whose = f"submodules of {'/'.join(map(clean, chain))}" if chain else "the repository"
        trouble = f"{whose}: {clean(error.message)}"
    gitlinks = {path: item for path, (mode, item) in held.items() if mode == "160000"}
    return ParentRepository(chain, repository, commit, gitlinks, declared, trouble)


SOURCES = {"submodules": Source(read=read), "upstream_commit": Source(read=read_commit)}
