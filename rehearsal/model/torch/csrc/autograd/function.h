#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace torch::autograd {

using at::Tensor;
// From the gradient of a result to those of the inputs, in their order; undefined where there is none.
using Backward = std::function<std::vector<Tensor>(const Tensor& grad)>;

// One recorded operation.
struct TORCH_API Node {
  std::string name;
  std::vector<Tensor> inputs;
  Backward backward;
};

// Whether an operation on these inputs is to be recorded on this thread.
TORCH_API bool should_record(const std::vector<Tensor>& inputs);
// Makes `result` the outcome of an operation. The closure must not hold `result` itself: that would be a cycle.
TORCH_API void record(const Tensor& result, const char* name, std::vector<Tensor> inputs, Backward backward);
// Accumulates into the leaves; implements Tensor::backward().
TORCH_API void run_backward(const Tensor& root);

// Nothing is recorded on this thread while one of these lives.
class TORCH_API NoGradGuard {
 public:
  NoGradGuard();
  ~NoGradGuard();
  NoGradGuard(const NoGradGuard&) = delete;
  NoGradGuard& operator=(const NoGradGuard&) = delete;

 private:
  bool former_;
};

TORCH_API bool grad_enabled();
TORCH_API void set_grad_enabled(bool on);

}  // namespace torch::autograd
