#pragma once

#include <ATen/core/Tensor.h>

namespace torch {

// What repr() shows. Knows nothing of Python, like a few objects of PyTorch's Python side.
std::string tensor_text(const at::Tensor& tensor);

}  // namespace torch
