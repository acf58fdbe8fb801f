"""The features of an environment that slimming may remove, derived from the names of its packages."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gpu_tools.contents import Contents


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A use of an environment that certain packages provide."""

    name: str  #: Value for ``--keep``.
    words: str  #: Text in reports.
    of: str = ""  #: Pattern of the packages' names; empty: every environment has it.
    is_vital: bool = False  #: The packages are nearly useless without it: steps that break it are skipped.

    def is_in(self, names: Iterable[str]) -> bool:
        """Return whether an environment with these packages has this feature."""
        return not self.of or any(re.fullmatch(self.of, name) for name in names)


_TORCH = "torch|pytorch|libtorch"
COMPILE_CPU = Feature(name="compile-cpu", words="torch.compile on the CPU", of=_TORCH)
COMPILE_GPU = Feature(name="compile-gpu", words="torch.compile on GPUs", of=_TORCH)
# they pass the headers in nvidia/ to NVRTC and nvcc; numba-cuda links libcudadevrt.a
RUN_TIME_KERNELS = Feature(
    name="kernels",
    words="kernels compiled at run time",
    of="cupy|cupy-.*|numba-cuda|cuda-core|nvmath-python|pycuda|warp-lang",
    is_vital=True,
)
# they compile with Triton, nvcc or gcc before they answer the first request
STARTUP = Feature(
    name="startup",
    words="startup, which compiles kernels",
    of="vllm|vllm-.*|flashinfer|flashinfer-.*|deepspeed|sglang|sgl-kernel",
    is_vital=True,
)
EXTENSIONS = Feature(name="extensions", words="compiling extensions")
# these two break in part only
DISTRIBUTED = Feature(name="distributed", words="NVSHMEM's device code", of=_TORCH)
PROFILER = Feature(
    name="profiler",
    words="GPU counters in profilers",
    of=f"{_TORCH}|tensorflow|tensorflow-cpu|tensorflow-base|jaxlib",
)
#: In the order of the report.
FEATURES = (COMPILE_CPU, COMPILE_GPU, RUN_TIME_KERNELS, STARTUP, EXTENSIONS, DISTRIBUTED, PROFILER)
#: Packages that have GPU code or require CUDA, but compile nothing at run time.
_COMPILED = re.compile(
    "torchvision|torchaudio|torch-(scatter|sparse|cluster|spline-conv)|pyg-lib|bitsandbytes|triton|cuda-bindings|"
    "cuda-python|cuda-pathfinder|(jax|onnxruntime)(-.*)?|tf-nightly"
)
_NVIDIA_LIBRARY = re.compile(
    r"lib(cu(blas|dart|dnn|dss|fft|file|inj64|pti|rand|solver|sparse|tensor)|nv(blas|fatbin|fftw|JitLink|jpeg|perf|ptx"
    r"|rtc|shmem|ToolsExt|tx3)|npp|nccl|accinj64|checkpoint\b|pcsamplingutil).*\.so(\.|$)"
)
_NVIDIA_PACKAGE = re.compile(
    r"nvidia-(?!ml-py|modelopt|dali).*|cuda-(?!python$|bindings$|core$|pathfinder$).*|cudnn|nccl|cutensor(-cu\d+)?"
    r"|lib(cu(blas|dnn|dss|fft|file|rand|solver|sparse|tensor)|nv(fatbin|jitlink|jpeg|ptxcompiler|rtc|vm)|npp).*"
)


def is_nvidia(owner: str) -> bool:
    """Return whether a package contains NVIDIA libraries; false for NVIDIA's Python bindings."""
    return _NVIDIA_PACKAGE.fullmatch(owner) is not None


def is_nvidia_library(path: str) -> bool:
    """Return whether a library's name is one of NVIDIA's, in any package."""
    return _NVIDIA_LIBRARY.match(os.path.basename(path)) is not None


def find_existing(features: Iterable[Feature], contents: Contents) -> list[Feature]:
    """Return those ``features`` that the installed packages have."""
    return [feature for feature in features if feature.is_in(contents.packages)]


def find_unknown(contents: Contents, with_gpu_code: Collection[str]) -> tuple[str, ...]:
    """Return the GPU packages whose needs at run time are unknown."""
    names = set(with_gpu_code)
    for listed in contents.lists:
        if any(map(is_nvidia, listed.required_names)):
            names.add(listed.owner)
    return tuple(sorted(name for name in names if not (is_nvidia(name) or is_known(name))))


def is_known(name: str) -> bool:
    """Return whether :data:`FEATURES` has a package's needs at run time, or it has none."""
    if _COMPILED.fullmatch(name):
        return True
    return any(feature.of and feature.is_in([name]) for feature in FEATURES)
