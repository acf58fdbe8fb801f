"""The local channel for real: interpreters, compilers and wheels of this machine, solved for and installed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from rattler import Channel, VirtualPackage, install, solve

from groundwork.errors import MegabuildError
from megabuild.providers import local_channel
from megabuild.providers.environment import machine_platform
from megabuild.providers.local import interpreters
from megabuild.providers.local_channel import LocalChannel

_NEEDS = (
    "python", "pip", "setuptools <82", "numpy 2.*", "pyyaml", "typing_extensions", "jinja2", "filelock", "pybind11",
    "pybind11-abi", "cmake >=3.27", "ninja", "gcc_linux-64 14.*", "gxx_linux-64 14.*", "sysroot_linux-64 2.17.*",
    "mkl-devel 2025.*", "libcblas * *_mkl", "libmagma-devel 2.9.0.*", "cuda-nvcc_linux-64 12.9.*",
)  # fmt: skip
#: enough to be interrupted in the middle of
_FEW = ("python", "pip", "setuptools <82", "pyyaml", "typing_extensions", "jinja2", "ninja")
_WANTED = ("3.10", "3.13", "3.13t", "3.14")

pytestmark = [
    pytest.mark.skipif(machine_platform() != "linux-64", reason="names of linux-64"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
]


@dataclass(frozen=True)
class _Made:
    channel: LocalChannel
    cache: Path
    installed: Path
    pythons: Sequence[str] = tuple(interpreters.some_of(_WANTED, lambda _: None))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> _Made:
    """A channel made in an empty cache."""
    cache = tmp_path_factory.mktemp("cache")
    return _Made(_make(cache), cache, tmp_path_factory.mktemp("packages"))


def _make(cache: Path, needs: Sequence[str] = _NEEDS, pythons: Sequence[str] = _WANTED) -> LocalChannel:
    return local_channel.make(
        needs,
        platform="linux-64",
        interpreters=interpreters.some_of(pythons, lambda _: None),
        cache=cache,
        stand_ins=True,
        report=lambda _: None,
    )


def _install(made: _Made, specs: Sequence[str], prefix: Path) -> None:
    async def work() -> None:
        channel = Channel(made.channel.path.as_uri())
        records = await solve([channel], specs, virtual_packages=VirtualPackage.detect())
        await install(records, target_prefix=prefix, cache_dir=made.installed, show_progress=False)

    asyncio.run(work())


@pytest.mark.parametrize("python", sorted(set(interpreters.find(lambda _: None)) & set(_WANTED)))
def test_an_environment_for_every_python_works(made: _Made, python: str, tmp_path: Path) -> None:
    gil = "*_cp313t" if python.endswith("t") else "*"
    specs = [f"python {python.removesuffix('t')}.* {gil}", "numpy 2.*", "pyyaml", "jinja2", "pip", "setuptools",
             "pybind11", "cmake", "ninja", "gxx_linux-64", "libcblas * *_mkl", "cuda-nvcc_linux-64 12.9.*"]  # fmt: skip
    _install(made, specs, tmp_path / "env")
    environment = {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    code = (
        "import ssl, ctypes, sqlite3, zlib, sys, sysconfig, numpy, yaml, jinja2, setuptools\n"
        "assert numpy.linalg.inv(numpy.eye(2)).sum() == 2\n"
        "print(sys.prefix, sysconfig.get_path('purelib'), sysconfig.get_path('include'), sep='\\n')"
    )
    program = [str(tmp_path / "env" / "bin" / "python"), "-c", code]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    env = tmp_path / "env"
    assert done.stdout.splitlines() == [
        str(env), f"{env}/lib/python{python}/site-packages", f"{env}/include/python{python}"
    ]  # fmt: skip
    for argv in (["cmake", "--version"], ["ninja", "--version"], ["pip", "--version"], ["f2py", "-v"]):
        subprocess.run(
            [str(env / "bin" / argv[0]), *argv[1:]], env=environment, check=True, stdout=subprocess.DEVNULL
        )
    assert (env / "include" / "pybind11" / "pybind11.h").is_file()
    assert not [path for path in env.rglob("*.pyc") if "conda-meta" not in path.parts]


def test_an_extension_module_builds_and_imports(made: _Made, tmp_path: Path) -> None:
    python = next(iter(made.pythons))
    _install(made, [f"python {python.removesuffix('t')}.*", "pybind11", "gxx_linux-64"], tmp_path / "env")
    env = tmp_path / "env"
    (tmp_path / "answer.cpp").write_text(
        '#include <pybind11/pybind11.h>\nPYBIND11_MODULE(answer, m) { m.attr("value") = 42; }\n'
    )
    script = f"""
    for file in {env}/etc/conda/activate.d/*.sh; do . "$file"; done
    $CXX $CPPFLAGS $CXXFLAGS -shared -I{env}/include/python{python} answer.cpp $LDFLAGS -o answer.so
    {env}/bin/python -c 'import answer; print(answer.value)'
    """
    environment = {"PATH": "/usr/bin:/bin", "CONDA_PREFIX": str(env)}
    done = subprocess.run(
        ["bash", "-euc", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "42\n", done.stderr


def test_a_second_time_takes_a_moment_and_no_network(made: _Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    began = time.monotonic()
    assert _make(made.cache) == made.channel
    assert time.monotonic() - began < 10  # about half a second when nothing else runs


def test_without_network_and_cache_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(MegabuildError, match="resolving wheels") as raised:
        _make(tmp_path)
    assert raised.value.remedy


def test_killed_half_way_the_next_run_completes(made: _Made, tmp_path: Path) -> None:
    cache, pythons = tmp_path / "cache", made.pythons[-1:]
    expected = _make(made.cache, _FEW, pythons)  # all of which is there already
    shutil.copytree(made.cache / "wheels", cache / "wheels")  # so that it is packing that is interrupted
    code = (
        "from pathlib import Path\nfrom megabuild.providers import local_channel\n"
        "from megabuild.providers.local.interpreters import some_of\n"
        f"local_channel.make({_FEW!r}, platform='linux-64', interpreters=some_of({pythons!r}, print),"
        f" cache=Path({str(cache)!r}), stand_ins=True, report=print)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout:
        for _ in range(3):
            process.stdout.readline()
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not list(cache.glob("channel/channels/*"))
    again = _make(cache, _FEW, pythons)
    assert {one.id for one in again.packages} == {one.id for one in expected.packages}
    assert not (cache / "channel" / "tmp").exists()
