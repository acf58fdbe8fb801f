// Written by torchgen: what aten/src/ATen/native implements.
#pragma once

#include <ATen/core/Tensor.h>

namespace at::native {

$declarations

}  // namespace at::native
