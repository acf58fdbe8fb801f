#include <torch/csrc/autograd/function.h>
#include <torch/csrc/utils/tensor_text.h>

namespace torch {

std::string tensor_text(const at::Tensor& tensor) {
  std::string text = at::to_string(tensor);
  if (const auto node = tensor.grad_fn()) {
    text.insert(text.size() - 1, ", grad_fn=<" + node->name + ">");
  } else if (tensor.requires_grad()) {
    text.insert(text.size() - 1, ", requires_grad=True");
  }
  return text;
}

}  // namespace torch
