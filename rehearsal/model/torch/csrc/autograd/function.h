#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace torch::autograd {

using at::Tensor;
// Computes the gradients of the inputs, in their order, from that of the result; undefined for an input without one.
using Backward = std::function<std::vector<Tensor>(const Tensor& grad)>;

// One recorded operation.
struct TORCH_API Node {
  std::string name;
  std::vector<Tensor> inputs;
  Backward backward;
};

// Records `result` as the result of an operation if an input requires a gradient. The closure must not hold `result` itself:
// that would be a cycle.
TORCH_API void record(const Tensor& result, const char* name, std::vector<Tensor> inputs, Backward backward);
// Accumulates into the leaves; implements Tensor::backward().
TORCH_API void run_backward(const Tensor& root);

}  // namespace torch::autograd
