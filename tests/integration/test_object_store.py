"""Objects shared through a server: real ccache and compiler, a real redis, and a real nginx where it is installed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from shared_servers import Server, end, running

from megabuild.plan.limits import Limits
from megabuild.plan.object_store import SHARE_OBJECTS, STORE, object_store, remote_storage
from megabuild.run.launcher import COMPILER_LAUNCHER, write_launcher

FILES = 5


@pytest.fixture(params=["redis", "http"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    if lacking := [name for name in ("ccache", "g++") if shutil.which(name) is None]:
        pytest.skip(f"not installed: {', '.join(lacking)}")
    with running(request.param, tmp_path / "server") as found:
        yield found


@dataclass
class Machine:
    """A folder with an object cache of its own, as another machine has."""

    folder: Path
    launcher: Path

    def compile(self, number: int) -> bytes:
        """Compile a file; return the object."""
        source = self.folder / f"{number}.cpp"
        source.write_text(f"int f{number}(int x) {{ return x + {number}; }}\n")
        environment = {"PATH": os.environ["PATH"], "CCACHE_NOHASHDIR": "1", "CCACHE_DEPEND": "1"}
        command = [str(self.launcher), "g++", "-c", source.name, "-MD", "-MF", "d", "-o", f"{number}.o"]
        subprocess.run(command, cwd=self.folder, env=environment, check=True, timeout=60)
        return (self.folder / f"{number}.o").read_bytes()

    def said(self, word: str) -> int:
        """Return how often ccache noted a word."""
        return (self.folder / "stats").read_text().split().count(word)


def _machine(folder: Path, address: str, *, writes: bool = False) -> Machine:
    environ = {STORE: address, SHARE_OBJECTS: "1" if writes else ""}
    for name in ("tmp", "shared"):
        (folder / name).mkdir(parents=True)
    store = object_store(environ)
    assert store is not None
    write_launcher(
        folder,
        Limits(),
        inside=str(folder),
        scripts=str(Path(__file__).parents[2] / "scripts"),
        python="python3",
        folder=str(folder / "own"),
        shared=remote_storage(str(folder / "shared"), environ),
        reshare=store.writes,
        stats=str(folder / "stats"),
    )
    return Machine(folder, folder / COMPILER_LAUNCHER)


def test_another_machine_gets_what_one_compiled_and_nobody_writes_unasked(
    server: Server, tmp_path: Path
) -> None:
    first = _machine(tmp_path / "first", server.address, writes=True)
    made = [first.compile(number) for number in range(FILES)]
    assert first.said("cache_miss") == FILES
    reader = _machine(tmp_path / "reader", server.address)
    assert [reader.compile(number) for number in range(FILES)] == made
    assert (reader.said("remote_storage_hit"), reader.said("cache_miss")) == (FILES, 0)
    reader.compile(FILES)
    other = _machine(tmp_path / "other", server.address)
    other.compile(FILES)
    assert other.said("cache_miss") == 1, "the reader has written to the server"


def test_what_one_had_before_there_was_a_server_goes_there_too(server: Server, tmp_path: Path) -> None:
    first = _machine(tmp_path / "first", "redis://127.0.0.1:1", writes=True)
    first.compile(0)
    late = _machine(tmp_path / "late", server.address, writes=True)
    (tmp_path / "late" / "own").symlink_to(tmp_path / "first" / "own")
    late.compile(0)
    assert (late.said("local_storage_hit"), late.said("cache_miss")) == (1, 0)
    reader = _machine(tmp_path / "reader", server.address)
    reader.compile(0)
    assert reader.said("remote_storage_hit") == 1


def test_an_entry_that_was_changed_on_the_server_is_compiled(server: Server, tmp_path: Path) -> None:
    first = _machine(tmp_path / "first", server.address, writes=True)
    made = [first.compile(number) for number in range(FILES)]
    assert server.tamper() >= FILES
    reader = _machine(tmp_path / "reader", server.address)
    assert [reader.compile(number) for number in range(FILES)] == made
    assert reader.said("remote_storage_hit") == 0
    assert reader.said("cache_miss") == FILES


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("moment", range(FILES))
def test_a_server_that_ends_costs_time_only(
    server: Server, tmp_path: Path, moment: int, how: signal.Signals
) -> None:
    first = _machine(tmp_path / "first", server.address, writes=True)
    made = [first.compile(number) for number in range(FILES)]
    reader = _machine(tmp_path / "reader", server.address)
    found = []
    for number in range(min(moment + 2, FILES)):  # one without an answer costs seconds
        if number == moment:
            end(server.process, how)
        found.append(reader.compile(number))
    assert found == made[: len(found)]
    assert reader.said("remote_storage_hit") == moment
    assert reader.said("cache_miss") == len(found) - moment
