"""What only a machine with a GPU can show: driver, device and libraries together, and operations that really run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cuda_code import cuda_archs
from gpu_tools.verify import gpu_probe
from gpu_tools.verify.check import verify
from gpu_tools.verify.inspected_package import find_python
from groundwork import process
from groundwork.errors import UsageError

_SECONDS = 600  # the first use of PTX-only code compiles all of it


@dataclass(frozen=True, kw_only=True)
class LibraryOnDevice:
    """How the device code of a library runs on a GPU: ``native``, ``PTX-only`` or ``missing``."""

    path: str
    device: str
    archs: tuple[str, ...]
    ptx: tuple[str, ...]
    runs: str


@dataclass(frozen=True, kw_only=True)
class GpuReport:
    """Everything that verify-gpu found."""

    environment: str  #: The environment examined.
    #: The driver's version, and the newest CUDA that it knows; None without a driver.
    driver: str | None
    driver_cuda: str | None
    #: The version of torch, and its CUDA; None where torch cannot be imported, or has none.
    torch: str | None
    torch_cuda: str | None
    present: int  #: How many GPUs the driver finds.
    devices: tuple[
        dict[str, str], ...
    ]  #: Those that torch can use: ``name``, and ``arch`` such as ``sm_90``.
    no_gpu: str  #: Why none was tried.
    #: What was compared, and what was run, with ``name``, ``ok``, ``error``; both empty without a GPU.
    libraries: tuple[LibraryOnDevice, ...]
    operations: tuple[dict[str, Any], ...]
    faults: tuple[str, ...]  #: What is wrong, with the remedy.

    @property
    def ok(self) -> bool:
        """Whether there is a GPU, and everything ran on it."""
        return bool(self.devices) and not self.faults and all(item["ok"] for item in self.operations)

    def to_json(self) -> dict[str, Any]:
        """Return this as JSON values."""
        return {"ok": self.ok, **asdict(self)}


def examine(environment: Path) -> GpuReport:
    """Try an environment's torch and extensions on this machine's GPUs.

    Raises UsageError: It is not an environment with Python.
    """
    return compare_with_gpus(environment, probe(environment))


def probe(environment: Path) -> dict[str, Any]:
    """Run :mod:`gpu_tools.verify.gpu_probe` in an environment and return what it printed."""
    names = ("python", f"python{find_python(environment).python}", "python3")
    interpreter = next((path for name in names if (path := environment / "bin" / name).exists()), None)
    if interpreter is None:
        raise UsageError(
            f"{environment} has no bin/python", "give the folder of a conda environment or a venv"
        )
    command = [str(interpreter), "-I", gpu_probe.__file__]
    done = process.run(command, timeout=_SECONDS)
    if done.returncode == process.TIMED_OUT:
        return {"failed": f"gave no answer in {_SECONDS} seconds"}
    for line in done.stdout.splitlines():
        if line.startswith(gpu_probe.MARK):
            answer: dict[str, Any] = json.loads(line.removeprefix(gpu_probe.MARK))
            return answer
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return {"failed": f"ended with {done.returncode}: {last}"}


def compare_with_gpus(environment: Path, answer: dict[str, Any]) -> GpuReport:
    """Compare what a probe answered with what the environment's libraries carry."""
    driver = answer.get("driver", {})
    devices = tuple(answer.get("devices", ()))
    verdict = verify(environment) if devices else None
    libraries = tuple(
        LibraryOnDevice(
            path=library.path,
            device=arch,
            archs=library.archs,
            ptx=library.ptx,
            runs=cuda_archs.runs_on(arch, library.archs, library.ptx),
        )
        for arch in dict.fromkeys(device["arch"] for device in devices)
        for library in (verdict.libraries if verdict else ())
        if library.archs or library.ptx
    )
    return GpuReport(
        environment=str(environment),
        driver=answer.get("driver_version"),
        driver_cuda=driver.get("cuda"),
        torch=answer.get("torch"),
        torch_cuda=answer.get("torch_cuda"),
        present=driver.get("count", 0),
        devices=devices,
        no_gpu="" if devices else driver.get("error") or _failure(answer) or "torch cannot use the GPU",
        libraries=libraries,
        operations=tuple(answer.get("operations", ())),
        faults=tuple(_faults(answer, libraries)),
    )


def _failure(answer: dict[str, Any]) -> str:
    if "failed" in answer:
        return f"the environment's Python {answer['failed']}"
    return f"torch cannot be imported: {answer['torch_error']}" if "torch_error" in answer else ""


def _faults(answer: dict[str, Any], libraries: tuple[LibraryOnDevice, ...]) -> Iterator[str]:
    failure = _failure(answer)
    driver, torch = answer.get("driver", {}).get("cuda"), answer.get("torch_cuda")
    if failure:
        yield failure
    elif driver and not torch:
        yield "torch was built without CUDA: install a CUDA build of it"
    elif driver and torch and int(driver.partition(".")[0]) < int(torch.partition(".")[0]):
        yield f"the driver knows CUDA {driver} at most, torch needs {torch}: install a newer driver"
    elif answer.get("driver", {}).get("count") and not answer.get("devices"):
        yield "torch cannot use the GPU: is CUDA_VISIBLE_DEVICES set, or the driver too old?"
    for library in libraries:
        if library.runs == "missing":
            arch = f"{cuda_archs.number(library.device) / 10:.1f}"
            yield f"{library.path} has no code for {library.device}: rebuild with {arch} in TORCH_CUDA_ARCH_LIST"
