"""Branches and tags of a remote repository, as a fresh clone of it would have them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from megabuild.errors import AuditError

_LINE = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})\t(\S.*)")
_HEADS, _TAGS, _PEELED = "refs/heads/", "refs/tags/", "^{}"
# Names that git itself would not accept (git-check-ref-format(1)) can only come from a server that plays tricks.
_WRONG = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|//|/\.|\.lock(/|$)|@\{|/$|\.$")


@dataclass(frozen=True, kw_only=True)
class Tag:
    """One tag.

    Parameters
    ----------
    object:
        What it points to: a commit, or a tag object if it is annotated.
    commit:
        What that leads to in the end.
    """

    object: str
    commit: str

    @property
    def annotated(self) -> bool:
        """Whether there is a tag object, with a date and a message."""
        return self.object != self.commit


@dataclass(frozen=True, kw_only=True)
class Refs:
    """Branches and tags.

    Parameters
    ----------
    heads:
        Commits by branch.
    tags:
        By name.
    abilities:
        Of the server.
    """

    heads: Mapping[str, str]
    tags: Mapping[str, Tag]
    abilities: frozenset[str]

    @property
    def partial(self) -> bool:
        """Whether the server leaves out files on request, and serves any object by its hash."""
        return "filter" in self.abilities and (
            "version2" in self.abilities or "allow-reachable-sha1-in-want" in self.abilities
        )

    @property
    def annotated(self) -> bool:
        """Whether any tag is annotated."""
        return any(tag.annotated for tag in self.tags.values())


def misnamed(name: str) -> bool:
    """Return whether git would not accept a branch's or tag's name."""
    return _WRONG.search(name) is not None


def parse(text: str, abilities: frozenset[str]) -> Refs:
    """Read the output of ``git ls-remote --heads --tags``.

    Raises
    ------
    AuditError
        It makes no sense.
    """
    heads: dict[str, str] = {}
    objects: dict[str, str] = {}
    commits: dict[str, str] = {}
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        if found is None or misnamed(found[2].removesuffix(_PEELED)):
            raise AuditError("the server's list of branches and tags makes no sense")
        commit, name = found[1], found[2]
        if name.startswith(_HEADS):
            heads[name[len(_HEADS) :]] = commit
        elif name.endswith(_PEELED):
            commits[name[len(_TAGS) : -len(_PEELED)]] = commit
        elif name.startswith(_TAGS):
            objects[name[len(_TAGS) :]] = commit
    tags = {name: Tag(object=tag, commit=commits.get(name, tag)) for name, tag in objects.items()}
    return Refs(heads=heads, tags=tags, abilities=abilities)


def pack(text: str, abilities: frozenset[str]) -> bytes:
    """Return what goes into the cache."""
    return json.dumps({"refs": text, "abilities": sorted(abilities)}).encode()


def unpack(data: bytes) -> Refs:
    """Read what :func:`pack` made.

    Raises
    ------
    AuditError
        It makes no sense.
    """
    try:
        found = json.loads(data)
        return parse(str(found["refs"]), frozenset(map(str, found["abilities"])))
    except (ValueError, KeyError, TypeError):
        raise AuditError("the cached list of branches and tags makes no sense") from None
