"""A commit's description as ``git submodule status`` prints it, from as little of the history as tells it.

git tries four ways in turn (compute_rev_name() in git's builtin/submodule--helper.c): ``git describe``, ``--tags``,
``--contains``, ``--all --always``. The same git is run here over a view that has what a fresh clone would have, first
with the commit alone, which is enough where a tag points to it, then with more and more of its ancestors. A
description counts only if git has not walked into the end of what is there, so it is the one that the whole history
gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from megabuild.audit.git.partial import ALL, Absent, Refused, Spoilt, Store
from megabuild.audit.git.remote import Refs
from megabuild.audit.git.view import View, view
from megabuild.errors import AuditError

_DEPTHS = (250, 1000, 4000, ALL)  # generations from the commit
_FALLBACK = 7  # FALLBACK_DEFAULT_ABBREV in git's environment.h


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a commit is called.

    Parameters
    ----------
    text:
        ``v2.1.0-705-ga6bfc23``, ``heads/main``, a short hash.
    note:
        What is not certain about it; empty otherwise.
    """

    text: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Clone:
    """What a fresh clone of the repository has, beside its history.

    Parameters
    ----------
    refs:
        Branches and tags.
    default:
        Asks for the branch that HEAD names; an empty string if it names none.
    objects:
        Asks for the number of objects, on which the length of short hashes depends.
    tip:
        The one commit that a shallow clone begins with; empty for a whole one.
    """

    refs: Refs
    default: Callable[[], str]
    objects: Callable[[], int]
    tip: str = ""


def describe(store: Store, clone: Clone, commit: str) -> Description:
    """Describe a commit, fetching what is needed; called with the store held.

    Raises
    ------
    Absent
        The repository does not have the commit (any more).
    AuditError
        The server refuses, or does not answer.
    """
    with view(store, commit) as shown:
        history = _History(store, clone.refs, commit, shown)
        if clone.tip:
            history.end_at(clone.tip)
        text = _text(history, clone)
        if commit not in text:
            return Description(text=text)
        note = ""
        try:
            length = short(clone.objects())
        except AuditError as error:
            length, note = _FALLBACK, f"the hash may be longer in a clone ({error.message})"
        answer = shown.git(["rev-parse", f"--short={length}", commit])
        brief = answer.out.decode(errors="replace").strip() or commit[:length]
        return Description(text=text.replace(commit, brief), note=note or history.note)


def short(objects: int) -> int:
    """Return how many digits git gives a short hash in a repository with so many objects.

    Half as many hex digits as the number has bits, at least seven (repo_find_unique_abbrev_r() in git's
    object-name.c).
    """
    return max(_FALLBACK, (objects.bit_length() + 1) // 2)


def ensure(store: Store, shown: View, commit: str, also: Sequence[str] = (), depth: int = 1) -> None:
    """Fetch a commit unless it is kept; called with the store held.

    Parameters
    ----------
    also:
        Further objects to fetch along with it.
    depth:
        1 without its ancestors, 2 with its parents, and so on.

    Raises
    ------
    Absent
        The repository does not have it (any more).
    """
    if not shown.missing([commit]):
        return
    try:
        store.fetch([f"{commit}:refs/audit/{commit}", *also], depth=depth)
    except Refused:
        if store.filtered:
            raise
        _everything(store)
    if shown.missing([commit]):
        raise Absent(f"it has no commit {commit}")


def _text(history: _History, clone: Clone) -> str:
    refs = clone.refs
    text = history.say() if refs.annotated else None
    if text is None and refs.tags:
        text = history.say("--tags")
    if text is None and refs.tags:
        if not clone.tip:
            history.fetch_tags()
        text = history.say("--contains")
    if text is None:
        history.default = clone.default()
        text = history.say("--all", "--always")
    if text is None:
        raise AuditError("git cannot describe the commit")
    return text


def _everything(store: Store) -> None:
    """Fetch all branches and tags, for servers that give out nothing else."""
    wanted = ["+refs/heads/*:refs/audit/heads/*", "+refs/tags/*:refs/audit/tags/*"]
    store.fetch(wanted, depth=ALL if (store.folder / "shallow").exists() else None)


class _History:
    """As much of a commit's history as has been needed so far."""

    def __init__(self, store: Store, refs: Refs, commit: str, shown: View) -> None:
        self.default = ""
        self.note = ""
        self._store, self._refs, self._commit, self._view = store, refs, commit, shown
        self._depths = list(_DEPTHS)
        here = [tag.object for tag in refs.tags.values() if tag.commit == commit]
        alone = here or (not refs.tags and commit in refs.heads.values())
        ensure(store, shown, commit, here, 1 if alone else self._depths.pop(0))

    def say(self, *mode: str) -> str | None:
        """Return what ``git describe`` says in one of its ways, or None where it has no answer."""
        while True:
            self._put()
            said = self._view.say(["describe", *mode, self._commit])
            # Where no tag is known yet, git gives up, or names the hash, without looking at the history at all.
            named = said.text is not None and said.text != self._commit
            if not said.cut and (named or self._view.whole(self._commit)):
                return said.text
            self._deepen()

    def end_at(self, commit: str) -> None:
        """Leave out the commit's ancestors."""
        self._view.cut([commit])

    def fetch_tags(self) -> None:
        """Fetch the histories of all tags: the commit may be older than they are."""
        if self._view.missing({tag.commit for tag in self._refs.tags.values()}):
            self._store.fetch(["+refs/tags/*:refs/audit/tags/*"], depth=ALL)

    def _deepen(self) -> None:
        if not self._depths:
            # Everything that the server has is here: it is itself a shallow clone, as a clone of it would be.
            shallow = self._store.folder / "shallow"
            if self.note or not shallow.is_file():
                raise Spoilt("the kept history of the commit has gaps")
            self.note = "the server has only a part of the history"
            self._view.cut(shallow.read_text(encoding="ascii").split())
            return
        depth = self._depths.pop(0)
        try:
            self._store.fetch([f"{self._commit}:refs/audit/{self._commit}"], depth=depth)
        except Refused:
            if self._store.filtered:
                raise
            _everything(self._store)

    def _put(self) -> None:
        tags = self._refs.tags.values()
        hashes = {*self._refs.heads.values(), *(tag.object for tag in tags), *(tag.commit for tag in tags)}
        missing = self._view.missing(hashes)
        wanted = [tag.object for tag in tags if tag.object in missing and tag.commit not in missing]
        if wanted:
            self._store.fetch(wanted)
            missing = self._view.missing(hashes)
        self._view.put(self._refs, missing, self.default)


def shallow_clone(clone: Clone, default: str) -> Clone:
    """Return what a clone with a depth of 1 has: the branch that HEAD names, and the tags on its tip."""
    tip = clone.refs.heads.get(default, "")
    tags = {name: tag for name, tag in clone.refs.tags.items() if tag.commit == tip}
    heads = {default: tip} if tip else {}
    return replace(clone, refs=replace(clone.refs, heads=heads, tags=tags), tip=tip)
