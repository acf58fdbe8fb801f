#pragma once

#include <ATen/core/Tensor.h>

namespace torch::autograd {

// Gradient of linalg_solve() for the matrix: too long for a line of native_functions.yaml.
TORCH_API at::Tensor solve_matrix(const at::Tensor& grad, const at::Tensor& a, const at::Tensor& result);

}  // namespace torch::autograd
