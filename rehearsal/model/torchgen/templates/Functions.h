// Written by torchgen: the operators.
#pragma once

#include <ATen/core/Tensor.h>

namespace at {

$declarations

}  // namespace at
