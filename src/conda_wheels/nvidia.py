"""Find the NVIDIA wheels that a PyTorch compiled for CUDA requires; a wheel never vendors NVIDIA's libraries.

Upstream's wheels do the same: METADATA requires NVIDIA's wheels of one CUDA release, and RPATH names their folders.
``cuda-toolkit`` is NVIDIA's project that pins all parts of a release; its extras are the parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from typing import NamedTuple

from conda_wheels.licences import CondaRecord
from groundwork.errors import BuildError

#: Patterns of NVIDIA's libraries, the driver's included, which wheels must not contain; libcurl and libcups are not
#: NVIDIA's.
LIBRARIES = ("libcu[!rp]*", "libcurand*", "libcupti*", "libnv*", "libnccl*")
#: Extras of ``cuda-toolkit``: the names of the libraries that one installs begin with its name (``libcublasLt``).
_EXTRAS = (
    "cublas", "cudart", "cufft", "cufile", "cupti", "curand", "cusolver", "cusparse", "nvjitlink", "nvrtc", "nvtx",
)  # fmt: skip
#: Folders in the wheels for CUDA 12 with other names. The wheels for CUDA 13 share one folder.
_FOLDERS = {"cudart": "cuda_runtime", "cupti": "cuda_cupti", "nvrtc": "cuda_nvrtc"}
#: Libraries with their own releases: the part of the project's name, and the folder.
_SEPARATE = {
    "libcudnn": ("cudnn", "cudnn"),
    "libcudss": ("cudss", "cu{major}"),
    "libcusparseLt": ("cusparselt", "cusparselt"),
    "libnccl": ("nccl", "nccl"),
    "libnvshmem_host": ("nvshmem", "nvshmem"),
}
_DRIVER = frozenset({"libcuda", "libnvidia-ml"})


class NvidiaWheels(NamedTuple):
    """The wheels of NVIDIA that a PyTorch requires."""

    requires: list[str]  #: requirements on them
    folders: list[str]  #: of their libraries, below site-packages


def required(sonames: Iterable[str], cuda: str, records: Mapping[str, CondaRecord]) -> NvidiaWheels:
    """Return the wheels of NVIDIA that contain the libraries PyTorch links to; other libraries are ignored.

    ``cuda`` is the release that PyTorch was compiled for (``12.4``). Versions come from ``records``, those of an
    environment with these libraries.

    Raises BuildError: No wheel is known for a library.
    """
    major = int(cuda.partition(".")[0])
    extras: set[str] = set()
    requires: set[str] = set()
    folders: set[str] = set()
    for soname in filter(_is_in_a_wheel, sonames):
        library = soname.partition(".so")[0]
        if library in _SEPARATE:
            name, folder = _SEPARATE[library]
            requires.add(f"nvidia-{name}-cu{major}{_version_range(soname, records)}")
            folders.add(folder.format(major=major))
            continue
        extra = _extra(soname, library)
        extras.add(extra)
        if major < 13:
            folders.add(_FOLDERS.get(extra, extra))
        else:
            folders.add(f"cu{major}")
    if extras:
        requires.add(f"cuda-toolkit[{','.join(sorted(extras))}]=={cuda}.*")
    return NvidiaWheels(sorted(requires), [f"nvidia/{folder}/lib" for folder in sorted(folders)])


def _is_in_a_wheel(soname: str) -> bool:
    """Return whether a library is NVIDIA's, and none of the driver."""
    if soname.partition(".so")[0] in _DRIVER:
        return False
    return any(fnmatch(soname, pattern) for pattern in LIBRARIES)


def _extra(soname: str, library: str) -> str:
    """Return the extra of ``cuda-toolkit`` that installs a library; raises BuildError."""
    word = library.removeprefix("lib").lower().replace("toolsext", "tx")  # libnvToolsExt has NVTX
    for extra in _EXTRAS:
        if word.startswith(extra):
            return extra
    raise BuildError(
        f"{soname}: no wheel of NVIDIA has this library",
        "install the conda packages: python3 scripts/megabuild env create",
    )


def _version_range(soname: str, records: Mapping[str, CondaRecord]) -> str:
    """Return the version range of a library: from PyTorch's version of it to the next major version.

    The fourth number is left out: it counts conda-forge's builds if NVIDIA has only three (NCCL, cuSPARSELt).
    """
    for record in records.values():
        if f"lib/{soname}" in record["files"]:
            numbers = record["version"].split(".")
            return f">={'.'.join(numbers[:3])},<{int(numbers[0]) + 1}"
    return ""
