"""The key of a wheel that install-pyg has compiled and keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from groundwork.keys import Key
from pyg_extensions.install.user_environment import UserEnvironment

#: Environment variables of the user that change the compiled code: of compilers, of torch (cpp_extension.py of 2.13),
#: of upstream's setup.py and CMakeLists.txt files (pyg-lib 0.8.0), and of CMake. Not those that name a CUDA toolkit's
#: folder: PyTorch's own CUDA version is in the key, and a kept wheel is for the next environment, which may have none.
_VARIABLES = frozenset(
    {"CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH",
     "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "NVCC_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS",
     "NVCC_CCBIN", "CUDAFLAGS", "CUDAHOSTCXX", "PYTORCH_NVCC", "FORCE_CUDA", "FORCE_ONLY_CPU", "FORCE_ONLY_CUDA",
     "WITH_METIS", "WITH_MTMETIS", "WITH_SYMBOLS", "SUFFIX",
     "DEBUG", "REL_WITH_DEB_INFO", "USE_MKL_BLAS", "EXTERNAL_CUTLASS_INCLUDE_DIR", "EXTERNAL_PHMAP_INCLUDE_DIR",
     "CMAKE_ARGS", "CMAKE_PREFIX_PATH", "CMAKE_INCLUDE_PATH", "CMAKE_LIBRARY_PATH", "CMAKE_TOOLCHAIN_FILE"}
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CompiledWheel(Key):
    """Everything that decides whether a compiled wheel fits; a newer compiler is no reason to compile again."""

    torch_version: str
    python: str
    tag: str  #: PyG's name of the PyTorch and its accelerator
    platform: str
    glibc: str  #: of this machine, which the wheel may need
    archs: Sequence[str]  #: GPU architectures
    source: str  #: identity of the sources
    variables: Mapping[str, str]  #: the user's, by name


def compiled_wheel(
    environment: UserEnvironment, archs: Sequence[str], source: str, environ: Mapping[str, str]
) -> CompiledWheel:
    """Return the key of a wheel for an environment; ``source`` as from :func:`source_identity`."""
    return CompiledWheel(
        torch_version=environment.torch_version,
        python=environment.python,
        tag=environment.tag,
        platform=environment.platform,
        glibc=environment.glibc,
        archs=archs,
        source=source,
        variables={name: value for name, value in environ.items() if name in _VARIABLES and value},
    )
