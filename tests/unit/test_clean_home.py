"""Nothing is written outside the cache: to uninstall, people delete the checkout and the cache."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tiny import make_channel

#: Solves an environment, asks an index that wants a password, and lists the files of the home folder.
PROGRAM = """
import sys
from groundwork.channel import Channel
from groundwork.errors import MegabuildError
from groundwork.network import resolver
from groundwork.network.channel_logins import Channels
from groundwork.network.index import Configured
from megabuild.plan.solving import solved

address = sys.argv[1]
channels = Channels(by_priority=(Channel.parse(f"{address}/channel"),))
solved(["python"], channels, "linux-64", virtual={}, what="x", remedy="")
try:
    where = Configured(indexes=(f"{address}/locked",))
    resolver.resolve(["six"], resolver.Target(version="3.12.1"), where, cache=None)
except MegabuildError as error:
    assert "401" in error.message or "credentials" in error.message, error.message
else:
    raise AssertionError("no password was asked for")
"""


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder, in which /locked needs a password."""

    def send_head(self):  # type: ignore[no-untyped-def]
        if self.path.startswith("/locked"):
            self.send_error(401)
            return None
        return super().send_head()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A server with a conda channel and an index that wants a password."""
    make_channel(tmp_path / "channel")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_solvers_write_nothing_into_the_home_folder(tmp_path: Path, address: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    foreign = ("XDG_", "RATTLER_", "UV_", "PIP_", "MEGABUILD_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    environ |= {"HOME": str(home), "PIP_CONFIG_FILE": os.devnull, "MEGABUILD_CACHE": str(tmp_path / "cache")}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, address], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert sorted(map(str, home.rglob("*"))) == []
    assert any((tmp_path / "cache" / "repodata").iterdir())
