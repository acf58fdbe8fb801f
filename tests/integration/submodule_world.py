"""A superproject with a submodule for each way in which git can describe a commit, and the audit of such ones."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from git_world import Repo, git, modules, status

from pin_audit.facts import AuditTarget, SourceOutcome, Submodule
from pin_audit.gather import outcome_of
from pin_audit.request import AuditRequest
from pin_audit.services import Services
from pin_audit.sources import submodules
from pin_audit.trees import open_tree


@dataclass(frozen=True)
class World:
    """A superproject ``super.git`` with the tag v1, and its submodules beside it."""

    folder: Path
    good: tuple[str, ...]  #: paths that git can update


def target(repository: str, tag: str = "v1") -> AuditTarget:
    """Return a target with nothing but a repository and a tag."""
    return AuditTarget(package="p", version="1", repository=repository, tag=tag, wheel="", builds=())


def audit(
    repository: str,
    cache: Path,
    *,
    tag: str = "v1",
    seconds: float = 120.0,
    offline: bool = False,
    max_age: float = 3600.0,
    reports: list[str] | None = None,
) -> SourceOutcome:
    """Read the submodules of a repository; what is told meanwhile goes into ``reports``."""
    told: list[str] = [] if reports is None else reports
    services = Services(
        cache, seconds=seconds, offline=offline, max_age=max_age, report=lambda _, text: told.append(text)
    )
    wanted = target(repository, tag)
    request = AuditRequest(
        target=wanted,
        services=services,
        repository=lambda: open_tree(wanted, services),
        configs=(),
        root=cache,
    )
    return outcome_of(request, "submodules", submodules.read)


def described(outcome: SourceOutcome) -> dict[str, str]:
    """Return "commit description" by path, as far as there are descriptions."""
    return {
        one.name: f"{one.commit} {one.value}"
        for one in outcome.facts
        if isinstance(one, Submodule) and one.value
    }


def finding(outcome: SourceOutcome, name: str) -> Submodule:
    """Return the finding of one path."""
    return next(one for one in outcome.facts if isinstance(one, Submodule) and one.name == name)


def build(folder: Path) -> World:
    """Make the repositories: each submodule is one of the ways in which git can describe a commit."""
    commits: dict[str, str] = {}

    def keep(path: str, repo: Repo, mark: int) -> Mapping[int, str]:
        made = repo.make()
        commits[path] = made[mark]
        return made

    repo = Repo(folder / "after.git")  # some commits after an annotated tag, with a nearer lightweight one
    repo.tag("v1.0", repo.commits(3), annotated=True)
    repo.tag("light", repo.commits(2))
    keep("lib/after", repo, repo.commits(2))

    repo = Repo(folder / "several.git")  # several tags on one commit
    mark = repo.commits(2)
    repo.tag("a-early", mark, annotated=True)
    repo.tag("b-late", mark, annotated=True, late=500)
    repo.tag("c-early", mark, annotated=True, late=100)
    repo.tag("zz-light", mark)
    repo.commits(2)
    keep("lib/several", repo, mark)

    repo = Repo(folder / "light.git")  # lightweight tags only, several on one commit, and a merged branch
    mark = repo.commits(3)
    repo.tag("1.1", mark)
    repo.tag("1.1.post", mark)
    side = repo.commit("side", parents=[mark])
    keep("lib/light", repo, repo.commit(parents=[repo.commits(2), side]))

    repo = Repo(folder / "exact.git")  # exactly a lightweight tag, where annotated ones exist elsewhere
    repo.tag("v0.1", repo.commits(2), annotated=True)
    mark = repo.commits(2)
    repo.tag("v0.2", mark)
    keep("lib/exact", repo, mark)

    repo = Repo(folder / "before.git")  # before any tag, on a branch that was merged later
    first = repo.commits(2)
    mark = repo.commit("side", parents=[first])
    merged = repo.commit(parents=[repo.commits(3), repo.commit("side", parents=[mark])])
    repo.tag("v1.0", merged, annotated=True)
    repo.tag("v1.1", repo.commits(2))
    keep("lib/before", repo, mark)

    repo = Repo(folder / "tip.git")  # no tags, at the tip of the branch that HEAD names
    repo.commits(2)
    repo.commit("other", parents=[1])
    keep("lib/tip", repo, 2)

    repo = Repo(folder / "branch.git")  # no tags, after another branch's tip
    old = repo.commits(2)
    repo.commit("old/line", parents=[old])
    mark = repo.commit("work", parents=[repo.count])
    repo.commit("work")
    keep("lib/branch", repo, mark)

    repo = Repo(folder / "behind.git")  # no tags, behind every branch
    mark = repo.commits(2)
    repo.commits(2)
    keep("lib/behind", repo, mark)

    repo = Repo(folder / "rewritten.git")  # history rewritten: no branch leads to the commit any more
    base = repo.commits(2)
    repo.tag("v3", base, annotated=True)
    mark = repo.commits(2)
    made = keep("lib/rewritten", repo, mark)
    git("update-ref", "refs/heads/main", made[base], cwd=repo.path)
    git("config", "uploadpack.allowAnySHA1InWant", "true", cwd=repo.path)

    repo = Repo(folder / "deep.git")  # far from its tag
    repo.tag("v0.1", repo.commits(2), annotated=True)
    keep("lib/deep", repo, repo.commits(1300))

    repo = Repo(folder / "wide.git")  # near its tag by one way, with a long other way to be counted
    start = repo.commits(2)
    repo.tag("v0.9", start, annotated=True)
    side = repo.commit("side", parents=[start])
    repo.commit(parents=[repo.commits(400), side])
    keep("lib/wide", repo, repo.commits(5))

    repo = Repo(folder / "large.git")  # so many objects that short hashes are longer
    repo.tag(
        "v1", repo.commit(files={f"d{n % 50}/{n}": str(n).encode() for n in range(17_000)}), annotated=True
    )
    keep("lib/large", repo, repo.commit(removed=[f"d{n}" for n in range(50)]))

    repo = Repo(folder / "leaf.git")
    repo.tag("0.1", repo.commits(2))
    keep("leaf", repo, repo.commits(1))

    repo = Repo(folder / "inner.git")  # with submodules itself, by relative address, and one more level
    repo.tag("in-1", repo.commits(1), annotated=True)
    leaf = {"deps/leaf": commits.pop("leaf"), "deps-other": commits["lib/light"]}
    texts = modules({"deps/leaf": "../leaf.git", "deps-other": "./../light.git/"})
    keep("inner", repo, repo.commit(files={".gitmodules": texts, "deps.txt": b"x"}, gitlinks=leaf))

    repo = Repo(folder / "outer.git")
    texts = modules({"inner": "../inner.git"})
    mark = repo.commit(files={".gitmodules": texts}, gitlinks={"inner": commits.pop("inner")})
    repo.tag("out-1", mark)
    keep("lib/outer", repo, mark)

    repo = Repo(folder / "third.git")  # another superproject, three levels deep
    texts = modules({"deps/outer": "../outer.git", "deps/light": "../light.git"})
    links = {"deps/outer": commits["lib/outer"], "deps/light": commits["lib/light"]}
    repo.tag("2024.1", repo.commit(files={".gitmodules": texts}, gitlinks=links))
    repo.make()

    urls = {path: f"../{path.removeprefix('lib/')}.git" for path in commits}
    repo = Repo(folder / "super.git")
    repo.tag("v1", repo.commit(files={".gitmodules": modules(urls)}, gitlinks=commits), annotated=True)
    repo.make()
    return World(folder=folder, good=tuple(sorted(commits)))


@dataclass(frozen=True)
class Pair:
    """A superproject with the tag v1 and its one submodule, ``lib``."""

    folder: Path
    lib: Path
    made: Mapping[int, str]

    @property
    def url(self) -> str:
        """The superproject's address."""
        return f"file://{self.folder}/super.git"

    def truth(self) -> dict[str, str]:
        """Return what git says."""
        with tempfile.TemporaryDirectory(dir=self.folder) as temporary:
            return status(self.url, "v1", Path(temporary), ["lib"])


def pair(folder: Path, repo: Repo, mark: int, more: str = "") -> Pair:
    """Make a submodule and the superproject that has one of its commits."""
    made = repo.make()
    git("config", "uploadpack.allowAnySHA1InWant", "true", cwd=repo.path)
    texts = modules({"lib": f"../{repo.name}"}, more)
    top = Repo(folder / "super.git")
    top.tag("v1", top.commit(files={".gitmodules": texts}, gitlinks={"lib": made[mark]}))
    top.make()
    return Pair(folder=folder, lib=repo.path, made=made)
