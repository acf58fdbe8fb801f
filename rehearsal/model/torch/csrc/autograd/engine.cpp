#include <torch/csrc/autograd/function.h>

#include <ATen/Functions.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace torch::autograd {
namespace {

// Appends a tensor after all tensors that it was computed from, each once.
void visit(const Tensor& tensor, std::set<c10::TensorImpl*>& seen, std::vector<Tensor>& order) {
  if (!tensor.requires_grad() || !seen.insert(tensor.impl()).second) {
    return;
  }
  if (const auto node = tensor.grad_fn()) {
    for (const Tensor& input : node->inputs) {
      visit(input, seen, order);
    }
  }
  order.push_back(tensor);
}

void accumulate(Tensor& sum, const Tensor& grad) { sum = sum.defined() ? at::add(sum, grad) : grad; }

}  // namespace

void record(const Tensor& result, const char* name, std::vector<Tensor> inputs, Backward backward) {
  if (std::any_of(inputs.begin(), inputs.end(), [](const Tensor& input) { return input.requires_grad(); })) {
    result.set_grad_fn(std::make_shared<Node>(Node{name, std::move(inputs), std::move(backward)}));
  }
}

void run_backward(const Tensor& root) {
  TORCH_CHECK(root.requires_grad(), "this tensor was not computed from one that requires a gradient");
  TORCH_CHECK(root.numel() == 1, "backward() needs a tensor with one element, this one has ", root.numel());
  std::set<c10::TensorImpl*> seen;
  std::vector<Tensor> order;
  visit(root, seen, order);
  std::map<c10::TensorImpl*, Tensor> grads{{root.impl(), at::ones(root.sizes())}};
  for (auto tensor = order.rbegin(); tensor != order.rend(); ++tensor) {
    const Tensor grad = grads[tensor->impl()];
    const auto node = tensor->grad_fn();
    if (node == nullptr) {
      Tensor sum = tensor->grad();
      accumulate(sum, grad);
      tensor->set_grad(sum);
      continue;
    }
    const std::vector<Tensor> inputs = node->backward(grad);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].defined() && node->inputs[i].requires_grad()) {
        accumulate(grads[node->inputs[i].impl()], inputs[i]);
      }
    }
  }
}

}  // namespace torch::autograd
