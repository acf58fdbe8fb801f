"""`megabuild slim` over real environments that are not PyTorch's alone: what they did before they do afterwards.

``MEGABUILD_SLIM_ENVIRONMENTS`` names a folder with virtual environments, called as below; each is copied with hard
links and not changed. As made with uv for Python 3.12, with names and requirements from ``ENVIRONMENTS``:

    uv venv -p 3.12 $DIR/NAME && uv pip install -p $DIR/NAME REQUIREMENTS
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from slim_world import tree, wrong_in_records

FOLDER = os.environ.get("MEGABUILD_SLIM_ENVIRONMENTS", "")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not FOLDER, reason="MEGABUILD_SLIM_ENVIRONMENTS names no folder"),
]
CHECKS = Path(__file__).parents[1] / "checks" / "frameworks.py"
DRIVER = Path(__file__).parents[2] / "scripts" / "megabuild"
SCIENCE = "numpy scipy pandas scikit-learn gensim nltk astropy statsmodels django sympy networkx numba matplotlib ase"
#: By name: requirements, GPUs, and the part of its bytes that at most is left.
ENVIRONMENTS = {
    "torch": ("torch==2.13.0 numpy setuptools pip", "12.0", 0.45),
    "bitsandbytes": ("torch==2.13.0 numpy bitsandbytes", "9.0,12.0", 0.60),
    "tensorflow": ("tensorflow[and-cuda]", "9.0", 0.55),
    "jax": ("jax[cuda13]", "12.0", 0.70),
    "cupy": ("cupy-cuda13x[ctk]", "8.6,12.0", 0.62),
    "onnxruntime": ("onnxruntime-gpu onnx numpy", "9.0,12.0", 0.75),
    "nvmath": ("nvmath-python[cu13] numba-cuda[cu13] cuda-core numpy<2.4", "9.0", 0.90),
    "science": (f"{SCIENCE} onnx protobuf pytest", "", 0.85),
}


@pytest.fixture(params=list(ENVIRONMENTS))
def env(request: pytest.FixtureRequest) -> Iterator[Path]:
    source = Path(FOLDER, request.param)
    if not source.is_dir():
        pytest.skip(f"there is no {source}")
    copy = source.with_name(f"{source.name}-slimmed")
    shutil.rmtree(copy, ignore_errors=True)
    subprocess.run(["cp", "-al", source, copy], check=True)
    yield copy
    shutil.rmtree(copy)


def slim(env: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, DRIVER, "slim", env, *arguments, "--json"], stdout=subprocess.PIPE, check=True
    )
    return dict(json.loads(done.stdout))


def answers(env: Path) -> dict[str, Any]:
    """Try everything that the environment has, without writing byte code."""
    python = [str(env / "bin/python"), "-I", "-B", str(CHECKS)]
    done = subprocess.run(python, capture_output=True, text=True, check=True, cwd="/", timeout=900)
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: answer for name, answer in found.items() if "no module" not in str(answer)[:12]}


def on_disk(env: Path) -> int:
    files = (path for path in env.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files if ".megabuild-slim" not in path.parts)


def test_everything_works_as_before_and_comes_back(env: Path) -> None:
    name = env.name.removesuffix("-slimmed")
    _, gpus, at_most = ENVIRONMENTS[name]
    before, worked = tree(env), answers(env)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    applied = slim(env, *(["--arch-list", gpus] if gpus else []), "--apply")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    there = on_disk(env)
    print(name, applied["before"], applied["after"], there, f"{seconds:.1f} s of CPU", applied["checked"])
    print({step["name"]: step["saves"] for step in applied["steps"]})
    print(applied["gpu_code"], applied["works"], applied["limited"], applied["lost"], applied["spared"])
    print(worked)
    assert applied["checked"]["modules"]
    assert applied["left_alone"] == []
    assert applied["unknown"] == []
    assert applied["after"] <= at_most * applied["before"]
    assert 0 <= applied["after"] - there < 1 << 21  # lists of files become shorter as well
    assert wrong_in_records(env, "lib/python3.12/site-packages") == []
    if "headers-nvidia" in {step["name"] for step in applied["steps"]}:  # said to be lost
        worked.pop("nvrtc_compiles", None)
    assert {check: answer for check, answer in answers(env).items() if check in worked} == worked
    copy = env.with_name(f"{name}-copied")
    shutil.rmtree(copy, ignore_errors=True)
    subprocess.run(["cp", "-r", env, copy], check=True)  # dates are those of now
    slim(copy, "--undo")
    assert contents(tree(copy)) == contents(before)
    shutil.rmtree(copy)
    slim(env, "--undo")
    assert tree(env) == before


def contents(found: Mapping[str, tuple[Any, ...]]) -> dict[str, tuple[object, ...]]:
    """Return what `cp -r` keeps: kinds, who may run what, and content; neither dates nor other people's rights."""
    return {path: (stat.S_IFMT(mode), mode & 0o111, content) for path, (mode, _, _, content) in found.items()}
