#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace torch {

// What repr() shows. Knows nothing of Python, like a few objects of PyTorch's Python side.
TORCH_PYTHON_API std::string tensor_text(const at::Tensor& tensor);
// Names of the operations a tensor was computed with, results first.
TORCH_PYTHON_API std::vector<std::string> graph_text(const at::Tensor& tensor);

}  // namespace torch
