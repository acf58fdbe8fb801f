"""The commit of upstream's tag, for recipes that take a commit from git instead of a release's archive."""

from __future__ import annotations

from megabuild.audit.facts import Outcome, TagCommit, Where
from megabuild.audit.request import Request
from megabuild.audit.trees import GitTree, open_tree
from megabuild.errors import AuditError

SOURCE = "upstream_commit"


def read(request: Request) -> Outcome:
    """Return one fact. A local folder for upstream's files is not asked: it need not be a commit's."""
    target = request.target
    try:
        tree = request.tree() if request.local.tree is None else None
        if not isinstance(tree, GitTree):
            tree = open_tree(target, request.services)
    except AuditError as error:
        return Outcome(source=SOURCE, trouble=error.message)
    commit = tree.commit
    where = Where(
        file=target.tag if target.tag == commit else f"refs/tags/{target.tag}",
        url=tree.url("").replace(f"/blob/{commit}", f"/tree/{commit}").rstrip("/"),
        commit=commit,
        fetched=tree.clone.fetched,
    )
    return Outcome(source=SOURCE, facts=(TagCommit(name=target.package, value=commit, where=where),))
