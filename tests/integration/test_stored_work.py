"""Finished work from a store: a folder, a real nginx, and what happens where it is damaged, gone, or not trusted."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from package_files import rot
from tiny import Tiny, build_with, make_channel, wait_for

from megabuild.store import server

#: A server of files that takes ``PUT``.
NGINX = """\
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{
    listen 127.0.0.1:{port};
    root {folder}/objects; client_max_body_size 1g;
    location / {{ dav_methods PUT DELETE; create_full_put_path on; }}
  }}
}}
"""


@pytest.fixture
def channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = make_channel(tmp_path / "channel")
    build_with(made, monkeypatch)
    monkeypatch.setenv(server.STORE, str(tmp_path / "store"))
    return made


def packages(tiny: Tiny) -> dict[str, bytes]:
    """The published packages' bytes."""
    return {path.name: path.read_bytes() for path in tiny.options().packages.glob("*/*.conda")}


def compiled(tiny: Tiny) -> list[str]:
    """For which Pythons the last run has built something, or what else."""
    return [text.partition(" in ")[0] for text in tiny.sentences() if ": built" in text]


def elsewhere(tiny: Tiny) -> Tiny:
    """Return a machine that has nothing yet, at the same path: on the host itself, objects hold paths."""
    shutil.rmtree(tiny.output)
    return Tiny(output=tiny.output, channel=tiny.channel)


@pytest.fixture
def nginx(
    tmp_path: Path, channel: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[subprocess.Popen[bytes]]:
    """A real server in place of the folder, which keeps files in ``server/objects`` and to which machines write."""
    if shutil.which("nginx") is None:
        pytest.skip("not installed: nginx")
    folder = tmp_path / "server"
    (folder / "objects").mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = ("127.0.0.1", int(probe.getsockname()[1]))
    user = "user root;\n" * (os.getuid() == 0)
    (folder / "nginx.conf").write_text(user + NGINX.format(folder=folder, port=address[1]))
    command = ["nginx", "-c", str(folder / "nginx.conf")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(address) == 0

    try:
        assert wait_for(answers, 10)
        monkeypatch.setenv(server.STORE, f"http://127.0.0.1:{address[1]}/work")
        monkeypatch.setenv(server.WRITES, "1")
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a server and its workers."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(10)


@pytest.fixture
def first(tmp_path: Path, channel: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """A machine that has built everything, and stored it."""
    made = Tiny(output=tmp_path / "first", channel=channel)
    with monkeypatch.context() as patch:
        patch.setenv(server.WRITES, "1")
        assert made.run().ok
    return made


def test_a_tree_for_another_place_is_not_taken_and_nothing_is_stored_unasked(
    tmp_path: Path, first: Tiny
) -> None:
    stored = sorted((tmp_path / "store").rglob("*"))
    second = Tiny(output=tmp_path / "second", channel=first.channel)
    assert not second.outlook().progress.stored.packages
    assert second.run().ok
    assert len(compiled(second)) == len(packages(first))
    assert sorted((tmp_path / "store").rglob("*")) == stored


def test_what_was_damaged_is_built(tmp_path: Path, first: Tiny) -> None:
    for part in (tmp_path / "store" / "parts").glob("*/*"):
        part.write_bytes(part.read_bytes()[:-1] + b"x")
    built = packages(first)
    second = elsewhere(first)
    assert second.run().ok
    assert len(compiled(second)) == len(built)
    warned = second.warnings()
    assert sum("unusable" in text for text in warned) == 4, "the tree, too"
    assert packages(second) == built


def test_what_only_its_name_makes_a_package_is_built(tmp_path: Path, first: Tiny, channel: Path) -> None:
    """A record that is sound, of a file that is another package."""
    named = server.Store(str(tmp_path / "store"))
    (record,) = (tmp_path / "store").glob("*/packages/*/*py312*.json")
    key = record.relative_to(tmp_path / "store").as_posix().removesuffix(".json")
    other = next(channel.glob("linux-64/tool-*.conda"))
    aside = tmp_path / record.name.removesuffix(".json")
    aside.write_bytes(other.read_bytes())
    assert [*named.put(key, aside)]
    built = packages(first)
    second = elsewhere(first)
    assert second.run().ok
    assert compiled(second) == ["✓ tinypy 1.0 py3.12: built"]
    assert [decided for decided, _ in second.decisions()] == ["reuse"], (
        "the tree is in the store all the same"
    )
    assert packages(second) == built


def test_a_store_that_is_gone_costs_time_only(first: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(server.STORE, "http://127.0.0.1:9/store")
    second = elsewhere(first)
    notes = second.outlook().progress.stored.notes
    assert any("127.0.0.1:9/store" in note for note in notes)
    monkeypatch.setenv(server.WRITES, "1")
    assert second.run().ok
    assert len(compiled(second)) == 3
    assert any("upload" in text for text in second.warnings())


def second_of(tmp_path: Path, channel: Path) -> Tiny:
    """A machine that has nothing yet, after another one has stored Python 3.11's packages."""
    made = Tiny(output=tmp_path / "first", channel=channel)
    assert made.run(pythons=("3.11",)).ok
    return elsewhere(made)


@pytest.mark.usefixtures("nginx")
def test_a_real_server_keeps_it(tmp_path: Path, channel: Path) -> None:
    second = second_of(tmp_path, channel)
    assert second.run().ok
    assert compiled(second) == ["✓ tinypy 1.0 py3.12: built"]
    assert [decided for decided, _ in second.decisions()] == ["reuse"]
    kept = [path for path in (tmp_path / "server" / "objects").rglob("*") if path.is_file()]
    assert len(kept) >= 4
    for path in kept:
        rot(path)
    third = elsewhere(second)
    assert third.run().ok
    assert len(compiled(third)) == 3


@pytest.mark.parametrize("count", [1, 6])
def test_a_server_that_dies_costs_time_only(
    tmp_path: Path, channel: Path, nginx: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Killed after so many answers, from the plan's first question to the last part of the tree."""
    second = second_of(tmp_path, channel)
    asked, get = [0], server.Store._get

    def counted(self: server.Store, path: str, limit: int, seconds: float) -> bytes | None:
        asked[0] += 1
        if asked[0] == count:
            kill(nginx)
        return get(self, path, limit, seconds)

    monkeypatch.setattr(server.Store, "_get", counted)
    assert second.run().ok
    assert asked[0] >= count
    assert len(packages(second)) == 3
    assert second.warnings(), "it is said"
