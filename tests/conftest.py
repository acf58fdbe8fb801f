"""Fixtures for all tests."""

from __future__ import annotations

import gc
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tenacity

from command_line.run_command import Invocation

if TYPE_CHECKING:
    from tiny import Tiny  # imported by the fixtures: with the engine, it takes a second

#: The places of acceptance tests, and the removal of fixtures' folders.
pytest_plugins = ["places", "fixture_folders"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare how the page of options is renewed."""
    parser.addoption("--renew-options", action="store_true", help="write docs/options.md again")


def pytest_collection_finish() -> None:
    """Leave thousands of collected tests out of all later garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The repository under test."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture
def invocation(tmp_path: Path) -> Invocation:
    """A start of the program whose crash files go to a temporary folder."""
    return Invocation(log_folder=tmp_path / "logs")


@pytest.fixture(scope="session")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tiny megabuild is built with."""
    from tiny import make_channel

    return make_channel(tmp_path_factory.mktemp("channel"))


@pytest.fixture
def tiny(tmp_path: Path, channel: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """A tiny megabuild that has built nothing yet."""
    from tiny import ROOT, Tiny, build_with

    build_with(channel, monkeypatch)
    shutil.copytree(ROOT, tmp_path / "root")
    return Tiny(output=tmp_path / "output", channel=channel, root=tmp_path / "root")


@pytest.fixture(autouse=True)
def _servers_of_this_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take from unit tests, whose servers are all on this machine, proxies and the pauses before another request."""
    if request.path.parent.name == "unit":
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(tenacity, "wait_random_exponential", lambda **_: tenacity.wait_none())


# Started from a background job or by nohup, these are ignored, and so in every child: nothing could be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
