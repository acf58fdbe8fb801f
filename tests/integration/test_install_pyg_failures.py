"""install-pyg when something is wrong: said early and by its cause, by real tools that really fail."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch_model
from small_files import program
from test_install_pyg import environment

from groundwork.errors import MegabuildError, PreflightError
from pyg_extensions.fetch_sources import unpack_sources
from pyg_extensions.install.toolchain import check_cpp, check_cuda, cuda_home
from pyg_extensions.install.user_environment import UserEnvironment, look
from pyg_extensions.table import ExtensionRelease, find


def there(folder: Path, **changes: Any) -> UserEnvironment:
    """An environment for CUDA of which only the folder is real."""
    return environment(interpreter=folder / "bin" / "python", prefix=folder, site=folder, **changes)


def problem(call: Any) -> MegabuildError:
    with pytest.raises(PreflightError) as raised:
        call()
    assert raised.value.remedy
    return raised.value


# ---- compilers -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [("CXX", "g++ -include /nowhere.h", "fatal error: /nowhere.h"), ("CC", "gcc-99 -pipe", "No such file")],
)
def test_a_compiler_that_does_not_run_is_named(variable: str, value: str, said: str, tmp_path: Path) -> None:
    check_cpp(os.environ, tmp_path)
    error = problem(lambda: check_cpp({**os.environ, variable: value}, tmp_path))
    assert said in error.message
    assert variable in error.remedy


@pytest.fixture
def toolkit(tmp_path: Path) -> Path:
    torch_model.make_nvcc(tmp_path / "cuda-13.0")
    return tmp_path / "cuda-13.0"


def test_an_nvcc_that_is_a_script_is_asked_for_its_home(toolkit: Path, tmp_path: Path) -> None:
    wrapper = program(tmp_path / "bin" / "nvcc", f'exec {toolkit}/bin/nvcc "$@"')
    environ = {"PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
    home = cuda_home(there(tmp_path / "env"), environ)
    assert home == toolkit
    check_cuda(there(tmp_path / "env"), home, ("9.0", "12.0+PTX"), environ, tmp_path)


@pytest.mark.parametrize(
    ("version", "proposed"),
    [
        ("12.8", "install NVIDIA's CUDA toolkit 12 and set CUDA_HOME"),
        ("13.0", "[nvcc,nvvm,crt,cccl,curand,profiler]==13.0.*"),
    ],
)
def test_a_missing_nvcc_is_proposed_from_where_it_exists(version: str, proposed: str, tmp_path: Path) -> None:
    error = problem(
        lambda: cuda_home(
            there(tmp_path, cuda_version=version), {"PATH": str(tmp_path)}, usual=tmp_path / "cuda"
        )
    )
    assert proposed in error.remedy


@pytest.mark.long
def test_the_proposed_compiler_matches_the_toolkit_that_pytorch_requires(tmp_path: Path) -> None:
    # PyTorch 2.11 requires this release, of which nvcc takes any nvvm: without its own, the newest
    required, report = "cuda-toolkit[cudart]==13.0.2", tmp_path / "report.json"
    error = problem(lambda: cuda_home(there(tmp_path), {"PATH": str(tmp_path)}, usual=tmp_path / "cuda"))
    proposed = next(word.rstrip(";") for word in shlex.split(error.remedy) if "cuda-toolkit" in word)
    options = ["-q", "--dry-run", "--ignore-installed", "--report", str(report)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, required, proposed], check=True)
    packages = [row["metadata"] for row in json.loads(report.read_text())["install"]]
    versions = {package["name"]: package["version"] for package in packages}
    assert {versions[f"nvidia-{part}"][:5] for part in ("cuda-nvcc", "nvvm", "cuda-crt")} == {"13.0."}


def test_what_cuda_lacks_is_named_before_anything_is_compiled(toolkit: Path, tmp_path: Path) -> None:
    def said(*archs: str, version: str = "13.0") -> str:
        asked = there(tmp_path, cuda_version=version)
        return problem(lambda: check_cuda(asked, toolkit, archs, os.environ, tmp_path)).message

    assert "CUDA 12.6" in said("9.0", version="12.6")
    assert "Unsupported gpu architecture 'compute_45'" in said("4.5")
    (toolkit / "include" / "cusparse.h").unlink()
    assert "cusparse.h: No such file" in said("9.0")


# ---- the environment -----------------------------------------------------------------------------------------------
@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment with a model of PyTorch for the CPU."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (site,) = tmp_path.glob("venv/lib/python*/site-packages")
    torch_model.make_torch(site, None)
    return tmp_path / "venv"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise OSError('libcudart.so.13: cannot open shared object file')", "OSError: libcudart.so.13"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "SIGILL"),
    ],
)
def test_a_torch_that_cannot_be_imported_is_told_from_none(code: str, said: str, venv: Path) -> None:
    (package,) = venv.glob("lib/python*/site-packages/torch")
    (package / "__init__.py").write_text(code)
    error = problem(lambda: look(venv / "bin" / "python"))
    assert "`import torch`" in error.message
    assert said in error.message
    shutil.rmtree(package)
    assert "No module named 'torch'" in problem(lambda: look(venv / "bin" / "python")).message


def test_sources_that_are_read_only_are_copied_to_be_written_to(tmp_path: Path) -> None:
    checkout = tmp_path / "sources" / "pyg-lib" / "deep"
    checkout.mkdir(parents=True)
    (checkout.parent / "setup.py").touch()
    (checkout / "file").touch()
    for path in (checkout / "file", checkout.parent / "setup.py", checkout, checkout.parent):
        path.chmod(path.stat().st_mode & ~0o222)
    (tmp_path / "work").mkdir()
    release, folder = ExtensionRelease(name="pyg_lib"), tmp_path / "sources"
    copy = unpack_sources(find("pyg-lib"), release, tmp_path / "work", folder=folder, cache=tmp_path)
    assert all(path.stat().st_mode & 0o200 for path in (copy, copy / "deep", copy / "deep" / "file"))
