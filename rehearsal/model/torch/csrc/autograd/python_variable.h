#pragma once

#include <torch/csrc/python_headers.h>

#include <ATen/core/Tensor.h>

namespace torch {

// A new reference to a Python tensor with the same elements and the same place in the graph.
TORCH_PYTHON_API PyObject* wrap(const at::Tensor& tensor);
// The tensor behind a Python object; throws python_error with a TypeError set for anything else.
TORCH_PYTHON_API at::Tensor unwrap(PyObject* object);

}  // namespace torch
