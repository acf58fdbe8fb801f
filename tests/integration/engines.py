"""Container engines and bubblewrap, as tests call them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from groundwork.errors import IsolationError
from megabuild.isolation.base import Isolation
from megabuild.isolation.bubblewrap import Bubblewrap


def client(engine: str, environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Call an engine's client."""
    environ = {**os.environ, **environment}
    return subprocess.run(
        [engine, *arguments], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


def make_image(engine: str, environment: Mapping[str, str], name: str) -> subprocess.CompletedProcess[str]:
    """Make the rehearsal's image, of this system's own packages."""
    script = Path(__file__).resolve().parents[2] / "rehearsal" / "image" / "make-image.sh"
    return client(str(script), environment, engine, name)


def bubblewrap() -> Bubblewrap:
    """Return bubblewrap over this machine's root; skips the test where it makes no namespaces."""
    isolation = Bubblewrap(root=Path("/"))
    try:
        isolation.check()
    except IsolationError as error:
        pytest.skip(error.message)
    return isolation


def working(isolation: Isolation) -> Isolation:
    """Return an isolation in which a program has run; skips the test where none does."""
    command = isolation.command(["sh", "-c", "exit 0"], mounts=(), env={}, cwd="/", name="megabuild-test")
    try:
        isolation.check()
        done = subprocess.run(
            command, env=isolation.environment({}), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=60,
        )  # fmt: skip
        problem = isolation.failure(done.returncode, output=done.stdout)
    except IsolationError as error:
        problem = error
    if problem is not None:
        pytest.skip(f"{problem.message}; {problem.remedy}")
    return isolation
