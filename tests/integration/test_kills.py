"""Operations that are killed at any of their write-like calls: the same command again gives what it gives undisturbed.

``scripts/test`` tries a few of the calls, ``-m long`` all of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
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


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("killer") / "kill_at_write.so"
    command = ["cc", "-O1", "-shared", "-fPIC", str(HERE / "kill_at_write.c"), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True)
    return library


def sweep(operation: str, killer: Path, folder: Path, seconds: float) -> Any:
    state = folder / "state"
    state.write_bytes(b"\xff" * 4 + bytes(8188))
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MEGABUILD_", "PYTEST"))
    }
    environment |= {
        "LD_PRELOAD": str(killer),
        "KILL_STATE": str(state),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [
        sys.executable,
        str(HERE / "kill_operations.py"),
        operation,
        str(folder / "sweep"),
        str(seconds),
    ]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name != "bootstrap"])  # 20 s each time
def test_an_operation_killed_at_some_calls_is_completed_by_the_next(
    operation: str, killer: Path, tmp_path: Path
) -> None:
    report = sweep(operation, killer, tmp_path, 3.0 if operation in SLOW else 1.0)
    assert report["failures"] == []
    assert report["tried"] > 0


@pytest.mark.long
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_killed_at_any_call_is_completed_by_the_next(
    operation: str, killer: Path, tmp_path: Path
) -> None:
    report = sweep(operation, killer, tmp_path, 3600.0)
    print(f"{operation}: {report['tried']} of {report['calls']} calls, leftovers {report['leftovers']}")
    assert report["failures"] == []
