"""NVIDIA's libraries: a PyTorch compiled for CUDA requires NVIDIA's own wheels, and never vendors them.

Upstream's wheels do the same: METADATA asks for the wheels of one CUDA release, and RPATH leads to where they are
installed. ``cuda-toolkit`` is NVIDIA's project that pins all parts of a release; its extras are those parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch

from conda_wheels.licences import CondaRecord
from groundwork.errors import BuildError

#: Patterns of libraries that our wheels must not contain, known here or not: NVIDIA's, and its driver's. libcurl and
#: libcups are not NVIDIA's.
LIBRARIES = ("libcu[!rp]*", "libcurand*", "libcupti*", "libnv*", "libnccl*")
#: Library to the extra of ``cuda-toolkit`` that brings it, and its folder in the wheels for CUDA 12. Those for CUDA 13
#: share one folder.
_TOOLKIT = {
    "libcublas": ("cublas", "cublas"),
    "libcublasLt": ("cublas", "cublas"),
    "libcudart": ("cudart", "cuda_runtime"),
    "libcufft": ("cufft", "cufft"),
    "libcufile": ("cufile", "cufile"),
    "libcupti": ("cupti", "cuda_cupti"),
    "libcurand": ("curand", "curand"),
    "libcusolver": ("cusolver", "cusolver"),
    "libcusolverMg": ("cusolver", "cusolver"),
    "libcusparse": ("cusparse", "cusparse"),
    "libnvJitLink": ("nvjitlink", "nvjitlink"),
    "libnvToolsExt": ("nvtx", "nvtx"),
    "libnvrtc": ("nvrtc", "cuda_nvrtc"),
}
#: Libraries with releases of their own: the part of the project's name, and the folder.
_SEPARATE = {
    "libcudnn": ("cudnn", "cudnn"),
    "libcudss": ("cudss", "cu{major}"),
    "libcusparseLt": ("cusparselt", "cusparselt"),
    "libnccl": ("nccl", "nccl"),
    "libnvshmem_host": ("nvshmem", "nvshmem"),
}
_DRIVER = frozenset({"libcuda", "libnvidia-ml"})


@dataclass(frozen=True, kw_only=True)
class NvidiaWheels:
    """The wheels of NVIDIA that a wheel of PyTorch requires."""

    requires: tuple[str, ...] = ()  #: for its METADATA
    folders: tuple[str, ...] = ()  #: where the libraries will be, below site-packages


def required(sonames: Iterable[str], cuda: str, records: Mapping[str, CondaRecord]) -> NvidiaWheels:
    """Return the wheels of NVIDIA that contain the libraries PyTorch links to; other libraries are ignored.

    ``cuda`` is the release that PyTorch was compiled for (``12.4``); versions come from ``records``, of an environment
    with these libraries.
    """
    major = int(cuda.partition(".")[0])
    extras, requires, folders = set(), set(), set()
    for soname in sonames:
        library = soname.partition(".so")[0]
        if library in _DRIVER or not any(fnmatch(soname, pattern) for pattern in LIBRARIES):
            continue
        if library in _TOOLKIT:
            extra, folder = _TOOLKIT[library]
            extras.add(extra)
            folders.add(folder if major < 13 else f"cu{major}")
        elif library in _SEPARATE:
            name, folder = _SEPARATE[library]
            requires.add(f"nvidia-{name}-cu{major}{_version_range(soname, records)}")
            folders.add(folder.format(major=major))
        else:
            raise BuildError(
                f"NVIDIA's {soname} is not in any wheel that PyTorch could require",
                "take the conda packages: megabuild env create",
            )
    if extras:
        requires.add(f"cuda-toolkit[{','.join(sorted(extras))}]=={cuda}.*")
    return NvidiaWheels(
        requires=tuple(sorted(requires)), folders=tuple(f"nvidia/{folder}/lib" for folder in sorted(folders))
    )


def _version_range(soname: str, records: Mapping[str, CondaRecord]) -> str:
    """Return the version range of a library: from the one PyTorch was compiled with to the next major version.

    Of four numbers the last is left out: conda-forge counts its builds in it where NVIDIA has three (NCCL, cuSPARSELt).
    """
    for record in records.values():
        if f"lib/{soname}" in record["files"]:
            numbers = record["version"].split(".")
            return f">={'.'.join(numbers[:3])},<{int(numbers[0]) + 1}"
    return ""
