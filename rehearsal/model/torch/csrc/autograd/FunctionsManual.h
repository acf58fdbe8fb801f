#pragma once

#include <ATen/core/Tensor.h>

// Gradients that do not fit on a line of native_functions.yaml.
namespace torch::autograd {

using at::Tensor;

// Sums a gradient down to the shape that was broadcast.
TORCH_API Tensor sum_to(const Tensor& grad, const Tensor& like);
// Of matmul() for its arguments, vectors included.
TORCH_API Tensor matmul_left(const Tensor& grad, const Tensor& self, const Tensor& other);
TORCH_API Tensor matmul_right(const Tensor& grad, const Tensor& self, const Tensor& other);
// Of linalg_solve() for the matrix.
TORCH_API Tensor solve_matrix(const Tensor& grad, const Tensor& a, const Tensor& result);

}  // namespace torch::autograd
