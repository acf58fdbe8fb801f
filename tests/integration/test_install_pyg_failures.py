"""install-pyg when something is wrong: said early and by its cause, by real tools that really fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch_model

from groundwork.errors import MegabuildError, PreflightError
from pyg_extensions.archives import unpack_sources
from pyg_extensions.install.toolchain import check_cpp, check_cuda, cuda_home
from pyg_extensions.install.user_environment import UserEnvironment, look
from pyg_extensions.table import ExtensionRelease, find

NAME, VERSION = "torch_spline_conv", "9.9"


def there(folder: Path, **changes: Any) -> UserEnvironment:
    """An environment for CUDA of which only the folder is real."""
    values: dict[str, Any] = {
        "interpreter": folder / "bin" / "python", "prefix": folder, "site": folder, "python": "3.11",
        "platform": "linux-64", "glibc": "2.36", "torch_version": "2.13.0+cu130", "cuda_version": "13.0",
        "torch_archs": ("9.0",), "devices": (), "distributions": {},
    }  # fmt: skip
    return UserEnvironment(**{**values, **changes})


def problem(call: Any) -> MegabuildError:
    with pytest.raises(PreflightError) as raised:
        call()
    assert raised.value.remedy
    return raised.value


# ---- compilers -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("CXX", "clang++-99", "CXX is 'clang++-99', which is not found"),
        (
            "CXX",
            "g++ -include /nowhere.h",
            "does not compile two lines of C++: <command-line>: fatal error: /nowhere.h",
        ),
        ("CC", "gcc-99 -pipe", "CC is 'gcc-99 -pipe', which is not found"),
    ],
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
    wrapper = tmp_path / "bin" / "nvcc"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {toolkit}/bin/nvcc "$@"\n')
    wrapper.chmod(0o755)
    environ = {"PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
    home = cuda_home(there(tmp_path / "env"), environ)
    assert home == toolkit
    check_cuda(there(tmp_path / "env"), home, ("9.0", "12.0+PTX"), environ, tmp_path)


def test_what_cuda_lacks_is_named_before_anything_is_compiled(toolkit: Path, tmp_path: Path) -> None:
    def said(*archs: str, version: str = "13.0") -> str:
        environment = there(tmp_path, cuda_version=version)
        return problem(lambda: check_cuda(environment, toolkit, archs, os.environ, tmp_path)).message

    assert "another CUDA than PyTorch, which is for 12.6" in said("9.0", version="12.6")
    assert "Unsupported gpu architecture 'compute_45'" in said("4.5")
    (toolkit / "include" / "cusparse.h").unlink()
    assert "cusparse.h: No such file" in said("9.0")
    (toolkit / "bin" / "nvcc").write_text("#!/bin/sh\necho cannot execute cicc >&2; exit 1\n")
    assert "cannot execute cicc" in said("9.0")


# ---- the environment -----------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with pip and setuptools of ours, and with a model of PyTorch for the CPU."""
    path = tmp_path_factory.mktemp("plain") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", path], check=True)
    (site,) = path.glob("lib/python*/site-packages")
    torch_model.make_torch(site, None)
    return path


@pytest.fixture
def venv(tmp_path: Path, plain: Path) -> Path:
    return Path(shutil.copytree(plain, tmp_path / "venv", symlinks=True))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise OSError('libcudart.so.13: cannot open shared object file')", "OSError: libcudart.so.13"),
        ("import sys; sys.exit('no licence')", "SystemExit: no licence"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "SIGILL"),
    ],
)
def test_a_torch_that_cannot_be_imported_is_told_from_none(code: str, said: str, venv: Path) -> None:
    (package,) = venv.glob("lib/python*/site-packages/torch")
    (package / "__init__.py").write_text(code)
    error = problem(lambda: look(venv / "bin" / "python"))
    assert "has PyTorch, but `import torch`" in error.message
    assert said in error.message
    shutil.rmtree(package)
    assert "its files are missing" in problem(lambda: look(venv / "bin" / "python")).message


