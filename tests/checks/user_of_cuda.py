"""What a user of CUDA packages sees on a machine without a GPU: user_of_cuda.py CUDA_VERSION FLAVOUR [compile]

FLAVOUR is that of the linear algebra library that is installed, magma or nomagma. With ``compile``, nvcc is there too.
"""

import ctypes
import os
import sys
from pathlib import Path

import torch
from torch.utils import cpp_extension
from user_of_torch import raises

CUDA_SOURCE = """
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>

__global__ void scale(float* values, int count, float factor) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count) {
    values[index] *= factor;
  }
}

torch::Tensor scaled(torch::Tensor values, double factor) {
  TORCH_CHECK(values.is_cuda(), "values must be on a GPU");
  scale<<<1, values.numel()>>>(values.data_ptr<float>(), values.numel(), factor);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return values;
}
"""


def version(expected: str) -> None:
    assert torch.version.cuda == expected, torch.version.cuda
    assert torch.backends.cuda.is_built()
    assert not torch.cuda.is_available()
    with raises(
        "GPU"
    ):  # "no NVIDIA driver … Please check that you have an NVIDIA GPU", or with a driver "No CUDA GPUs"
        torch.ones(1, device="cuda")


def flavour(expected: str) -> None:
    magma = expected == "magma"
    assert torch.cuda.has_magma == magma, (torch.cuda.has_magma, expected)
    if magma:
        assert torch.backends.cuda.preferred_linalg_library("magma") == torch._C._LinalgBackend.Magma
    else:
        with raises("MAGMA"):
            torch.backends.cuda.preferred_linalg_library("magma")
    assert torch.backends.cuda.preferred_linalg_library("cusolver") == torch._C._LinalgBackend.Cusolver
    # all that it links to is there, with what the package requires and nothing else
    ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cuda_linalg.so"))


def extension() -> None:
    # without a GPU nobody else can say it; conda-forge's recipes of extensions do the same
    os.environ["TORCH_CUDA_ARCH_LIST"] = os.environ["CF_TORCH_CUDA_ARCH_LIST"]
    header = "torch::Tensor scaled(torch::Tensor values, double factor);"
    built = cpp_extension.load_inline("scaled_cuda", header, CUDA_SOURCE, functions=["scaled"], verbose=True)
    with raises("must be on a GPU"):
        built.scaled(torch.ones(3), 2.0)


def main(expected: str, kind: str, *more: str) -> None:
    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}, CUDA {torch.version.cuda}, {kind}")
    torch.manual_seed(0)
    version(expected)
    flavour(kind)
    if more:
        extension()
    print("ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
