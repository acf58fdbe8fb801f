#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>

namespace torch {

using namespace at;  // NOLINT: torch:: and at:: are one to users
using NoGradGuard = torch::autograd::NoGradGuard;

inline void manual_seed(uint64_t seed) { at::default_generator().set_seed(seed); }
TORCH_API bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8);

namespace cuda {
inline bool is_available() { return at::getCUDAHooks().deviceCount() > 0; }
}  // namespace cuda

}  // namespace torch
