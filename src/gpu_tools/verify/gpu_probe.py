"""Runs in the examined environment's interpreter, with the standard library and that environment's packages only.

Prints one JSON document after a mark: driver, torch, GPUs, and operations on the GPU compared with the CPU.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import sys
from typing import Any

MARK = "::gpu-probe::"
STEP = "::gpu-step::"
# CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR in cuda.h
_CAPABILITY_MAJOR = 75
_CAPABILITY_MINOR = 76
#: Error codes of cuInit (CUresult in cuda.h) and their causes.
CODES = {
    34: "libcuda.so.1 is the stub of the CUDA toolkit: install the driver",
    100: "no device: check that the GPU is passed to this container or virtual machine",
    101: "invalid device: check CUDA_VISIBLE_DEVICES",
    802: "system not ready: check that nvidia-fabricmanager runs",
    803: "driver and libcuda.so.1 have different versions: restart, or install both from one release",
    804: "libcuda.so.1 is from a cuda-compat package that does not support this GPU",
    999: "unknown error: check dmesg, then restart",
}


def driver() -> dict[str, Any]:
    """Ask the driver for its CUDA version, the number of GPUs and their architectures (``9.0``), without torch."""
    archs: list[str] = []
    try:
        library = ctypes.CDLL("libcuda.so.1")
        version = ctypes.c_int()
        count = ctypes.c_int()
        library.cuDriverGetVersion(ctypes.byref(version))
        code = library.cuInit(0)
        if code == 0:
            library.cuDeviceGetCount(ctypes.byref(count))
        for device in range(count.value):
            major = ctypes.c_int()
            minor = ctypes.c_int()
            library.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, device)
            library.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, device)
            archs.append(f"{major.value}.{minor.value}")
    except (OSError, AttributeError) as error:
        if "cannot open shared object file" in str(error):
            return {"error": "no NVIDIA driver: libcuda.so.1 not found"}
        return {"error": f"libcuda.so.1: not an NVIDIA driver's library, or damaged: {words(error)}"}
    cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
    answer = {"cuda": cuda, "count": count.value, "archs": archs}
    if count.value:
        return answer
    return {**answer, "error": f"the NVIDIA driver finds no GPU: {CODES.get(code, '')} (cuInit: {code})"}


def words(error: BaseException) -> str:
    """Return an error's class and the first line of its message, which may be empty."""
    first = next(iter(str(error).splitlines()), "")[:300]
    if not first:
        return type(error).__name__
    return f"{type(error).__name__}: {first}"


def matrix_product(torch: Any, device: str) -> Any:
    """Compute a matrix product and a sum: the smallest proof that kernels run."""
    return (numbers(torch, 64, 64).to(device) @ numbers(torch, 64, 64).to(device)).sum(0)


def scatter(torch: Any, device: str) -> Any:
    """Sum segments with torch_scatter's own kernel."""
    module = importlib.import_module("torch_scatter")
    ends = torch.tensor([0, 3, 3, 10, 32], device=device)
    return module.segment_csr(numbers(torch, 32, 8).to(device), ends, reduce="sum")


def sparse(torch: Any, device: str) -> Any:
    """Multiply a sparse matrix with a dense one."""
    module = importlib.import_module("torch_sparse")
    rows = torch.arange(32) % 7
    columns = torch.arange(32) % 5
    matrix = module.SparseTensor(
        row=rows, col=columns, value=numbers(torch, 32, 1)[:, 0], sparse_sizes=(7, 5)
    )
    return module.matmul(matrix.to(device), numbers(torch, 5, 4).to(device), reduce="sum")


def cluster(torch: Any, device: str) -> Any:
    """Find nearest neighbours; sorted, because their order may differ between CPU and GPU."""
    module = importlib.import_module("torch_cluster")
    points = numbers(torch, 50, 3).to(device)
    query, point = module.knn(points, points[:9], 4).cpu()
    return (query * 50 + point).sort().values


def spline(torch: Any, device: str) -> Any:
    """Evaluate a B-spline basis."""
    module = importlib.import_module("torch_spline_conv")
    points = numbers(torch, 16, 2).abs().clamp(0, 1).to(device)
    sizes = torch.tensor([5, 5], device=device)
    is_open = torch.tensor([1, 1], dtype=torch.uint8, device=device)
    return module.spline_basis(points, sizes, is_open, 1)[0]


def segments(torch: Any, device: str) -> Any:
    """Multiply each segment of rows by its own matrix."""
    module = importlib.import_module("pyg_lib.ops")
    ends = torch.tensor([0, 5, 8], device=device)
    return module.segment_matmul(numbers(torch, 8, 16).to(device), ends, numbers(torch, 2, 16, 32).to(device))


OPERATIONS = {
    "torch": matrix_product,
    "torch_scatter": scatter,
    "torch_sparse": sparse,
    "torch_cluster": cluster,
    "torch_spline_conv": spline,
    "pyg_lib": segments,
}


def numbers(torch: Any, *shape: int) -> Any:
    """Return the same random numbers for every call with the same shape, on the CPU."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


def compare(torch: Any, name: str) -> dict[str, Any]:
    """Run one operation on the CPU and on the GPU, and compare the results."""
    try:
        expected = OPERATIONS[name](torch, "cpu")
        answer = OPERATIONS[name](torch, "cuda")
        torch.cuda.synchronize()
        # tolerance for TF32 and another order of sums
        torch.testing.assert_close(answer.cpu(), expected, rtol=1e-2, atol=1e-2)
    except Exception as error:  # extensions may raise anything; the error is the result
        return {"name": name, "ok": False, "error": words(error)}
    return {"name": name, "ok": True, "error": ""}


def main() -> None:
    """Print the JSON document; before each step that can end the process, its name."""
    print(STEP + "loading libcuda.so.1", flush=True)
    report: dict[str, Any] = {"driver": driver(), "devices": [], "operations": []}
    if sys.argv[1:] == ["driver"]:
        print(MARK + json.dumps(report))
        return
    print(STEP + "importing torch", flush=True)
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # e.g. a missing library or the wrong Python
        report["torch_error"] = words(error)
    else:
        report |= {"torch": torch.__version__, "torch_cuda": torch.version.cuda}
        print(STEP + "using the GPU", flush=True)
        if torch.cuda.is_available():
            report["devices"] = devices(torch)
            report["operations"] = [
                compare(torch, name) for name in OPERATIONS if importlib.util.find_spec(name)
            ]
    print(MARK + json.dumps(report))


def devices(torch: Any) -> list[dict[str, str]]:
    """Return the names and architectures (``sm_90``) of the GPUs that torch uses."""
    found = []
    for index in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(index)
        found.append({"name": torch.cuda.get_device_name(index), "arch": f"sm_{major}{minor}"})
    return found


if __name__ == "__main__":
    main()
