#pragma once

// What an extension module of Python includes.
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/torch.h>
