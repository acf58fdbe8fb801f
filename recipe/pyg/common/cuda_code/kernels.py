"""Lists the libraries of each module that have device code in a CUDA build, and those that never have.

An upstream extension has one library per ``csrc/NAME.cpp``, named ``_NAME_cpu.so`` or ``_NAME_cuda.so``, with device
code if there is a ``csrc/cuda/NAME_cuda.cu`` (setup.py of pytorch_scatter 2.1.2, pytorch_sparse 0.6.18,
pytorch_cluster 1.6.3 and pytorch_spline_conv 1.2.2). pyg-lib links everything into one (CMakeLists.txt of
0.8.0). torch: as in the official wheels of 2.13 with CUDA 13.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

CPU = "cpu"
CUDA = "cuda"
_NAME = re.compile(r"(?:_|lib)?(?P<stem>\w+?)(?:_(?P<flavour>cpu|cuda))?(?:\.(?:cpython-[^.]+|abi3))?\.so")


@dataclass(frozen=True, kw_only=True)
class Module:
    """The libraries of one Python module."""

    #: Stems of libraries with and without device code.
    kernels: frozenset[str]
    plain: frozenset[str]
    #: Whether a library's name ends in ``_cpu`` or ``_cuda``.
    flavours: bool = True
    #: The oldest architecture that upstream supports.
    oldest: str = "0.0"
    #: The project that replaces it upstream; its last releases have no library (pytorch_geometric #10716,
    #: pytorch_cluster #272). Empty if not replaced.
    successor: str = "pyg-lib"


KERNELS = {
    "torch_scatter": Module(
        kernels=frozenset({"scatter", "segment_coo", "segment_csr"}), plain=frozenset({"version"})
    ),
    "torch_sparse": Module(
        kernels=frozenset({"convert", "diag", "rw", "spmm"}),
        plain=frozenset(
            {"ego_sample", "hgt_sample", "metis", "neighbor_sample", "relabel", "saint", "sample", "version"}
        ),
    ),
    "torch_cluster": Module(
        kernels=frozenset({"fps", "graclus", "grid", "knn", "nearest", "radius", "rw"}),
        plain=frozenset({"sampler", "version"}),
    ),
    "torch_spline_conv": Module(kernels=frozenset({"basis", "weighting"}), plain=frozenset({"version"})),
    # cuCollections needs 6.0 (its setup.py filters older ones out)
    "pyg_lib": Module(
        kernels=frozenset({"pyg"}), plain=frozenset(), flavours=False, oldest="6.0", successor=""
    ),
}

#: libtorch's libraries: the first has device code in every CUDA build, the others only with certain features.
TORCH_KERNELS = frozenset({"libtorch_cuda.so"})
TORCH_MAY_HAVE_KERNELS = frozenset({"libtorch_cuda_linalg.so", "libtorch_nvshmem.so"})


class LibraryName(NamedTuple):
    """The parts of a library's file name."""

    stem: str
    flavour: str  #: ``cpu``, ``cuda``, or an empty string.


def split(file_name: str) -> LibraryName:
    """Return a library's stem and flavour: ``scatter`` and ``cuda`` for ``_scatter_cuda.so``."""
    match = _NAME.fullmatch(file_name)
    if match is None:
        return LibraryName(file_name, "")
    return LibraryName(match["stem"], match["flavour"] or "")
