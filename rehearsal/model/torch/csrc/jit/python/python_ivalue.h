#pragma once

#include <torch/csrc/jit/python/pybind_utils.h>
