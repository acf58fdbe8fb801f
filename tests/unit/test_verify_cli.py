"""`megabuild verify` and `megabuild verify-gpu` as a user and a script see them."""

from __future__ import annotations

import _ctypes
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from calling import call
from package_files import rot
from small_files import program
from tiny import make_package
from wheel_files import make_wheel

from command_line.run_command import Invocation
from gpu_tools.verify import gpu, gpu_probe
from gpu_tools.verify.check import LibraryVerdict, Verdict
from gpu_tools.verify.inspected_environment import find_python
from gpu_tools.verify.verify_report import gpu_lines, gpu_result, shorten_code
from groundwork.errors import UnknownError
from megabuild.engine import archive
from megabuild.store import published


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """A wheel of torch_spline_conv with a library that is none of its own, and that lacks the others."""
    files = {"torch_spline_conv/_basis_cuda.so": Path(_ctypes.__file__).read_bytes()}
    return make_wheel(tmp_path, "torch_spline_conv-1.2.2+pt213cu130-cp312-cp312-linux_x86_64.whl", files)


def test_a_failing_verdict_has_an_exit_code_of_its_own(wheel: Path, invocation: Invocation) -> None:
    done = call(invocation, "verify", str(wheel))
    assert (done.exit_code, "no device code" in done.stdout) == (14, True)
    done = call(invocation, "verify", "--json", str(wheel), str(wheel))
    assert done.exit_code == 14
    first, second = json.loads(done.stdout)["subjects"]
    assert first == second
    assert (first["subject"], first["ok"]) == (wheel.name, False)
    assert [one["path"] for one in first["libraries"] if "weighting" in one["reason"]]
    library = first["libraries"][0]
    assert (library["torch"], library["module"], library["ok"]) == ("2.13", "torch_spline_conv", False)


def test_a_published_package_that_rotted_is_refused(invocation: Invocation, tmp_path: Path) -> None:
    made = archive.read(make_package(tmp_path / "linux-64", "one", "1", "0"))
    channel, fingerprints = tmp_path / "packages", {made.path.name: "f"}
    published.publish(channel, [made], platform="linux-64", fingerprints=fingerprints, seconds={})
    path = channel / "linux-64" / made.path.name
    assert call(invocation, "verify", str(path)).exit_code != 6
    rot(path)
    damages = [path.read_bytes(), make_package(tmp_path, "one", "1", "0", {"share/x": "x"}).read_bytes()]
    for content in damages:  # one that cannot be read, and a sound package
        path.write_bytes(content)
        done = call(invocation, "verify", str(path))
        assert (done.exit_code, f"{path}: damaged since" in done.stderr) == (6, True)


def test_a_package_without_libraries_is_not_called_good(tmp_path: Path, invocation: Invocation) -> None:
    path = make_wheel(tmp_path, "of_somebody-2.1.2-py3-none-any.whl", {"of_somebody/__init__.py": b""})
    done = call(invocation, "verify", str(path))
    assert (done.exit_code, "no libraries" in done.stdout) == (14, True)


