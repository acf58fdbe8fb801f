"""install-pyg with the real PyTorch and a real extension; fetches PyTorch and compiles for minutes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from megabuild.configs.config import load

pytestmark = pytest.mark.long

#: A spline of degree 1 over one dimension, by hand: the basis is 1-f and f at the two control points around a value.
_CHECK = """\
import torch
from torch_spline_conv import spline_basis
pseudo = torch.tensor([[0.0], [0.125], [0.5], [0.75]], dtype=torch.float64, requires_grad=True)
basis, index = spline_basis(pseudo, torch.tensor([5]), torch.tensor([1], dtype=torch.uint8), 1)
place = pseudo.detach().flatten() * 4
low = place.floor()
assert torch.allclose(basis.detach()[:, 0], 1 - (place - low)), basis
assert torch.allclose(basis.detach()[:, 1], place - low), basis
assert index[:, 0].tolist() == low.long().tolist(), index
basis[:, 1].sum().backward()
assert torch.allclose(pseudo.grad, torch.full_like(pseudo, 4.0)), pseudo.grad
print("computes")
"""


def run(*command: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True)


def test_spline_conv_is_compiled_for_the_torch_that_is_there(tmp_path: Path, repository: Path) -> None:
    version = load(repository, "linux_64_cpu").torch_version
    venv, cache = tmp_path / "venv", str(tmp_path / "cache")
    python = venv / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    got = run(python, "-m", "pip", "install", "-q", f"torch=={version}")
    if got.returncode != 0:
        pytest.skip(f"PyTorch {version} is not to be had for this Python: {got.stderr.strip()[-200:]}")
    if run(python, "-c", "import torch; print(torch.version.cuda)").stdout.strip() != "None":
        pytest.skip("pip's PyTorch for this Python is one for CUDA")
    command = (sys.executable, repository / "scripts" / "install-pyg", "--python", venv, "--json")
    done = run(*command, "--pyg", "source", "torch_spline_conv", MEGABUILD_CACHE=cache)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["extensions"]
    assert (row["how"], row["exit_code"]) == ("source", 0)
    check = run(python, "-I", "-c", _CHECK)
    assert check.stdout == "computes\n", check.stderr
    again = run(*command, "torch_spline_conv", MEGABUILD_CACHE=cache)
    assert json.loads(again.stdout)["extensions"][0]["how"] == "there"
