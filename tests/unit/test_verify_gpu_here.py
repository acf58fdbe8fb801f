"""The GPUs of this machine, for which `slim --arch-list native` keeps code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_files import program, shared_library

from gpu_tools.verify import gpu, gpu_probe
from groundwork.errors import UnknownError


def probed(folder: Path, code: str, *, libcuda: str = "", torch: str = "") -> str:
    """Run some code of the probe beside a libcuda.so.1 and a torch of one's own; return what it prints."""
    if libcuda:
        shared_library(folder / "libcuda.so.1", libcuda)
    if torch:
        (folder / "torch.py").write_text(torch)
    path = os.pathsep.join([str(folder), *sys.path])
    environ = {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": path, "PATH": "/nowhere"}
    words = [sys.executable, "-c", f"from gpu_tools.verify.gpu_probe import *; {code}"]
    return subprocess.run(words, env=environ, capture_output=True, text=True, check=True).stdout


NO_GPU = "int cuInit(unsigned f) { return %d; } int cuDriverGetVersion(int *v) { *v = 13020; return 0; }"


@pytest.mark.parametrize(
    ("libcuda", "said"),
    [
        ("int nothing;", "not an NVIDIA driver's"),
        (NO_GPU % 804, "cuda-compat"),
        (NO_GPU % 999, "dmesg"),
        ("", "no NVIDIA"),
        (None, "damaged"),
    ],
)
def test_a_driver_that_does_not_work_is_told_from_none(
    libcuda: str | None, said: str, tmp_path: Path
) -> None:
    if libcuda is None:
        (tmp_path / "libcuda.so.1").write_bytes(b"\x7fELF")
    assert said in probed(tmp_path, "print(driver()['error'])", libcuda=libcuda or "")


@pytest.mark.parametrize("error", ["ImportError()", "AssertionError", "OSError('')"])
def test_an_error_without_words_ends_no_probe(error: str, tmp_path: Path) -> None:
    kind = error.partition("(")[0]
    assert f'"torch_error": "{kind}"' in probed(tmp_path, "main()", torch=f"raise {error}\n")
    raising = f"OPERATIONS['torch'] = lambda *_: exec({f'raise {error}'!r})"
    code = f"{raising}; print(compare(None, 'torch'))"
    assert f"'error': '{kind}'" in probed(tmp_path, code, torch="x = 1\n")


@pytest.mark.parametrize("name", sorted(gpu_probe.OPERATIONS))
@pytest.mark.parametrize("number", [5, 6])
def test_a_gpu_that_computes_something_else_is_not_ok(
    number: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each operation; a torch stands for it that has 5 on the CPU, and compares as the real one does."""

    class Answer(int):
        def cpu(self) -> int:
            return int(self)

    def assert_close(answer: int, expected: int, **_: float) -> None:
        assert answer == expected, "Tensor-likes are not close!"

    torch = SimpleNamespace(
        cuda=SimpleNamespace(synchronize=lambda: None),
        testing=SimpleNamespace(assert_close=assert_close),
        allclose=lambda answer, expected, **_: answer == expected,
    )
    monkeypatch.setitem(
        gpu_probe.OPERATIONS, name, lambda _, device: Answer(5 if device == "cpu" else number)
    )
    found = gpu_probe.compare(torch, name)
    assert (found["name"], found["ok"]) == (name, number == 5)
    assert bool(found["error"]) == (number != 5)


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_the_driver_tells_which_gpus_there_are(tmp_path: Path) -> None:
    source = (
        "int cuInit(unsigned f) { return 0; }\n"
        "int cuDriverGetVersion(int *v) { *v = 13020; return 0; }\n"
        "int cuDeviceGetCount(int *n) { *n = 2; return 0; }\n"
        "int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 8 + d : 6 * (1 - d); return 0; }\n"
    )
    assert probed(tmp_path, "print(driver()['archs'])", libcuda=source) == "['8.6', '9.0']\n"


def test_native_means_this_machines_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_driver = """test "$3" = driver && echo '::gpu-probe::{"driver": {"archs": ["8.6", "9.0"]}}'"""
    answer = program(tmp_path / "python", only_driver)
    monkeypatch.setattr(sys, "executable", str(answer))
    assert gpu.replace_native("7.5; native,12.0+PTX") == "7.5; 8.6;9.0,12.0+PTX"
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    assert gpu.replace_native("sm_90") == "sm_90"  # starts no process


@pytest.mark.parametrize("signal", ["SIGBUS", "SIGABRT"])
def test_a_driver_that_ends_its_process_is_an_error_with_words(
    signal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"#include <signal.h>\n__attribute__((constructor)) static void end() {{ raise({signal}); }}\n"
    probed(tmp_path, "", libcuda=code)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with pytest.raises(UnknownError, match=rf"\({signal}\) while loading libcuda\.so\.1"):
        gpu.replace_native("native")


def test_each_gpu_that_torch_uses_is_listed() -> None:
    gpus = ["a", "b", "c"]
    cuda = SimpleNamespace(
        device_count=lambda: len(gpus),
        get_device_capability=lambda index: (8 + index, index),
        get_device_name=gpus.__getitem__,
    )
    assert gpu_probe.devices(SimpleNamespace(cuda=cuda)) == [
        {"name": "a", "arch": "sm_80"},
        {"name": "b", "arch": "sm_91"},
        {"name": "c", "arch": "sm_102"},
    ]