def on_h200(**more: Any) -> dict[str, Any]:
    """Return what a probe answers on a machine with a GPU."""
    answer = {
        "driver": {"cuda": "13.0", "count": 1}, "torch": "2.13.0+cu130",
        "torch_cuda": "13.0", "devices": [{"name": "NVIDIA H200", "arch": "sm_90"}],
        "operations": [{"name": "torch", "ok": True, "error": ""}],
    }  # fmt: skip
    return answer | more


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment with three libraries: with code for 9.0, with PTX only, and with neither."""
    libraries = (
        LibraryVerdict(path="native.so", module="torch", archs=("sm_90",)),
        LibraryVerdict(path="ptx.so", module="torch_scatter", archs=("sm_80",), ptx=("compute_80",)),
        LibraryVerdict(path="missing.so", module="torch_sparse", archs=("sm_120",)),
    )
    monkeypatch.setattr(gpu, "verify", lambda environment: Verdict(subject="env", libraries=libraries))


@pytest.mark.usefixtures("carried")
def test_each_library_is_compared_with_the_gpu() -> None:
    report = gpu.compare_with_gpus(Path("env"), on_h200())
    assert [one["runs"] for one in report["libraries"]] == ["native", "PTX-only", "missing"]
    assert not report["ok"]
    (fault,) = report["faults"]
    assert re.match(r"missing\.so .*sm_90: .*9\.0.*TORCH_CUDA_ARCH_LIST", fault)
    lines = [*gpu_lines(report)]
    assert "GPU: NVIDIA H200, sm_90" in lines
    two = gpu.compare_with_gpus(Path("env"), on_h200(devices=2 * [{"name": "NVIDIA H200", "arch": "sm_90"}]))
    assert (len(two["devices"]), two["libraries"]) == (2, report["libraries"]), "each architecture once"
    assert max(len(line) for line in lines if "  " in line.strip()) <= 80  # tables


@pytest.mark.parametrize("is_right", [True, False])
def test_the_exit_code_tells_whether_the_gpu_runs_everything(
    is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = LibraryVerdict(path="native.so", module="torch", archs=("sm_90",))
    monkeypatch.setattr(gpu, "verify", lambda environment: Verdict(subject="env", libraries=(library,)))
    operations = [{"name": "torch", "ok": is_right, "error": ""}]
    result = gpu_result(gpu.compare_with_gpus(Path("env"), on_h200(operations=operations)))
    assert (result.document["ok"], result.exit_code) == (is_right, 0 if is_right else 14)


@pytest.mark.parametrize(
    ("driver", "torch", "fits"),
    [
        ("13.0", "13.0", True),
        ("13.0", "13.2", True),  # any driver of a major version runs all of its minor versions
        ("13.2", "12.9", True),
        ("12.9", "13.0", False),
        ("9.2", "12.4", False),
        ("12.4", "9.2", True),
    ],
)
def test_a_driver_runs_every_minor_version_of_its_cuda_and_older_ones(
    driver: str, torch: str, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = LibraryVerdict(path="native.so", module="torch", archs=("sm_90",))
    monkeypatch.setattr(gpu, "verify", lambda environment: Verdict(subject="env", libraries=(library,)))
    answer = on_h200(driver={"cuda": driver, "count": 1}, torch_cuda=torch)
    report = gpu.compare_with_gpus(Path("env"), answer)
    assert (report["ok"], not report["faults"]) == (fits, fits)


@pytest.mark.parametrize(
    ("archs", "ptx", "shown"),
    [
        ("sm_75 sm_90a sm_100 sm_120", [], "7.5 9.0a 10.0 12.0"),
        ("sm_80 sm_90 sm_100 sm_110 sm_120", [], "8.0 9.0 10.0 11.0 12.0"),  # as wide as the column
        ("sm_80 sm_90a sm_100 sm_110 sm_120", [], "8.0 to 12.0 (5)"),
        ("sm_80 sm_90 sm_100 sm_120", ["compute_120"], "8.0 9.0 10.0 12.0 +PTX"),
        ("sm_80 sm_90a sm_100 sm_120", ["compute_120"], "8.0 to 12.0 (4) +PTX"),
        ("", ["compute_120"], "+PTX"),
    ],
)
def test_device_code_is_shortened_to_its_column(archs: str, ptx: list[str], shown: str) -> None:
    assert shorten_code(archs.split(), ptx) == shown


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ({"driver": {"cuda": "12.4", "count": 1}}, "the driver supports CUDA 12.4 at most, torch needs 13.0"),
        ({"torch_cuda": None, "devices": []}, "torch was built without CUDA"),
        ({"devices": []}, "torch cannot use the GPU"),
    ],
)
@pytest.mark.usefixtures("carried")
def test_what_is_wrong_with_driver_and_torch_is_said(answer: dict[str, Any], fault: str) -> None:
    report = gpu.compare_with_gpus(Path("env"), on_h200(**answer))
    assert any(found.startswith(fault) for found in report["faults"])
    assert not report["ok"]


@pytest.mark.usefixtures("carried")
def test_faults_of_operations_are_listed_with_the_others() -> None:
    operations = [
        {"name": name, "ok": name == "torch", "error": "boom"} for name in ("torch", "torch_sparse")
    ]
    lines = [*gpu_lines(gpu.compare_with_gpus(Path("env"), on_h200(operations=operations)))]
    assert [line for line in lines if "boom" in line] == ["✗ torch_sparse: boom"]
    assert len([line for line in lines if line.startswith("✗ missing.so")]) == 1


def test_without_a_driver_a_torch_for_the_cpu_is_no_fault() -> None:
    answer = on_h200(driver={"error": "no NVIDIA driver"}, torch_cuda=None, devices=[], operations=[])
    report = gpu.compare_with_gpus(Path("env"), answer)
    assert (report["ok"], report["faults"], report["no_gpu"]) == (False, [], "no NVIDIA driver")
    assert gpu_result(report).exit_code == UnknownError.exit_code


@pytest.mark.skipif(bool(gpu_probe.driver().get("count")), reason="this machine has a GPU")
def test_without_a_gpu_it_says_so_with_a_code_of_its_own(tmp_path: Path, invocation: Invocation) -> None:
    folder = tmp_path / "env"
    folder.mkdir()
    assert call(invocation, "verify-gpu", str(folder)).exit_code == 2, "a folder without Python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    done = call(invocation, "verify-gpu", str(folder))  # it has no torch
    assert (done.exit_code, "No module named" in done.stdout) == (14, True)
    torch = "__version__ = '2.13.0'\nclass version: cuda = '13.0'\nclass cuda: is_available = staticmethod(bool)\n"
    (find_python(folder).folder / "torch.py").write_text(torch)
    shown = call(invocation, "verify-gpu", str(folder))
    assert (shown.exit_code, "GPU: none" in shown.stdout, shown.stdout.count("no NVIDIA")) == (19, True, 1)
    done = call(invocation, "verify-gpu", "--json", str(folder))
    assert done.exit_code == 19
    answer = json.loads(done.stdout)
    assert (answer["ok"], answer["devices"], answer["operations"]) == (False, [], [])


@pytest.mark.parametrize("torch", ["3.11", "3.12", "3.13", None])
def test_of_several_pythons_the_one_with_torch_is_examined(torch: str | None, tmp_path: Path) -> None:
    for python in ("3.11", "3.12", "3.13"):
        site = tmp_path / f"lib/python{python}/site-packages"
        (site / "torch" if python == torch else site).mkdir(parents=True)
    assert find_python(tmp_path).python == (torch or "3.11")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo broken >&2; exit 3", "exit code 3: broken"),
        (
            f"for step in driver 'importing torch'; do echo \"{gpu_probe.STEP}$step\"; done; kill -BUS $$",
            "by signal 7 (SIGBUS) while importing torch",
        ),
    ],
)
@pytest.mark.parametrize("name", ["python", "python3.12"])
def test_an_environment_whose_python_breaks_is_reported(
    name: str, script: str, said: str, tmp_path: Path
) -> None:
    """The Python whose site-packages has torch runs; ``python`` may be another one."""
    (tmp_path / "lib/python3.12/site-packages").mkdir(parents=True)
    program(tmp_path / "bin/python", "exit 5")
    program(tmp_path / "bin" / name, script)
    (fault,) = gpu.examine(tmp_path)["faults"]
    assert fault.endswith(said)
