"""What people do with an environment, by the packages in it: what a slimming may cost."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from gpu_tools.slim.listing import Contents
from gpu_tools.slim.unused_nvidia import is_nvidia


@dataclass(frozen=True, kw_only=True)
class Feature:
    """Something that works in environments with certain packages."""

    name: str  #: As ``--keep`` takes it.
    words: str  #: For people.
    of: str = ""  #: Matches the names of the packages that have it; empty: any environment has it.
    is_vital: bool = False  #: These packages do little without it: steps that cost it are left out unasked.

    def packages(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of some packages, by name, that have it."""
        return tuple(sorted(name for name in names if self.of and re.fullmatch(self.of, name)))

    def is_in(self, names: Iterable[str]) -> bool:
        """Say whether an environment with these packages has it."""
        return not self.of or bool(self.packages(names))


_TORCH = "torch|pytorch|libtorch"
_TENSORFLOW = "tensorflow|tensorflow-cpu|tf-nightly|tensorflow-base"
IMPORT = Feature(name="import", words="import")
AUTOGRAD = Feature(name="autograd", words="autograd", of=_TORCH)
JIT = Feature(name="jit", words="torch.jit", of=_TORCH)
COMPILE_CPU = Feature(name="compile-cpu", words="torch.compile on the CPU", of=_TORCH)
COMPILE_GPU = Feature(name="compile-gpu", words="torch.compile on GPUs", of=_TORCH)
JAX = Feature(name="jax", words="jax.jit", of="jax|jaxlib|jax-.*")
TENSORFLOW = Feature(name="tensorflow", words="TensorFlow's operators and XLA", of=_TENSORFLOW)
ONNXRUNTIME = Feature(name="onnxruntime", words="ONNX Runtime", of="onnxruntime|onnxruntime-.*")
#: NVRTC and nvcc are given the headers in ``nvidia/``, numba-cuda links ``libcudadevrt.a``.
KERNELS = Feature(name="kernels", words="kernels compiled at run time", is_vital=True,
                  of="cupy|cupy-.*|numba-cuda|cuda-core|nvmath-python|pycuda|warp-lang")  # fmt: skip
#: They compile with Triton, nvcc or gcc before they answer the first request.
STARTUP = Feature(name="startup", words="starting, which compiles", is_vital=True,
                  of="vllm|vllm-.*|flashinfer|flashinfer-.*|deepspeed|sglang|sgl-kernel")  # fmt: skip
EXTENSIONS = Feature(name="extensions", words="compiling extensions")
DISTRIBUTED = Feature(name="distributed", words="distributed", of=_TORCH)
PROFILER = Feature(name="profiler", words="profiler", of=f"{_TORCH}|{_TENSORFLOW}|jaxlib")
#: In the order in which they are told.
FEATURES = (IMPORT, AUTOGRAD, JIT, COMPILE_CPU, COMPILE_GPU, JAX, TENSORFLOW, ONNXRUNTIME, KERNELS, STARTUP, EXTENSIONS,
            DISTRIBUTED, PROFILER)  # fmt: skip
#: Packages with GPU code, or that require CUDA, which compile nothing as they run.
_COMPILED = re.compile(
    "torchvision|torchaudio|torch-(scatter|sparse|cluster|spline-conv)|pyg-lib|bitsandbytes|triton|cuda-bindings|"
    "cuda-python|cuda-pathfinder"
)


def find_unknown(contents: Contents, with_gpu_code: Collection[str]) -> tuple[str, ...]:
    """Return the packages for GPUs of which nothing here knows what they need as they run."""
    names = set(with_gpu_code) | {
        owner for owner, required in contents.requires.items() if any(map(is_nvidia, required))
    }
    return tuple(
        sorted(
            name
            for name in names
            if not (
                is_nvidia(name)
                or _COMPILED.fullmatch(name)
                or any(feature.packages([name]) for feature in FEATURES)
            )
        )
    )


def compiles_nothing(name: str) -> bool:
    """Say whether a package is known to do well without headers and compilers."""
    return _COMPILED.fullmatch(name) is not None or any(
        feature.packages([name]) and not feature.is_vital for feature in FEATURES
    )
