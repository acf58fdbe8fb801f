#include <torch/csrc/autograd/function.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace torch::autograd {
namespace {

thread_local bool enabled = true;

// Results before their inputs: each tensor once, after everything that was computed from it. Iterative, since graphs get deep.
std::vector<Tensor> reverse_order(const Tensor& root) {
  std::vector<Tensor> order;
  std::unordered_set<c10::TensorImpl*> seen{root.impl()};
  std::vector<std::pair<Tensor, size_t>> stack{{root, 0}};
  while (!stack.empty()) {
    const auto node = stack.back().first.grad_fn();
    const size_t next = stack.back().second++;
    if (node == nullptr || next == node->inputs.size()) {
      order.push_back(stack.back().first);
      stack.pop_back();
      continue;
    }
    const Tensor& input = node->inputs[next];
    if (input.requires_grad() && seen.insert(input.impl()).second) {
      stack.emplace_back(input, 0);
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace

bool grad_enabled() { return enabled; }
void set_grad_enabled(bool on) { enabled = on; }
NoGradGuard::NoGradGuard() : former_(enabled) { enabled = false; }
NoGradGuard::~NoGradGuard() { enabled = former_; }

bool should_record(const std::vector<Tensor>& inputs) {
  return enabled && std::any_of(inputs.begin(), inputs.end(), [](const Tensor& input) { return input.requires_grad(); });
}

void record(const Tensor& result, const char* name, std::vector<Tensor> inputs, Backward backward) {
  result.set_grad_fn(std::make_shared<Node>(Node{name, std::move(inputs), std::move(backward)}));
}

void run_backward(const Tensor& root) {
  TORCH_CHECK(root.requires_grad(), "this tensor was not computed from one that requires a gradient");
  TORCH_CHECK(root.numel() == 1, "backward() needs a tensor with one element, this one has ", root.numel());
  const NoGradGuard guard;
  std::unordered_map<c10::TensorImpl*, Tensor> grads;
  grads[root.impl()] = at::full(root.sizes(), 1.0);
  for (const Tensor& tensor : reverse_order(root)) {
    const Tensor grad = grads[tensor.impl()];
    const auto node = tensor.grad_fn();
    if (node == nullptr) {
      tensor.set_grad(tensor.grad().defined() ? at::add(tensor.grad(), grad) : grad);
      continue;
    }
    const std::vector<Tensor> inputs = node->backward(grad);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].defined() && node->inputs[i].requires_grad()) {
        Tensor& sum = grads[node->inputs[i].impl()];
        sum = sum.defined() ? at::add(sum, inputs[i]) : inputs[i];
      }
    }
  }
}

}  // namespace torch::autograd
