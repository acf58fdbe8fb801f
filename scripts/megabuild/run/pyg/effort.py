"""What compiling an extension takes, roughly: for the order of tasks, and for the plan.

CPU seconds with g++ 12 and PyTorch 2.13: those of C++ as measured by ``benchmarks/pyg.py`` and, for pyg-lib, in a
run of ``linux_64_cuda130_wheel``; a .cu file took 80 s for two GPU architectures and 25 s more for each further one.
"""

from __future__ import annotations

_OTHERS = 300
_CPP = {
    "pyg-lib": 800,
    "pytorch_sparse": 410,
    "pytorch_cluster": 340,
    "pytorch_spline_conv": 120,
    "pytorch_scatter": 110,
}
_CUDA_FILES = {
    "pyg-lib": 14,
    "pytorch_sparse": 4,
    "pytorch_cluster": 7,
    "pytorch_spline_conv": 2,
    "pytorch_scatter": 3,
}
_PER_FILE = 30
_PER_ARCH = 25


def cpu_seconds(extension: str, archs: int) -> int:
    """Return the CPU seconds of compiling an extension for one Python with an empty object cache.

    Parameters
    ----------
    extension:
        Name of its folder below ``recipe/pyg``.
    archs:
        Number of GPU architectures; 0 for the CPU.
    """
    cuda = _CUDA_FILES.get(extension, 4) * (_PER_FILE + _PER_ARCH * archs) if archs else 0
    return _CPP.get(extension, _OTHERS) + cuda
