"""Facts as they are committed: what a snapshot stands in for, and what writing one keeps."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from audit_samples import target
from msgspec import structs
from small_files import write

from groundwork.errors import AuditError
from pin_audit import command, snapshots
from pin_audit.facts import Newest, SourceOutcome, Submodule, Where
from pin_audit.run_sources import is_stale
from pin_audit.snapshots import Snapshot, fill, load, of, save

DAY = "2026-11-23T00:00:00+00:00"


def submodule(name: str, value: str = "", trouble: str = "", day: str = DAY) -> Submodule:
    where = Where(
        file=".gitmodules", commit="c" * 40, fetched=day, inferred="" if trouble else "as in 2.12.0"
    )
    return Submodule(name=name, value=value, trouble=trouble, where=where)


def outcome(*facts: Submodule, trouble: str = "") -> SourceOutcome:
    return SourceOutcome(source="submodules", facts=facts, trouble=trouble)


def snapshot(*facts: Submodule) -> Snapshot:
    return Snapshot(package="pytorch", version="2.13.0", made=DAY, sources=(outcome(*facts),))


def test_a_snapshot_is_read_as_it_was_written_one_fact_a_line(tmp_path: Path) -> None:
    made = snapshot(submodule("third_party/fmt", "v12"), submodule("third_party/gloo", "g1"))
    path = save(made, tmp_path)
    assert load("pytorch", "2.13.0", tmp_path) == made
    assert sum('"third_party/' in line for line in path.read_text(encoding="utf-8").splitlines()) == 2


def test_a_source_that_was_not_read_is_the_snapshots() -> None:
    held = submodule("third_party/fmt", "v12")
    filled = fill(outcome(trouble="no network"), [None, snapshot(held)])
    assert filled.facts == (held,)
    assert filled.trouble.startswith("no network; ")
    assert "2026-11-23" in filled.trouble
    assert (filled.unread, filled.snapshot) == (False, "2026-11-23")
    # of the channel, which changes, a gate needs a newer look
    assert is_stale(SourceOutcome(source="channel", facts=(held,), snapshot="2026-11-23"))
    assert not is_stale(SourceOutcome(source="recipe_pins", trouble="no recipe")), "no network is needed"
    assert not is_stale(SourceOutcome(source="upstream_archs", trouble="not for it", applies=False))


@pytest.mark.parametrize(("days", "told"), [
    ([DAY, "2026-11-20T00:00:00+00:00", ""], "from 2026-11-20 to 2026-11-23"), ([DAY, DAY], "on 2026-11-23"),
    (["", ""], "on 2026-12-01"),
])  # fmt: skip
def test_the_days_of_a_snapshot_are_its_facts(days: Sequence[str], told: str) -> None:
    facts = [submodule(f"a{number}", "v1", day=day) for number, day in enumerate(days)]
    made = structs.replace(snapshot(*facts), made="2026-12-01T00:00:00+00:00")
    assert fill(outcome(trouble="--offline"), [made]).trouble == f"using the snapshot read {told}"


def test_only_what_was_not_read_is_the_snapshots_with_what_lies_below_it() -> None:
    live = (
        submodule("a", "v2"),
        submodule("b", trouble="gone"),
        submodule("bc", "v1"),
        submodule("new", trouble="gone"),
    )
    held = (submodule("a", "v1"), submodule("b", "v3"), submodule("b/deep", "v4"), submodule("bc", "v0"))
    filled = fill(outcome(*live), [snapshot(*held)])
    assert {one.name: one.value for one in filled.facts} == {
        "a": "v2", "bc": "v1", "b": "v3", "b/deep": "v4", "new": "",
    }  # fmt: skip
    assert (filled.missing, filled.snapshot) == ({"new"}, "")


def test_writing_keeps_what_could_not_be_read_this_time(tmp_path: Path) -> None:
    save(snapshot(submodule("a", "v1"), submodule("b", "v1")), tmp_path)
    save(
        snapshot(submodule("a", "v2"), *(submodule(name, trouble="gone") for name in ("b", "new"))), tmp_path
    )
    save(Snapshot(package="pytorch", version="2.13.0", made=DAY, sources=(outcome(trouble="no"),)), tmp_path)
    save(Snapshot(package="pytorch", version="2.13.0", made=DAY, sources=()), tmp_path)
    again = load("pytorch", "2.13.0", tmp_path)
    assert again is not None
    assert {one.name: one.value for one in again.sources[0].facts} == {"a": "v2", "b": "v1"}


@pytest.mark.parametrize("content", ["", "[]", '{"format": "x", "format_version": 1}', '{"packages": 1}'])
def test_a_broken_snapshot_is_a_sentence(content: str, tmp_path: Path) -> None:
    folder = tmp_path / "my releases"
    write(folder / "pytorch-2.13.0.json", content)
    with pytest.raises(AuditError, match="not a snapshot") as broken:
        load("pytorch", "2.13.0", folder)
    words = ["git", "-C", str(folder), "checkout", "--", "pytorch-2.13.0.json"]  # from any folder
    assert shlex.split(broken.value.remedy.removeprefix("run: ")) == words


@pytest.mark.parametrize(
    "change", [{"version": "2.12.0"}, {"package": "torch"}, {"format": "x"}, {"format_version": 2}]
)
def test_a_snapshot_of_something_else_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    path = save(snapshot(submodule("a", "v1")), tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(AuditError, match="not a snapshot: it describes"):
        load("pytorch", "2.13.0", tmp_path)


def test_a_version_that_is_a_path_has_no_snapshot(tmp_path: Path) -> None:
    (tmp_path / "pytorch-1.json").write_text("{}", encoding="utf-8")
    assert load("pytorch", "../pytorch-1", tmp_path) is None


def test_what_was_read_goes_into_the_files_of_release_and_channel() -> None:
    newest = SourceOutcome(source="channel", facts=(Newest(name="fmt", value="12.1.0"),))
    unread = SourceOutcome(source="pinning", trouble="no network")
    found = list(of(target(), [outcome(submodule("a", "v1")), newest, unread], DAY))
    assert [(one.package, one.version, [read.source for read in one.sources]) for one in found] == [
        ("pytorch", "2.13.0", ["submodules"]),
        ("conda-forge", "", ["channel"]),
    ]


def test_of_a_release_that_was_read_in_part_the_snapshot_has_the_whole() -> None:
    """Of the channel, which changes, it has only what is missing."""
    part = outcome(submodule("a", "v1"), trouble="macosx: no answer")
    assert {one.name for one in fill(part, [snapshot(submodule("b", "v1"))]).facts} == {"b"}
    channel = SourceOutcome(
        source="channel", facts=(Newest(name="fmt", value="12"),), trouble="osx: no answer"
    )
    old = SourceOutcome(source="channel", facts=(Newest(name="fmt", value="11"),))
    assert fill(channel, [Snapshot(package="conda-forge", version="", made=DAY, sources=(old,))]) is channel


@pytest.mark.parametrize("known", [True, False])
def test_a_snapshot_replaces_only_releases_of_the_known_repositories(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = snapshot(submodule("a", "v1"))
    monkeypatch.setattr(command, "is_known", lambda _: known)
    monkeypatch.setattr(snapshots, "load", lambda _, version: held if version else None)
    asked = SimpleNamespace(target=SimpleNamespace(package="pytorch", version="2.13.0"), local_tree=None)
    (filled,) = command._fill([outcome(trouble="no network")], cast(Any, asked))
    assert bool(filled.facts) is known


@pytest.mark.parametrize("facts", [(submodule("a", "v1"),), ()], ids=["facts", "none"])
@pytest.mark.parametrize("trouble", ["", "one file is missing"])
def test_facts_of_local_files_are_marked_and_not_replaced(
    trouble: str, facts: Sequence[Submodule], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SimpleNamespace(local_files=lambda _: Path("/local"))
    monkeypatch.setattr(command, "SOURCES", {"submodules": source})
    monkeypatch.setattr(command, "is_known", lambda _: True)
    asked = SimpleNamespace(target=SimpleNamespace(package="pytorch", version="2.13.0"))
    found = outcome(*facts, trouble=trouble)
    (filled,) = command._fill([found], cast(Any, asked))
    assert filled.facts == found.facts
    assert filled.trouble == "; ".join(filter(None, [trouble, "read from local files, not the release"]))
