#include <torch/csrc/autograd/function.h>
#include <torch/csrc/utils/tensor_text.h>

#include <deque>
#include <unordered_set>

namespace torch {

std::vector<std::string> graph_text(const at::Tensor& tensor) {
  std::vector<std::string> names;
  std::unordered_set<autograd::Node*> seen;
  std::deque<std::shared_ptr<autograd::Node>> queue{tensor.grad_fn()};
  while (!queue.empty()) {
    const auto node = queue.front();
    queue.pop_front();
    if (node == nullptr || !seen.insert(node.get()).second) {
      continue;
    }
    names.push_back(node->name);
    for (const at::Tensor& input : node->inputs) {
      queue.push_back(input.grad_fn());
    }
  }
  return names;
}

}  // namespace torch
