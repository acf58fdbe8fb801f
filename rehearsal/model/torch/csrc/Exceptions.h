#pragma once

#include <torch/csrc/python_headers.h>

#include <c10/macros/Export.h>

#include <exception>
#include <string>

namespace torch {

// Thrown when Python's own error is set already.
struct TORCH_PYTHON_API python_error : std::exception {
  const char* what() const noexcept override;
};

// Passes a new reference on; throws python_error for a null one.
TORCH_PYTHON_API PyObject* checked(PyObject* made);
// Sets Python's error from the exception being handled.
TORCH_PYTHON_API void set_python_error() noexcept;

// Calls body(), which returns a new reference; exceptions become Python's.
template <class Body>
PyObject* guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

}  // namespace torch
