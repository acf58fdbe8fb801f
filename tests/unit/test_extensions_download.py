"""Fetching from a server that misbehaves, and wheels that are damaged."""

from __future__ import annotations

import functools
import hashlib
import socket
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from wheel_files import make_wheel

from groundwork.errors import IntegrityError, ProviderError
from groundwork.network.client import Timeouts
from groundwork.wheel_file import why_broken
from pyg_extensions import find_wheel, pyg_index
from pyg_extensions.find_wheel import fetch
from pyg_extensions.pyg_index import read_page

BODY = b"wheel" * 1000
ADDRESS = "http://user:secret@127.0.0.1:9/file.whl"


class Server(ThreadingHTTPServer):
    """Answers from a list of statuses, one for each request; the last one stays. -1: breaks off in the middle."""

    def __init__(self, statuses: list[int]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses, self.asked = statuses, 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file.whl"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        status = self.server.statuses[min(self.server.asked, len(self.server.statuses) - 1)]
        self.server.asked += 1
        self.send_response(200 if status == -1 else status)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY[:100] if status == -1 else BODY)

    def log_message(self, *_: object) -> None:
        """Nothing of this belongs into the tests' output."""


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[functools.partial[Server]]:
    for module in (pyg_index, find_wheel):
        monkeypatch.setattr(module, "_TIMEOUTS", Timeouts(read=5.0, total=20.0, pause=0.01))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    servers: list[Server] = []

    def start(*statuses: int) -> Server:
        server = Server(list(statuses))
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return server

    yield functools.partial(start)
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_broken_download_is_tried_again(serve: functools.partial[Server], tmp_path: Path) -> None:
    server = serve(503, -1, 200)
    target = fetch(server.address, tmp_path / "cache" / "file.whl", hashlib.sha256(BODY).hexdigest())
    assert target.read_bytes() == BODY
    assert server.asked == 3
    assert [path.name for path in target.parent.iterdir()] == ["file.whl"]


def test_three_failures_end_it_and_leave_nothing(serve: functools.partial[Server], tmp_path: Path) -> None:
    server = serve(-1)
    with pytest.raises(ProviderError, match="cannot be used"):
        fetch(server.address, tmp_path / "file.whl", "")
    assert server.asked == 3
    assert list(tmp_path.iterdir()) == []


def test_another_hash_is_refused_and_leaves_nothing(serve: functools.partial[Server], tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="sha256"):
        fetch(serve(200).address, tmp_path / "file.whl", "0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_a_refusal_is_not_asked_again(serve: functools.partial[Server], tmp_path: Path) -> None:
    server = serve(401)
    with pytest.raises(ProviderError, match="401"):
        fetch(server.address, tmp_path / "file.whl", "")
    assert server.asked == 1


def test_a_page_that_is_not_there_is_no_error(serve: functools.partial[Server]) -> None:
    assert read_page(serve(404).address) is None
    assert read_page(serve(500, 200).address) == BODY.decode()


def test_a_server_that_is_not_there_is_one(serve: functools.partial[Server]) -> None:
    server = serve(200)
    server.server_close()
    with pytest.raises(ProviderError, match=r"127\.0\.0\.1"):
        read_page(server.address)


def test_what_went_wrong_names_the_host_and_no_password(tmp_path: Path) -> None:
    for attempt in (lambda: read_page(ADDRESS), lambda: fetch(ADDRESS, tmp_path / "file.whl", "")):
        with pytest.raises(ProviderError) as told:
            attempt()
        assert "127.0.0.1:9" in told.value.message
        assert "secret" not in told.value.message + told.value.remedy


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyg_index, "_TIMEOUTS", Timeouts(total=0.2))
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ProviderError, match="no end after"):
        read_page(f"http://127.0.0.1:{silent.getsockname()[1]}/")


NAME = "torch_scatter-2.1.2+pt213cpu-cp312-cp312-linux_x86_64.whl"
FILES = {"torch_scatter/__init__.py": b"", "torch_scatter/_version_cpu.so": b"\x7fELF" * 5000}


def test_a_whole_wheel_is_whole(tmp_path: Path) -> None:
    assert why_broken(make_wheel(tmp_path, NAME, FILES)) == ""


def test_half_a_wheel_is_not(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, NAME, FILES)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert "cannot be read" in why_broken(path)


def test_a_changed_file_is_found_by_the_wheels_own_record(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, NAME, FILES)
    changed = tmp_path / "changed" / NAME
    changed.parent.mkdir()
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(changed, "w") as copy:
        for name in source.namelist():
            copy.writestr(name, b"other" if name.endswith(".so") else source.read(name))
    assert why_broken(changed) == "torch_scatter/_version_cpu.so is not what its RECORD says"


def test_a_lost_file_is_found(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, NAME, FILES)
    changed = tmp_path / "changed" / NAME
    changed.parent.mkdir()
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(changed, "w") as copy:
        for name in source.namelist():
            if not name.endswith(".so"):
                copy.writestr(name, source.read(name))
    assert "missing" in why_broken(changed)


def test_a_wheel_of_another_version_under_this_name_is_found(tmp_path: Path) -> None:
    assert "calls itself torch_scatter 2.0.9" in why_broken(
        make_wheel(tmp_path, NAME, FILES, version="2.0.9")
    )


def test_what_is_no_archive_is_broken(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("<html>please log in</html>")
    assert "cannot be read" in why_broken(tmp_path / NAME)
