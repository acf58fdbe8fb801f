"""The local channel for real: interpreters, compilers and wheels of this machine, solved for and installed."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from debian_inputs import install_packages

from groundwork.channel import Channel
from groundwork.machine import machine_platform
from megabuild.configs.config import load
from megabuild.providers import local_channel
from megabuild.providers.environment import ProviderRequest
from megabuild.providers.local import interpreters
from megabuild.providers.local_channel import LocalChannel

_NEEDS = (
    "python", "pip", "setuptools <82", "numpy 2.*", "pyyaml", "typing_extensions", "jinja2", "filelock", "pybind11",
    "pybind11-abi", "cmake >=3.27", "ninja", "gcc_linux-64 14.*", "gxx_linux-64 14.*", "sysroot_linux-64 2.17.*",
    "mkl-devel 2025.*", "libcblas * *_mkl", "libmagma-devel 2.9.0.*", "cuda-nvcc_linux-64 12.9.*",
)  # fmt: skip
_WANTED = ("3.10", "3.13t")

pytestmark = [
    pytest.mark.skipif(machine_platform() != "linux-64", reason="names of linux-64"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache, empty at first."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def channel(cache: Path) -> LocalChannel:
    return _make(cache)


def _make(cache: Path) -> LocalChannel:
    config = load(Path(__file__).parents[2], "linux_64_cpu")
    request = ProviderRequest(config=config, planned=(), cache=cache, report=lambda _: None, rehearsal=True)
    pythons = interpreters.some_of(_WANTED, lambda _: None)
    return local_channel.make(request, _NEEDS, pythons, survey=False)


@pytest.mark.parametrize("python", _WANTED)
def test_an_environment_for_every_python_works(
    python: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    # not asked while tests are collected: a Python that answers one process of pytest may be too slow for the other
    if python not in interpreters.find(lambda _: None):
        pytest.skip(f"Python {python} is not installed here")
    channel: LocalChannel = request.getfixturevalue("channel")
    gil = "*_cp313t" if python.endswith("t") else "*"
    specs = [f"python {python.removesuffix('t')}.* {gil}", "numpy 2.*", "pyyaml", "jinja2", "pip", "setuptools",
             "pybind11", "cmake", "ninja", "gxx_linux-64", "libcblas * *_mkl", "cuda-nvcc_linux-64 12.9.*"]  # fmt: skip
    env = tmp_path / "env"
    install_packages(specs, [Channel.of_folder(channel.path)], env)
    environment = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    code = (
        "import ssl, ctypes, sqlite3, zlib, sys, sysconfig, numpy, yaml, jinja2, setuptools\n"
        "assert numpy.linalg.inv(numpy.eye(2)).sum() == 2\n"
        "print(sys.prefix, sysconfig.get_path('purelib'), sysconfig.get_path('include'), sep='\\n')"
    )
    program = [str(env / "bin" / "python"), "-c", code]
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        str(env), f"{env}/lib/python{python}/site-packages", f"{env}/include/python{python}"
    ]  # fmt: skip
    for argv in (["cmake", "--version"], ["ninja", "--version"], ["pip", "--version"], ["f2py", "-v"]):
        subprocess.run(
            [str(env / "bin" / argv[0]), *argv[1:]], env=environment, check=True, stdout=subprocess.DEVNULL
        )
    assert (env / "include" / "pybind11" / "pybind11.h").is_file()
    tags = {path.name.split(".")[-2] for path in (env / "lib").rglob("*.pyc")}
    assert tags == {f"cpython-{python.replace('.', '')}"}, "byte code of this Python, from the packages"


def test_a_second_time_takes_a_moment_and_no_network(
    channel: LocalChannel, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    began = time.monotonic()
    assert _make(cache) == channel
    assert time.monotonic() - began < 10  # about half a second when nothing else runs
