"""The commit of upstream's tag, for recipes that take a commit from git instead of a release's archive."""

from __future__ import annotations

from megabuild.audit.git.tree import GitTree, open_tree
from megabuild.audit.model import Finding, Kind, Origin, Outcome
from megabuild.audit.request import Request
from megabuild.errors import AuditError

SOURCE = "upstream_commit"


def read(request: Request) -> Outcome:
    """Return one finding. A local folder for upstream's files is not asked: it need not be a commit's."""
    target = request.target
    try:
        tree = request.tree() if request.local.tree is None else None
        if not isinstance(tree, GitTree):
            tree = open_tree(target, request.services)
    except AuditError as error:
        return Outcome(source=SOURCE, trouble=error.message)
    commit = tree.commit
    origin = Origin(
        file=target.tag if target.tag == commit else f"refs/tags/{target.tag}",
        url=tree.url("").replace(f"/blob/{commit}", f"/tree/{commit}").rstrip("/"),
        commit=commit,
        fetched=tree.repository.fetched,
    )
    return Outcome(
        source=SOURCE,
        findings=(Finding(name=target.package, kind=Kind.COMMIT, value=commit, origin=origin),),
    )
