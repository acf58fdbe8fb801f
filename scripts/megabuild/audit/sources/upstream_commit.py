"""The commit of upstream's tag, for recipes that take a commit from git instead of a release's archive."""

from __future__ import annotations

from megabuild.audit.facts import Outcome, TagCommit, Where
from megabuild.audit.request import Request


def read(request: Request) -> Outcome:
    """Return one fact. A local folder for upstream's files is not asked: it need not be a commit's."""
    target, tree = request.target, request.repository()
    where = Where(
        file=target.tag if target.tag == tree.commit else f"refs/tags/{target.tag}",
        url=tree.url("").replace(f"/blob/{tree.commit}", f"/tree/{tree.commit}").rstrip("/"),
        commit=tree.commit,
        fetched=tree.clone.fetched,
    )
    facts = (TagCommit(name=target.package, value=tree.commit, where=where),)
    return Outcome(source="upstream_commit", facts=facts)
