"""The engine sees no secret of this process, and every thread keeps its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from megabuild.configs.render import _hidden_secrets

SECRETS = ("GITHUB_TOKEN", "TOX_TESTENV_PASSENV")


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads that change places as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_threads_that_render_take_turns(hurried: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "secret")

    def render(number: int) -> bool:
        with _hidden_secrets():
            return not any(name in os.environ for name in SECRETS)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(render, range(1000)))
    assert [os.environ.get(name) for name in SECRETS] == ["secret", "secret"]
