"""The submodules that upstream vendors, recursively, described as ``git submodule status --recursive`` does.

Nothing is checked out: the parent's tree has a submodule's gitlink, the parent's .gitmodules its address, and a clone
without files its description.
"""

from __future__ import annotations

import configparser
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from groundwork import redact
from groundwork.errors import AuditError
from pin_audit.addresses import clean, parse_address
from pin_audit.facts import SourceOutcome, Submodule, TagCommit, Where
from pin_audit.repositories import Repositories, Repository, TreeEntry
from pin_audit.request import AuditRequest, Source

_AT_ONCE = 4
_DEEPEST = 8  # submodules of submodules of …; PyTorch has three levels
_MOST = 500  # PyTorch has about seventy
_MODULES = ".gitmodules"
_SUBMODULE = re.compile("submodule ", re.IGNORECASE)
_LARGEST = 1 << 20  # bytes of a .gitmodules; PyTorch's has five thousand


@dataclass(frozen=True, kw_only=True)
class DeclaredModule:
    """An entry of a .gitmodules."""

    url: str = ""
    update: str = ""  #: how git checks it out: ``none``, ``!command``
    line: int | None = None  #: of its header

    @property
    def is_ignored(self) -> bool:
        """Whether git leaves it and its own submodules out."""
        return self.update == "none"


_UNDECLARED = DeclaredModule()


@dataclass(frozen=True, kw_only=True)
class ParentRepository:
    """A repository that may have submodules, and what its commit declares."""

    chain: tuple[str, ...]  #: the paths of submodules from the top repository to this one
    repository: Repository
    commit: str
    gitlinks: Mapping[str, str] = field(default_factory=dict)
    declared: Mapping[str, DeclaredModule] = field(default_factory=dict)  #: by path
    trouble: str = ""  #: why its submodules are unknown


@dataclass(frozen=True, kw_only=True)
class Link:
    """A submodule of a parent, at a path."""

    parent: ParentRepository
    path: str

    @property
    def chain(self) -> tuple[str, ...]:
        """The paths from the top repository to this submodule."""
        return (*self.parent.chain, self.path)

    @property
    def commit(self) -> str:
        """The commit that the parent vendors."""
        return self.parent.gitlinks[self.path]

    @property
    def declared(self) -> DeclaredModule:
        """Its entry in the parent's .gitmodules."""
        return self.parent.declared.get(self.path, _UNDECLARED)


@dataclass(frozen=True, kw_only=True)
class FoundSubmodule:
    """A submodule, and its repository if that may have submodules."""

    chain: tuple[str, ...]
    fact: Submodule
    repository: ParentRepository | None


def read(request: AuditRequest) -> SourceOutcome:
    """Return every submodule of the target at its tag, in git's order; nested ones follow their parent."""
    top = request.repository()
    parents = [_parent((), top, top.commit)]
    troubles = {parents[0].trouble: None}
    found: list[FoundSubmodule] = []
    left_out = 0
    for _ in range(_DEEPEST):
        links: list[Link] = []
        for parent in parents:
            links += [Link(parent=parent, path=path) for path in parent.gitlinks]
        level = _look_up_all(links[: _MOST - len(found)], request.repositories)
        found += level
        left_out += len(links) - len(level)
        parents = [submodule.repository for submodule in level if submodule.repository is not None]
        troubles |= dict.fromkeys(parent.trouble for parent in parents)
    if left_out or any(parent.gitlinks for parent in parents):
        troubles[f"only the first {_MOST} submodules and {_DEEPEST} levels were read"] = None
    found.sort(key=lambda submodule: [part.encode(errors="surrogateescape") for part in submodule.chain])
    facts = tuple(submodule.fact for submodule in found)
    return SourceOutcome(facts=facts, trouble="; ".join(filter(None, troubles)))


def _look_up_all(links: Sequence[Link], repositories: Repositories) -> list[FoundSubmodule]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(partial(_look_up, repositories=repositories), links))