@pytest.fixture
def read_only(venv: Path) -> Iterator[Path]:
    """The environment, on a disk that is read-only."""
    done = subprocess.run(["mount", "--bind", venv, venv], check=False, capture_output=True)
    if done.returncode != 0:
        pytest.skip("only root may mount")
    subprocess.run(["mount", "-o", "remount,ro,bind", venv], check=True)
    yield venv
    subprocess.run(["umount", "-l", venv], check=True)


def test_an_environment_that_cannot_be_written_to_is_said_to_be(read_only: Path) -> None:
    error = problem(look(read_only / "bin" / "python").check_writable)
    assert "site-packages cannot be written to: Read-only file system" in error.message


def test_sources_that_are_read_only_are_copied_to_be_written_to(tmp_path: Path) -> None:
    checkout = tmp_path / "sources" / "pyg-lib" / "deep"
    checkout.mkdir(parents=True)
    (checkout.parent / "setup.py").touch()
    (checkout / "file").touch()
    for path in (checkout / "file", checkout.parent / "setup.py", checkout, checkout.parent):
        path.chmod(path.stat().st_mode & ~0o222)
    (tmp_path / "work").mkdir()
    copy = unpack_sources(
        find("pyg-lib"),
        ExtensionRelease(name="pyg_lib"),
        tmp_path / "work",
        folder=tmp_path / "sources",
        cache=tmp_path,
    )
    assert all(path.stat().st_mode & 0o200 for path in (copy, copy / "deep", copy / "deep" / "file"))


# ---- the whole program ---------------------------------------------------------------------------------------------
def started(repository: Path, venv: Path, folder: Path, **changes: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(repository / "scripts"),
        "MEGABUILD_CACHE": str(folder / "cache"),
        "TMPDIR": str(folder / "tmp"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **changes,
    }
    (folder / "tmp").mkdir(exist_ok=True)
    options = ["--python", str(venv), "--pyg", "source", "--pyg-sources", str(folder / "sdists")]
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from command_line.install_pyg import main; main()",
            *options,
            f"{NAME}=={VERSION}",
        ],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left(folder: Path) -> list[Path]:
    places = (folder / "tmp", folder / "cache" / "install-pyg")
    return [path for place in places if place.is_dir() for path in place.iterdir()]


def test_a_setup_py_that_fails_is_no_matter_of_the_network(
    venv: Path, repository: Path, tmp_path: Path
) -> None:
    sdists = tmp_path / "sdists"
    archive = torch_model.make_sdist(NAME, VERSION, sdists)
    source = sdists / f"{NAME}-{VERSION}"
    (source / "setup.py").write_text("raise RuntimeError('this needs a full moon')\n")
    subprocess.run(["tar", "-czf", archive, "-C", sdists, source.name], check=True)
    process = started(repository, venv, tmp_path)
    out, said = process.communicate()
    assert process.returncode == 8, said
    words = " ".join(out.split())
    assert "its setup.py fails: RuntimeError: this needs a full moon" in words
    assert "network" not in words
    assert "compiling" not in said
    assert left(tmp_path) == []


def compiling(venv: Path, repository: Path, tmp_path: Path) -> tuple[subprocess.Popen[str], int]:
    """A run in the middle of a compile that takes long, and the compiler's process id."""
    torch_model.make_sdist(NAME, VERSION, tmp_path / "sdists")
    compiler = tmp_path / "slow-cc"
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in *csrc*) mktemp; touch here; echo $$ > '
        f'{tmp_path}/compiling; sleep 100;; esac\nexec gcc "$@"\n'
    )
    compiler.chmod(0o755)
    process = started(repository, venv, tmp_path, CC=str(compiler))
    until = time.monotonic() + 120
    while not (tmp_path / "compiling").exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    return process, int((tmp_path / "compiling").read_text())


def test_a_run_that_is_killed_leaves_no_compiler_behind(venv: Path, repository: Path, tmp_path: Path) -> None:
    process, compiler = compiling(venv, repository, tmp_path)
    process.kill()
    process.communicate()
    until = time.monotonic() + 30
    while Path(f"/proc/{compiler}/cwd").is_dir():
        assert time.monotonic() < until, "the compiler goes on"
        time.sleep(0.1)
