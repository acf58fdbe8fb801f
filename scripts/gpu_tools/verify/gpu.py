"""`megabuild verify-gpu`: compares driver, GPUs and libraries on this machine, and runs operations on the GPU."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cuda_code import cuda_archs
from gpu_tools.verify import gpu_probe
from gpu_tools.verify.check import verify
from gpu_tools.verify.inspected_package import find_python
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
    driver = answer.get("driver", {"error": answer.get("failed")})
    if "error" in driver:
        raise UnknownError(
            f"--arch-list native: {driver['error']}", "name the GPUs to run on: --arch-list 12.0"
        )
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
    steps = [line.removeprefix(gpu_probe.STEP) for line in lines if line.startswith(gpu_probe.STEP)]
    while_doing = f" while {steps[-1]}" if steps else ""
    last = done.stderr.strip().splitlines()[-1:]
    return {"failed": ": ".join([f"{process.describe_end(done.returncode)}{while_doing}", *last])}


def compare_with_gpus(environment: Path, answer: dict[str, Any]) -> dict[str, Any]:
    """Combine a probe's answer with the code in the environment's libraries."""
    driver, devices = answer.get("driver", {}), answer.get("devices", [])
    operations = answer.get("operations", [])
    built = verify(environment).libraries if devices else ()
    libraries = [
        {
            "path": library.path,
            "device": arch,
            "archs": library.archs,
            "ptx": library.ptx,
            "runs": cuda_archs.runs_on(arch, library.archs, library.ptx),
        }
        for arch in dict.fromkeys(device["arch"] for device in devices)
        for library in built
        if library.archs or library.ptx
    ]
    failure = ""
    if "failed" in answer:
        failure = f"the environment's Python: {answer['failed']}"
    elif "torch_error" in answer:
        failure = f"torch cannot be imported: {answer['torch_error']}"
    faults = [*_find_faults(answer, failure, libraries)]
    return {
        "ok": bool(devices) and not faults and all(operation["ok"] for operation in operations),
        "environment": str(environment),
        "driver_cuda": driver.get("cuda"),
        "torch": answer.get("torch"),
        "torch_cuda": answer.get("torch_cuda"),
        "present": driver.get("count", 0),
        "devices": devices,
        "no_gpu": "" if devices else driver.get("error") or failure or "torch cannot use the GPU",
        "libraries": libraries,
        "operations": operations,
        "faults": faults,
    }


def _find_faults(answer: dict[str, Any], failure: str, libraries: list[dict[str, Any]]) -> Iterator[str]:
    driver, torch = answer.get("driver", {}).get("cuda"), answer.get("torch_cuda")
    if failure:
        yield failure
    elif driver and not torch:
        yield "torch was built without CUDA: install a CUDA build"
    elif driver and torch and int(driver.partition(".")[0]) < int(torch.partition(".")[0]):
        yield f"the driver supports CUDA {driver} at most, torch needs {torch}: install a newer driver"
    elif answer.get("driver", {}).get("count") and not answer.get("devices"):
        yield "torch cannot use the GPU: check CUDA_VISIBLE_DEVICES and the driver's version"
    for library in libraries:
        if library["runs"] == "missing":
            device, path = library["device"], library["path"]
            arch = f"{cuda_archs.number(device) / 10:.1f}"
            yield f"{path} has no code for {device}: rebuild with {arch} in TORCH_CUDA_ARCH_LIST"
