"""`megabuild slim` over a real environment: what is said to work does, what is said to be lost is, and all comes back.

``MEGABUILD_SLIM_ENVIRONMENT`` names a venv with an official torch 2.13 for CUDA 13; it is copied, and not changed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from slim_world import tree, wrong_in_records

REAL = os.environ.get("MEGABUILD_SLIM_ENVIRONMENT", "")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not REAL, reason="MEGABUILD_SLIM_ENVIRONMENT names no environment"),
]
CHECKS = Path(__file__).parents[1] / "checks" / "features_of_torch.py"
DRIVER = Path(__file__).parents[2] / "scripts" / "megabuild"
GIB = 1 << 30


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    copy = tmp_path_factory.mktemp("slim") / "env"
    subprocess.run(["cp", "-a", REAL, copy], check=True)
    yield copy
    subprocess.run(["rm", "-rf", copy], check=True)


@pytest.fixture(scope="module")
def before(env: Path) -> Mapping[str, tuple[object, ...]]:
    return tree(env)


def slim(env: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, DRIVER, "slim", env, *arguments, "--json"], stdout=subprocess.PIPE, check=True
    )
    return dict(json.loads(done.stdout))


def works(env: Path, feature: str, cache: Path) -> bool:
    """Try a feature in a process of its own, with empty caches; no byte code is written."""
    folders = {f"{name}_CACHE_DIR": str(cache / name) for name in ("TORCHINDUCTOR", "TRITON")}
    environ = {**os.environ, **folders, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [env / "bin/python", CHECKS, feature], env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(feature, done.stderr[-2000:])
    return done.returncode == 0


@pytest.mark.parametrize(
    ("keep", "at_most"),
    [("compile-cpu,extensions", 2.1), ("", 2.0), ("compile,extensions,distributed,profiler", 2.5)],
    ids=["compile-cpu", "least", "most"],
)
def test_what_is_said_to_work_does(
    env: Path, before: Mapping[str, tuple[object, ...]], keep: str, at_most: float, tmp_path: Path
) -> None:
    applied = slim(env, "--arch-list", "12.0", "--keep", keep, "--apply")
    assert applied["after"] <= at_most * GIB
    files = (path for path in env.rglob("*") if path.is_file() and not path.is_symlink())
    there = sum(path.stat().st_size for path in files if ".megabuild-slim" not in path.parts)
    assert there - applied["after"] < 1 << 20  # lists of files become shorter as well
    assert there <= applied["after"]
    assert wrong_in_records(env) == []
    subprocess.run([env / "bin/python", "-B", "-m", "pip", "check"], check=True)
    for feature in ("import", "autograd", "jit", *applied["works"]):
        assert works(env, feature, tmp_path / feature), feature
    for feature in applied["lost"]:
        in_part = feature in ("distributed", "profiler")
        assert works(env, feature, tmp_path / feature) == in_part, feature
    slim(env, "--undo")
    assert tree(env) == before
