"""Operations that are killed at any of their write-like calls: the same command again gives what it gives undisturbed.

``scripts/test`` tries a few of the calls, ``-m long`` all of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="cc is not installed")
HERE = Path(__file__).parent
OPERATIONS = [
    "sync", "sync-unpacked-again", "stage", "publish", "upload", "build", "store-put", "store-fetch", "files",
    "audit-cache", "object-cache", "kept-wheel", "slim-apply", "slim-apply-undo", "slim-undo", "slim-forget", "clean",
    "wheels-index", "wheels", "env-create", "bootstrap",
]  # fmt: skip
#: Those that take seconds each time.
SLOW = {"build", "stage", "wheels"}
#: Seconds that suffice for all calls: "bootstrap" has 2,286, of some seconds each.
DAY = 86_400.0


@dataclass(frozen=True)
class Killer:
    """A process that sweeps operations, one after the other."""

    process: subprocess.Popen[str]

    def sweep(self, operation: str, folder: Path, seconds: float) -> Any:
        """Return the report of a sweep."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([operation, str(folder / "sweep"), seconds]) + "\n")
        self.process.stdin.flush()
        report = json.loads(self.process.stdout.readline())
        assert "error" not in report, report["error"]
        return report


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    folder = tmp_path_factory.mktemp("killer")
    library, state = folder / "kill_at_write.so", folder / "state"
    compiler = ["cc", "-O1", "-shared", "-fPIC", str(HERE / "kill_at_write.c"), "-o", str(library), "-ldl"]
    subprocess.run(compiler, check=True)
    state.write_bytes(b"\xff" * 4 + bytes(8188))
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MEGABUILD_", "PYTEST"))
    }
    environment |= {
        "LD_PRELOAD": str(library),
        "KILL_STATE": str(state),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, str(HERE / "kill_operations.py")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True) as process:
        yield Killer(process)


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name != "bootstrap"])  # 20 s each time
def test_an_operation_killed_at_some_calls_is_completed_by_the_next(
    operation: str, killer: Killer, tmp_path: Path
) -> None:
    report = killer.sweep(operation, tmp_path, 2.0 if operation in SLOW else 0.5)
    assert report["failures"] == []
    assert report["tried"] > 0


@pytest.mark.long
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_killed_at_any_call_is_completed_by_the_next(
    operation: str, killer: Killer, tmp_path: Path
) -> None:
    report = killer.sweep(operation, tmp_path, DAY)
    print(f"{operation}: {report['tried']} of {report['calls']} calls, leftovers {report['leftovers']}")
    assert report["failures"] == []
    assert report["tried"] == report["calls"]
