#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace at::native::cuda {

// The functions that libtorch_cuda_linalg passes to libtorch_cuda when it is opened.
struct LinalgBackend {
  std::string (*name)();
  Tensor (*solve)(const Tensor& a, const Tensor& b);
};

TORCH_CUDA_API void register_linalg_backend(const LinalgBackend* backend);
// Opens the library on first use; throws if it is missing.
TORCH_CUDA_API const LinalgBackend& linalg_backend();

}  // namespace at::native::cuda
