#pragma once

#include <torch/csrc/python_headers.h>

// The methods that the files of the Python side add to torch._C; Module.cpp collects them.
namespace torch {

PyMethodDef* cuda_methods();
PyMethodDef* tensor_numpy_methods();

// These use pybind11 and throw.
void init_tensor(PyObject* module);
void init_functions(PyObject* module);
// Loads NumPy; throws python_error if there is none.

}  // namespace torch
