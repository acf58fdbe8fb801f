#include <torch/csrc/autograd/function.h>
#include <torch/csrc/utils/tensor_text.h>

namespace torch {

std::string tensor_text(const at::Tensor& tensor) {
  std::ostringstream out;
  out << "tensor(";
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    out << (i ? ", " : "") << tensor.data()[i];
  }
  out << ", size=" << c10::to_string(tensor.sizes());
  if (const auto node = tensor.grad_fn()) {
    out << ", grad_fn=<" << node->name << '>';
  }
  out << ')';
  return out.str();
}

}  // namespace torch
