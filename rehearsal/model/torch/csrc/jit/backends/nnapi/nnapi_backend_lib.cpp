// Does not include Python.h, like a few objects of PyTorch's Python side.
#include <ATen/core/Tensor.h>

namespace torch::nnapi {

std::string bytes(const at::Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.numel()) * sizeof(double)};
}

}  // namespace torch::nnapi
