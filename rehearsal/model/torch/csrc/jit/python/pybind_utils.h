#pragma once

#include <torch/csrc/python_headers.h>

#include <c10/macros/Export.h>
#include <pybind11/pytypes.h>  // of a handle; a user of all of pybind11 takes four seconds to compile

#include <optional>
#include <string>

namespace py = pybind11;

namespace torch::jit {

struct InferredType {
  std::string name;  // empty: the object has no type of the model
  bool success() const { return !name.empty(); }
};

namespace detail {

// Called by inline code, so by users' libraries: without the mark, these would not link.
TORCH_PYTHON_API std::optional<InferredType> _tryToInferTypeImpl(py::handle input);

}  // namespace detail

// The type of a Python object.
inline InferredType tryToInferType(py::handle input) {
  if (input.is_none()) {
    return {"NoneType"};
  }
  const std::optional<InferredType> found = detail::_tryToInferTypeImpl(input);
  return found.value_or(InferredType{});
}

}  // namespace torch::jit
