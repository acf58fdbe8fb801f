"""The fake CUDA, which never has a device."""

from __future__ import annotations

from torch import _C


def is_available() -> bool:
    """Return whether there is a GPU to compute on."""
    return _C._cuda_getDeviceCount() > 0


def get_arch_list() -> list[str]:
    """Return the compiled archs by PyTorch's names; unlike PyTorch, also without a GPU."""
    return _C._cuda_getArchFlags().split()


#: Whether the installed libtorch_cuda_linalg was built with MAGMA.
has_magma: bool = _C._cuda_hasMAGMA()
