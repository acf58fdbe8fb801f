"""Which library of which module carries device code in a CUDA build, and which never does.

An upstream extension has one library per ``csrc/NAME.cpp``, called ``_NAME_cpu.so`` or ``_NAME_cuda.so``, with device
code where there is a ``csrc/cuda/NAME_cuda.cu`` (setup.py of pytorch_scatter 2.1.2, pytorch_sparse 0.6.18,
pytorch_cluster 1.6.3 and pytorch_spline_conv 1.2.2). pyg-lib links everything into one (CMakeLists.txt of
0.8.0). torch: what the official wheels of 2.13 with CUDA 13.0 carry.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"(?:_|lib)?(?P<stem>\w+?)(?:_(?P<flavour>cpu|cuda))?(?:\.(?:cpython-[^.]+|abi3))?\.so")


@dataclass(frozen=True, kw_only=True)
class Module:
    """The libraries of one Python module."""

    #: Stems of libraries with and without device code.
    kernels: frozenset[str]
    plain: frozenset[str]
    #: Whether a library's name ends in ``_cpu`` or ``_cuda``.
    flavours: bool = True
    #: The oldest architecture that upstream can be compiled for.
    oldest: str = "0.0"
    #: The project for which upstream retires it, with releases that have no library, or an empty string
    #: (pytorch_geometric #10716, pytorch_cluster #272).
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

#: libtorch's own: with device code in every CUDA build; the other two lack it where a feature is off
TORCH_KERNELS = frozenset({"libtorch_cuda.so"})
TORCH_MAY_HAVE_KERNELS = frozenset({"libtorch_cuda_linalg.so", "libtorch_nvshmem.so"})


def split(file_name: str) -> tuple[str, str]:
    """Return a library's stem and flavour: ``("scatter", "cuda")`` for ``_scatter_cuda.so``.

    The flavour is empty where the name has none.
    """
    found = _NAME.fullmatch(file_name)
    return (found["stem"], found["flavour"] or "") if found else (file_name, "")
