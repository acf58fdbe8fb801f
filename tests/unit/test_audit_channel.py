"""The newest version in a channel: by platform, sharded or not, from files, offline, from servers that misbehave."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from audit_channel import add, index
from audit_site import Answer, config, die, endless, hang, request, services, serving, trickle
from rattler import Version

from groundwork.network import client
from pin_audit.facts import Newest, SourceOutcome
from pin_audit.services import Services
from pin_audit.sources import channel as channel_source

NAMES = ("libfoo", "pybar", "onlymac", "nosuch")
CONFIGS = (config("linux-64"), config("osx-arm64"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a channel conda-forge in it."""
    root = tmp_path_factory.mktemp("channels")
    channel = root / "conda-forge"
    for version in ("1.9", "1.10", "2.0rc1"):
        add(channel, "linux-64", "libfoo", version)
    add(channel, "osx-arm64", "libfoo", "1.8")
    for version in ("2023d", "2024b"):  # the letters of releases, not of prereleases
        add(channel, "osx-arm64", "onlymac", version)
    add(channel, "noarch", "pybar", "3.0")
    add(channel, "linux-64", "pybar", "2.0")
    index(channel)
    return root


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_CHANNEL_SECONDS", 3.0)


def values(outcome: SourceOutcome) -> list[tuple[str, str, str]]:
    return [(one.name, one.value, ", ".join(one.holds.platforms)) for one in outcome.facts]


def ask(given: Services, names: tuple[str, ...] = NAMES) -> SourceOutcome:
    return channel_source.read(request(given, configs=CONFIGS, names=names))


EXPECTED = [
    ("libfoo", "1.10", "linux-64"),
    ("libfoo", "1.8", "osx-arm64"),
    ("pybar", "3.0", ""),
    ("onlymac", "2024b", "osx-arm64"),
    ("nosuch", "", ""),
]


@pytest.mark.parametrize("shards", [True, False])
def test_the_newest_of_each_platform_is_found(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: bool
) -> None:
    if not shards:
        root = shutil.copytree(root, tmp_path / "copy")
        for file in root.rglob("repodata_shards*"):
            file.unlink()
    with serving({}, folder=root) as site:
        monkeypatch.setenv("CONDA_CHANNEL_ALIAS", site.url)
        outcome = ask(services(tmp_path / "cache"))
        fetched = {path for path, _ in site.asked}
    assert values(outcome) == EXPECTED
    assert any("/shards/" in path for path in fetched) is shards
    assert not outcome.trouble
    trouble = outcome.facts[-1].trouble
    assert all(name in trouble for name in ("conda-forge", "nosuch", "linux-64", "osx-arm64"))
    first = outcome.facts[0]
    assert (type(first), first.where.file) == (Newest, "libfoo-1.10-h0_0.tar.bz2")
    assert first.where.fetched
    assert (first.where.index, first.where.package, first.where.version) == ("conda-forge", "libfoo", "1.10")
    assert not first.where.url


@pytest.mark.parametrize(
    ("packages", "newest"),
    [
        ([("1.9", 0), ("1.10", 0)], ("1.10", 0)),
        ([("1.9", 5), ("1.10", 0)], ("1.10", 0)),
        ([("1.10", 0), ("1.10", 2), ("1.10", 1)], ("1.10", 2)),
        ([("2.0rc1", 3), ("1.10", 0)], ("1.10", 0)),
        ([("2.0b2", 1), ("2.0rc1", 0)], ("2.0rc1", 0)),
        ([("2.0rc1", 0)], ("2.0rc1", 0)),
    ],
)
def test_the_newest_package_has_the_newest_version_then_build_and_is_a_release_if_there_is_one(
    packages: list[tuple[str, int]], newest: tuple[str, int]
) -> None:
    records = [
        SimpleNamespace(
            version=Version(version), build_number=build, file_name=f"{version} {build}", sha256=b"\x0a"
        )
        for version, build in packages
    ]
    found = channel_source._best("x", cast(Any, records))
    version, build = newest
    assert (found.version, found.file, found.sha256) == (version, f"{version} {build}", "0a")


def test_a_channel_that_is_not_there_is_told_without_its_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setenv("CONDA_CHANNEL_ALIAS", "http://user:s3cret@127.0.0.1:9/t/s3cret")
    outcome = ask(services(tmp_path, told))
    assert "127.0.0.1:9" in outcome.trouble
    assert [finding.trouble for finding in outcome.facts] == [outcome.trouble] * len(NAMES)
    assert "s3cret" not in repr((outcome, told))


@pytest.mark.parametrize(
    "answer",
    [hang, die, endless, trickle, b"<html>Log in</html>"],
    ids=lambda answer: getattr(answer, "__name__", "html"),
)
def test_a_misbehaving_channel_ends_in_bounded_time(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes | Answer
) -> None:
    monkeypatch.setattr(channel_source, "_SECONDS", 3.0)  # a busy machine answers in it, too
    broken = {
        f"/conda-forge/linux-64/{file}": answer
        for file in ("repodata_shards.msgpack.zst", "repodata.json.zst", "repodata.json.bz2", "repodata.json")
    }
    with serving(broken, folder=root) as site:
        monkeypatch.setenv("CONDA_CHANNEL_ALIAS", site.url)
        start = time.monotonic()
        outcome = ask(services(tmp_path / "cache"))
        assert time.monotonic() - start < 20.0
    assert "linux-64" in outcome.trouble
    assert ("libfoo", "1.8", "osx-arm64") in values(outcome)
    assert {path.name for path in tmp_path.iterdir()} <= {"cache"}


@pytest.mark.parametrize(
    ("records", "newest"),
    [
        ([("1.9", 7), ("1.10", 0), ("2.0rc1", 3)], ("1.10", 0)),
        ([("1.10", 0), ("1.10", 2), ("1.10", 1)], ("1.10", 2)),
        ([("2.0a1", 0), ("2.0rc1", 0), ("2.0b2", 5)], ("2.0rc1", 0)),  # there is no release
        ([("2024a", 0), ("2023d", 1)], ("2024a", 0)),
    ],
)
def test_the_newest_is_the_last_build_of_the_last_release(
    records: list[tuple[str, int]], newest: tuple[str, int]
) -> None:
    packages = [
        SimpleNamespace(
            version=Version(version), build_number=build, file_name=f"x-{version}-{build}.conda", sha256=None
        )
        for version, build in records
    ]
    found = channel_source._best("x", cast(Any, packages))
    assert (found.version, found.file) == (newest[0], f"x-{newest[0]}-{newest[1]}.conda")
