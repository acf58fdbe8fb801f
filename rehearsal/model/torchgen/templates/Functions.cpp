// Written by torchgen: runs the native functions and records them for autograd.
#include <ATen/Functions.h>
#include <ATen/NativeFunctions.h>
#include <torch/csrc/autograd/FunctionsManual.h>
#include <torch/csrc/autograd/function.h>

namespace at {

using namespace torch::autograd;

$definitions

}  // namespace at
