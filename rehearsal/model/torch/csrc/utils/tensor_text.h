#pragma once

#include <ATen/core/Tensor.h>

namespace torch {

// The text for repr(). Does not include Python.h, like a few objects of PyTorch's Python side.
std::string tensor_text(const at::Tensor& tensor);

}  // namespace torch
