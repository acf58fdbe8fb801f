"""`megabuild verify-gpu`: compares driver, GPUs and libraries on this machine, and runs operations on the GPU."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cuda_code import cuda_archs
from cuda_code.cuda_archs import Runs
from gpu_tools.verify import gpu_probe
from gpu_tools.verify.check import Verdict, verify
from gpu_tools.verify.inspected_environment import find_python
from groundwork import process
from groundwork.errors import UnknownError

_SECONDS = 600  # the first use of PTX-only code compiles it


def examine(environment: Path) -> dict[str, Any]:
    """Run an environment's torch and extensions on this machine's GPUs; return verify-gpu's JSON document.

    :mod:`gpu_tools.verify.gpu_probe` runs in the environment's Python.

    Raises UsageError: The folder is not an environment with Python.
    """
    interpreter = environment / "bin" / f"python{find_python(environment).python}"
    if not interpreter.exists():
        interpreter = environment / "bin" / "python"
    return compare_with_gpus(environment, _run_probe(interpreter))


def replace_native(arch_list: str) -> str:
    """Return an architecture list with ``native`` replaced by this machine's GPUs.

    Another process asks the driver, because a damaged one can end the process that loads it.

    Raises UnknownError: It has ``native``, but there is no GPU or no driver.
    """
    if not re.search(r"\bnative\b", arch_list):
        return arch_list
    answer = _run_probe(Path(sys.executable), "driver")
    driver = answer.get("driver", {})
    error = driver.get("error") or answer.get("failed")
    if error:
        raise UnknownError(f"--arch-list native: {error}", "name the GPUs to run on: --arch-list 12.0")
    return re.sub(r"\bnative\b", ";".join(driver["archs"]), arch_list)


def _run_probe(interpreter: Path, *arguments: str) -> dict[str, Any]:
    """Return the probe's JSON, or ``failed`` with the reason."""
    done = process.run([str(interpreter), "-I", gpu_probe.__file__, *arguments], timeout=_SECONDS)
    if done.returncode == process.TIMED_OUT:
        return {"failed": f"no answer after {_SECONDS} seconds"}
    lines = done.stdout.splitlines()
    for line in lines:
        if line.startswith(gpu_probe.MARK):
            answer: dict[str, Any] = json.loads(line.removeprefix(gpu_probe.MARK))
            return answer
    reason = process.describe_end(done.returncode)
    steps = [line for line in lines if line.startswith(gpu_probe.STEP)]
    if steps:
        reason += f" while {steps[-1].removeprefix(gpu_probe.STEP)}"
    last = done.stderr.strip().splitlines()[-1:]
    return {"failed": ": ".join([reason, *last])}


def compare_with_gpus(environment: Path, answer: dict[str, Any]) -> dict[str, Any]:
    """Combine a probe's answer with the code in the environment's libraries."""
    driver = answer.get("driver", {})
    devices = answer.get("devices", [])
    operations = answer.get("operations", [])
    libraries: list[dict[str, Any]] = []
    if devices:
        archs = dict.fromkeys(device["arch"] for device in devices)
        libraries = list(_pair_libraries(verify(environment), archs))
    failure = _find_failure(answer)
    faults = [*_find_torch_faults(answer, failure), *_find_missing_code(libraries)]
    all_equal = all(operation["ok"] for operation in operations)
    no_gpu = ""
    if not devices:
        no_gpu = driver.get("error") or failure or "torch cannot use the GPU"
    return {
        "ok": bool(devices) and not faults and all_equal,
        "environment": str(environment),
        "driver_cuda": driver.get("cuda"),
        "torch": answer.get("torch"),
        "torch_cuda": answer.get("torch_cuda"),
        "present": driver.get("count", 0),
        "devices": devices,
        "no_gpu": no_gpu,
        "libraries": libraries,
        "operations": operations,
        "faults": faults,
    }


def _pair_libraries(verdict: Verdict, archs: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield each library with device code for each GPU, and how the GPU runs it."""
    for arch in archs:
        for library in verdict.libraries:
            if library.archs or library.ptx:
                yield {
                    "path": library.path,
                    "device": arch,
                    "archs": library.archs,
                    "ptx": library.ptx,
                    "runs": cuda_archs.runs_on(arch, library.archs, library.ptx),
                }


def _find_failure(answer: dict[str, Any]) -> str:
    """Return why the probe did not get as far as the GPU, or an empty string."""
    if "failed" in answer:
        return f"the environment's Python: {answer['failed']}"
    if "torch_error" in answer:
        return f"torch cannot be imported: {answer['torch_error']}"
    return ""


def _find_torch_faults(answer: dict[str, Any], failure: str) -> Iterator[str]:
    driver = answer.get("driver", {})
    driver_cuda = driver.get("cuda")
    torch_cuda = answer.get("torch_cuda")
    if failure:
        yield failure
    elif driver_cuda and not torch_cuda:
        yield "torch was built without CUDA: install a CUDA build"
    elif driver_cuda and torch_cuda and _major(driver_cuda) < _major(torch_cuda):
        yield f"the driver supports CUDA {driver_cuda} at most, torch needs {torch_cuda}: install a newer driver"
    elif driver.get("count") and not answer.get("devices"):
        yield "torch cannot use the GPU: check CUDA_VISIBLE_DEVICES and the driver's version"


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def _find_missing_code(libraries: Iterable[dict[str, Any]]) -> Iterator[str]:
    for library in libraries:
        if library["runs"] is Runs.MISSING:
            device = library["device"]
            arch = f"{cuda_archs.number(device) / 10:.1f}"
            yield f"{library['path']} has no code for {device}: rebuild with {arch} in TORCH_CUDA_ARCH_LIST"
