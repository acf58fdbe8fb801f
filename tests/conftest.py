"""Fixtures for all tests."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from command_line.run_command import Invocation


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare how the page of options is renewed."""
    parser.addoption("--renew-options", action="store_true", help="write docs/options.md again")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The repository under test."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture
def invocation(tmp_path: Path) -> Invocation:
    """A start of the program whose crash files go to a temporary folder."""
    return Invocation(log_folder=tmp_path / "logs")


# Started from a background job or by nohup, these are ignored, and so in every child: nothing could be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
