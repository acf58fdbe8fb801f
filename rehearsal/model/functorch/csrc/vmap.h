#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace functorch {

// Parts of a tensor along its first dimension, and back.
std::vector<at::Tensor> unstack(const at::Tensor& tensor);
at::Tensor stack(const std::vector<at::Tensor>& parts);

}  // namespace functorch