def read_commit(request: AuditRequest) -> SourceOutcome:
    """Return the commit of upstream's tag, for recipes that build from a commit instead of an archive."""
    target = request.target
    tree = request.repository()
    where = Where(
        file=target.tag if target.tag == tree.commit else f"refs/tags/{target.tag}",
        url=tree.url("").replace("/blob/", "/tree/").rstrip("/"),
        commit=tree.commit,
        fetched=tree.fetched,
    )
    fact = TagCommit(name=target.package, value=tree.commit, where=where)
    return SourceOutcome(facts=(fact,))


def parse_modules(content: bytes) -> dict[str, DeclaredModule]:
    """Return the entries of a .gitmodules by path; raises AuditError.

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
    modules: dict[str, DeclaredModule] = {}
    for name, options in sections:
        # as for git, case matters in the quoted name alone
        entry = {key.lower(): str(value) for key, value in options.items()}
        path = entry.get("path", "")
        climbs = ".." in re.split(r'[/\\"]', name)
        if not path or path.startswith("-") or climbs or not _SUBMODULE.match(name):
            continue
        modules[path] = DeclaredModule(
            url=entry.get("url", ""), update=entry.get("update", ""), line=_line_with(name, lines)
        )
    return modules


def _line_with(text: str, lines: Iterable[str]) -> int | None:
    """Return the number of the first line that contains a text."""
    for number, line in enumerate(lines, start=1):
        if text in line:
            return number
    return None


def _look_up(link: Link, repositories: Repositories) -> FoundSubmodule:
    parent = link.parent
    declared = link.declared
    name = _path(link.chain)
    repositories.services.report(name)
    value = ""
    trouble = ""
    asked = ""
    repository = None
    try:
        if not declared.url:
            raise AuditError(parent.trouble or ".gitmodules: no address for this submodule")
        if declared.update.startswith("!"):
            raise AuditError(".gitmodules refused: the submodule's update setting runs a command")
        asked = clean(redact.address(parse_address(declared.url, parent.repository.given)))
        own = repositories.open(declared.url, parent=parent.repository.given)
        value = own.describe(link.commit)
        if not declared.is_ignored:
            repository = _parent(link.chain, own, link.commit)
    except AuditError as error:
        trouble = clean(error.message)
    where = Where(
        file=_MODULES,
        line=declared.line,
        url=parent.repository.url(_MODULES, declared.line, parent.commit),
        commit=parent.commit,
        fetched=parent.repository.fetched,
    )
    fact = Submodule(name=name, value=value, where=where, trouble=trouble, commit=link.commit, address=asked)
    return FoundSubmodule(chain=link.chain, fact=fact, repository=repository)


def _path(chain: Iterable[str]) -> str:
    return "/".join(map(clean, chain))


def _parent(chain: tuple[str, ...], repository: Repository, commit: str) -> ParentRepository:
    """Read the submodules that a repository's commit declares; why that fails is in the trouble."""
    declared: Mapping[str, DeclaredModule] = {}
    files: Mapping[str, TreeEntry] = {}
    trouble = ""
    try:
        # only the top repository is listed as a whole: its gitlinks may lack an entry
        files = repository.listing(commit, _MODULES) if chain else repository.listing(commit)
        modules = files.get(_MODULES)
        if modules is not None:
            content = repository.contents([modules.hash])[modules.hash]
            declared = parse_modules(content)
            if chain and declared:
                files = repository.listing(commit, *declared)
    except AuditError as error:
        whose = f"submodules of {_path(chain)}" if chain else "the repository"
        trouble = f"{whose}: {clean(error.message)}"
    return ParentRepository(
        chain=chain,
        repository=repository,
        commit=commit,
        gitlinks={path: entry.hash for path, entry in files.items() if entry.is_submodule},
        declared=declared,
        trouble=trouble,
    )


SOURCES = {"submodules": Source(read=read), "upstream_commit": Source(read=read_commit)}
