"""Branches and tags as a server lists them."""

from __future__ import annotations

import pytest

from megabuild.audit.git.describe import short
from megabuild.audit.git.remote import Tag, misnamed, pack, parse, unpack
from megabuild.errors import AuditError

_A, _B = "a" * 40, "b" * 40
_NEW = frozenset({"version2", "shallow", "filter"})


def test_annotated_tags_lead_to_their_commits() -> None:
    refs = parse(
        f"{_A}\trefs/heads/x/y\n{_A}\trefs/tags/v1\n{_B}\trefs/tags/v1^{{}}\n{_B}\trefs/tags/l\n", _NEW
    )
    assert refs.heads == {"x/y": _A}
    assert refs.tags == {"v1": Tag(object=_A, commit=_B), "l": Tag(object=_B, commit=_B)}
    assert refs.tags["v1"].annotated
    assert not refs.tags["l"].annotated
    assert refs.annotated


@pytest.mark.parametrize(
    ("abilities", "partial"),
    [
        ({"version2", "shallow", "filter"}, True),
        ({"version2", "shallow"}, False),
        ({"filter"}, False),
        ({"filter", "allow-reachable-sha1-in-want"}, True),
    ],
)
def test_only_servers_that_filter_and_serve_hashes_are_asked_in_part(
    abilities: set[str], partial: bool
) -> None:
    assert parse("", frozenset(abilities)).partial is partial


@pytest.mark.parametrize(
    "text",
    [
        "<html>\n",
        f"{_A} refs/heads/main\n",
        f"{_A}\trefs/heads/../../config\n",
        f"{_A}\trefs/heads/a\x1b[2J\n",
        f"{_A}\trefs/tags/x.lock\n",
        f"{_A[:-1]}\trefs/heads/main\n",
    ],
)
def test_lists_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(AuditError, match="makes no sense"):
        parse(text, _NEW)


def test_what_is_cached_comes_back() -> None:
    text = f"{_A}\trefs/heads/main\n"
    assert unpack(pack(text, _NEW)) == parse(text, _NEW)
    for spoilt in (b"", b"[]", b'{"refs": 1}', b"\xff"):
        with pytest.raises(AuditError, match="makes no sense"):
            unpack(spoilt)


def test_tag_names_that_git_refuses_are_known() -> None:
    assert misnamed("refs/tags/a..b")
    assert misnamed("refs/tags/a:refs/heads/b")
    assert not misnamed("refs/tags/v2.13.0-rc1+cu130")


@pytest.mark.parametrize(
    ("objects", "digits"), [(0, 7), (16_383, 7), (16_384, 8), (65_535, 8), (329_246, 10), (1_048_576, 11)]
)
def test_short_hashes_grow_with_the_repository(objects: int, digits: int) -> None:
    assert short(objects) == digits
