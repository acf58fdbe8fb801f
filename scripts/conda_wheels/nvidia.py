"""Find the NVIDIA wheels that a PyTorch compiled for CUDA requires; a wheel never vendors NVIDIA's libraries.

Upstream's wheels do the same: METADATA requires NVIDIA's wheels of one CUDA release, and RPATH names their folders.
``cuda-toolkit`` is NVIDIA's project that pins all parts of a release; its extras are the parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatch

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


def required(
    sonames: Iterable[str], cuda: str, records: Mapping[str, CondaRecord]
) -> tuple[list[str], list[str]]:
    """Return requirements on the wheels of NVIDIA that contain the libraries PyTorch links to, and their folders.

    The folders are below site-packages. Other libraries are ignored.
    ``cuda`` is the release that PyTorch was compiled for (``12.4``). Versions come from ``records``, those of an
    environment with these libraries.

    Raises BuildError: No wheel is known for a library.
    """
    major = int(cuda.partition(".")[0])
    extras, requires, folders = set(), set(), set()
    for soname in sonames:
        library = soname.partition(".so")[0]
        if library in _DRIVER or not any(fnmatch(soname, pattern) for pattern in LIBRARIES):
            continue
        word = library.removeprefix("lib").lower().replace("toolsext", "tx")  # libnvToolsExt has NVTX
        if library in _SEPARATE:
            name, folder = _SEPARATE[library]
            requires.add(f"nvidia-{name}-cu{major}{_version_range(soname, records)}")
            folders.add(folder.format(major=major))
        elif extra := next(filter(word.startswith, _EXTRAS), ""):
            extras.add(extra)
            folders.add(_FOLDERS.get(extra, extra) if major < 13 else f"cu{major}")
        else:
            raise BuildError(
                f"{soname}: no wheel of NVIDIA has this library",
                "install the conda packages: python3 scripts/megabuild env create",
            )
    if extras:
        requires.add(f"cuda-toolkit[{','.join(sorted(extras))}]=={cuda}.*")
    return sorted(requires), [f"nvidia/{folder}/lib" for folder in sorted(folders)]


def _version_range(soname: str, records: Mapping[str, CondaRecord]) -> str:
    """Return the version range of a library: from PyTorch's version of it to the next major version.

    The fourth number is left out: it counts conda-forge's builds if NVIDIA has only three (NCCL, cuSPARSELt).
    """
    for record in records.values():
        if f"lib/{soname}" in record["files"]:
            numbers = record["version"].split(".")
            return f">={'.'.join(numbers[:3])},<{int(numbers[0]) + 1}"
    return ""
