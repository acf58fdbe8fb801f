"""Compiles on other machines: what a scheduler says of them, what is refused, and what a build is given for it."""

from __future__ import annotations

import contextlib
import platform
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from groundwork.errors import PreflightError, UsageError
from megabuild.engine.compiler_gate import HERE, NOTES, goes_elsewhere
from megabuild.plan import distribution
from megabuild.plan.distribution import find_workers, require_client
from megabuild.plan.object_memory import compiled_elsewhere

KIND = platform.machine()
LISTED = f"""\
200-ICECC 1.4.0: 3s uptime, 4 hosts, 0 jobs in queue (0 total).
200 Use 'help' for help and 'quit' to quit.
 front (10.0.0.1:0) [{KIND}] speed=0.00 jobs=0/8 load=882
 first (10.0.0.2:10245) [{KIND}] speed=416.98 jobs=0/16 load=133
   17 COMPILING sub:front on:first
 second (10.0.0.3:10245) [{KIND}] speed=0.00 jobs=1/4 load=1000 busy installing since 3 s
 other (10.0.0.4:10245) [riscv32] speed=390.91 jobs=0/64 load=1
200 done
"""


@contextlib.contextmanager
def scheduler(answer: str) -> Iterator[str]:
    """A fake scheduler, which answers once; only what it says is like the real one's."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                link, _ = server.accept()
                with link:
                    for part in answer.splitlines(keepends=True):
                        link.sendall(part.encode())
                    link.recv(99)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1] - 1}"


def test_machines_of_another_kind_and_those_that_take_nothing_are_not_counted() -> None:
    with scheduler(LISTED) as address:
        found = find_workers(address)
    assert (found.machines, found.cores) == (2, 20)
    assert str(found) == "2 machines with 20 cores"


def test_a_scheduler_that_knows_no_machine_is_an_error_that_says_what_to_do() -> None:
    with (
        scheduler("200-ICECC 1.4.0: 0 hosts\n200 done\n") as address,
        pytest.raises(PreflightError) as caught,
    ):
        find_workers(address)
    assert f"knows no {KIND} machine" in caught.value.message
    assert "iceccd -d -s 127.0.0.1" in caught.value.remedy


@pytest.mark.parametrize("answer", ["", "HTTP/1.1 400 Bad Request\r\n\r\n200 done\n", "200-ICE"])
def test_another_server_is_no_scheduler(answer: str) -> None:
    with scheduler(answer) as address, pytest.raises(PreflightError, match="no icecream scheduler answers"):
        find_workers(address)


def test_nobody_there_is_said_with_the_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(PreflightError) as caught:
        find_workers(f"127.0.0.1:{port - 1}")
    assert f"ports {port - 1} and {port}" in caught.value.remedy


@pytest.mark.parametrize(
    "address", ["", "a b", "host:0", "host:65535", "host:99999", "http://host", "host:x", "-\n"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="not the address of a scheduler"):
        find_workers(address)


def test_a_machine_without_the_client_or_its_daemon_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PreflightError, match="icecc, icecc-create-env"):
        require_client()
    for name in ("icecc", "icecc-create-env"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(distribution, "SOCKET", tmp_path / "socket")
    with pytest.raises(PreflightError, match="does not listen at"):
        require_client()
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(tmp_path / "socket"))
        daemon.listen()
        require_client()


@pytest.mark.parametrize(
    ("compiler", "goes"),
    [
        ("/usr/bin/g++-14", True), ("x86_64-conda-linux-gnu-c++", True), ("x86_64-conda-linux-gnu-cc", True),
        ("clang++-18", True), ("cc", True), ("gcc", True), ("/usr/lib/nvidia-cuda-toolkit/bin/nvcc", False),
        ("sccache", False), ("gfortran", False), ("icc", False),
    ],
)  # fmt: skip
def test_compilers_that_other_machines_are_given(
    compiler: str, goes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(HERE, raising=False)
    assert goes_elsewhere(compiler) is goes
    monkeypatch.setenv(HERE, "1")
    assert not goes_elsewhere(compiler), "it came back"


def test_where_objects_were_made_is_counted_by_what_was_noted(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    assert compiled_elsewhere(tmp_path) == {"elsewhere": 0, "here": 0}
    notes = "> 0 a 0\n= 9 a 1\n> 0 b 0\n> 0 b 0\n+ 9 b 1\n= 9 b 1\n> 0 c 0\n= 9 c 1\n+ 9 d 1\n> 0 e 0\n"
    (tmp_path / "tmp" / NOTES).write_text(notes)
    assert compiled_elsewhere(tmp_path) == {"elsewhere": 2, "here": 2}
