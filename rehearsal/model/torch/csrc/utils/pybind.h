#pragma once

#include <torch/csrc/python_headers.h>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <ATen/core/Tensor.h>

namespace py = pybind11;
