"""The fake CUDA: built or not, it has no device."""

from __future__ import annotations

from torch import _C


def is_available() -> bool:
    """Say whether there is a GPU to compute on."""
    return _C._cuda_getDeviceCount() > 0


def get_arch_list() -> list[str]:
    """Give the archs compiled for, as PyTorch names them; unlike PyTorch's, without a GPU too."""
    return _C._cuda_getArchFlags().split()


#: Whether the installed libtorch_cuda_linalg was built with MAGMA.
has_magma: bool = _C._cuda_hasMAGMA()
