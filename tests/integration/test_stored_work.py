"""Finished work from a store: a folder, a real nginx, and what happens where it is damaged, gone, or not trusted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from shared_servers import Server, end, running
from tiny import Tiny, make_channel, provider

from megabuild.plan import planning
from megabuild.store import server


@pytest.fixture
def channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CPU_COUNT", "MAX_JOBS", "MEGABUILD_CACHE", "TORCH_CCACHE"):
        monkeypatch.delenv(name, raising=False)
    made = make_channel(tmp_path / "channel")
    monkeypatch.setattr(planning, "choose_provider", provider(made))
    monkeypatch.setenv(server.STORE, str(tmp_path / "store"))
    return made


def packages(tiny: Tiny) -> dict[str, bytes]:
    """The published packages' bytes."""
    return {path.name: path.read_bytes() for path in tiny.options().packages.glob("*/*.conda")}


def compiled(tiny: Tiny) -> list[str]:
    """For which Pythons the last run has built something, or what else."""
    return [text.partition(" in ")[0] for text in tiny.sentences() if ": built" in text]


@dataclass
class First:
    """What a machine has made that has stored all of it."""

    tiny: Tiny
    packages: dict[str, bytes]

    def elsewhere(self) -> Tiny:
        """Return a machine that has nothing yet, at the same path: on the host itself, objects hold paths."""
        shutil.rmtree(self.tiny.output)
        return Tiny(output=self.tiny.output, channel=self.tiny.channel)


@pytest.fixture
def http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A real server as the store, to which machines write."""
    with running("http", tmp_path / "server") as started:
        monkeypatch.setenv(server.STORE, f"{started.address}/work")
        monkeypatch.setenv(server.WRITES, "1")
        yield started


@pytest.fixture
def first(tmp_path: Path, channel: Path, monkeypatch: pytest.MonkeyPatch) -> First:
    """A machine that has built everything, and stored it."""
    monkeypatch.setenv(server.WRITES, "1")
    made = Tiny(output=tmp_path / "first", channel=channel)
    assert made.run().ok
    monkeypatch.delenv(server.WRITES)
    return First(made, packages(made))


def test_nothing_is_stored_unasked(tmp_path: Path, channel: Path) -> None:
    assert Tiny(output=tmp_path / "first", channel=channel).run().ok
    assert not (tmp_path / "store").exists()


def test_a_tree_for_another_place_is_not_taken(tmp_path: Path, first: First) -> None:
    second = Tiny(output=tmp_path / "second", channel=first.tiny.channel)
    assert not second.plan().stored.packages
    assert second.run().ok
    assert len(compiled(second)) == len(first.packages)


def test_what_was_damaged_is_built(tmp_path: Path, first: First) -> None:
    for part in (tmp_path / "store" / "parts").glob("*/*"):
        part.write_bytes(part.read_bytes()[:-1] + b"x")
    second = first.elsewhere()
    assert second.run().ok
    assert len(compiled(second)) == len(first.packages)
    warned = second.warnings()
    assert sum("unusable" in text for text in warned) == 4, "the tree, too"
    assert packages(second) == first.packages


def test_what_only_its_name_makes_a_package_is_built(tmp_path: Path, first: First, channel: Path) -> None:
    """A record that is sound, of a file that is another package."""
    named = server.Store(str(tmp_path / "store"))
    (record,) = (tmp_path / "store").glob("*/packages/*/*py312*.json")
    key = record.relative_to(tmp_path / "store").as_posix().removesuffix(".json")
    other = next(channel.glob("linux-64/tool-*.conda"))
    aside = tmp_path / record.name.removesuffix(".json")
    aside.write_bytes(other.read_bytes())
    assert [*named.put(key, aside)]
    second = first.elsewhere()
    assert second.run().ok
    assert compiled(second) == ["✓ tinypy 1.0: built"]
    assert [decided for decided, _ in second.decisions()] == ["reuse"], (
        "the tree is in the store all the same"
    )
    assert packages(second) == first.packages


def test_a_store_that_is_gone_costs_time_only(first: First, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(server.STORE, "http://127.0.0.1:9/store")
    second = first.elsewhere()
    plan = second.plan()
    assert any("127.0.0.1:9/store" in note for note in plan.notes)
    monkeypatch.setenv(server.WRITES, "1")
    assert second.run().ok
    assert len(compiled(second)) == len(first.packages)
    assert any("upload" in text for text in second.warnings())


def second_of(tmp_path: Path, channel: Path) -> Tiny:
    """A machine that has nothing yet, after another one has stored Python 3.11's packages."""
    made = Tiny(output=tmp_path / "first", channel=channel)
    assert made.run(pythons=("3.11",)).ok
    return First(made, packages(made)).elsewhere()


def test_a_real_server_keeps_it(tmp_path: Path, channel: Path, http: Server) -> None:
    second = second_of(tmp_path, channel)
    assert second.run().ok
    assert compiled(second) == ["✓ tinypy 1.0: built"]
    assert [decided for decided, _ in second.decisions()] == ["reuse"]
    assert http.tamper() >= 4
    third = First(second, packages(second)).elsewhere()
    assert third.run().ok
    assert len(compiled(third)) == 3


@pytest.mark.parametrize("count", [1, 6])
def test_a_server_that_dies_costs_time_only(
    tmp_path: Path, channel: Path, http: Server, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Killed after so many answers, from the plan's first question to the last part of the tree."""
    second = second_of(tmp_path, channel)
    asked, get = [0], server.Store._get

    def counted(self: server.Store, path: str, limit: int, seconds: float) -> bytes | None:
        asked[0] += 1
        if asked[0] == count:
            end(http.process)
        return get(self, path, limit, seconds)

    monkeypatch.setattr(server.Store, "_get", counted)
    assert second.run().ok
    assert asked[0] >= count
    assert len(packages(second)) == 3
    assert second.warnings(), "it is said"
