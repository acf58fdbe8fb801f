#include <csrc/vmap.h>

#include <algorithm>

namespace functorch {

std::vector<at::Tensor> unstack(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.dim() > 0, "a tensor without dimensions has no parts");
  const at::IntList sizes(tensor.sizes().begin() + 1, tensor.sizes().end());
  const int64_t length = c10::numel(sizes);
  std::vector<at::Tensor> parts;
  for (int64_t i = 0; i < tensor.size(0); ++i) {
    parts.push_back(at::Tensor::empty(sizes));
    std::copy_n(tensor.data() + i * length, length, parts.back().data());
  }
  return parts;
}

at::Tensor stack(const std::vector<at::Tensor>& parts) {
  TORCH_CHECK(!parts.empty(), "nothing to stack");
  at::IntList sizes = parts.front().sizes();
  sizes.insert(sizes.begin(), static_cast<int64_t>(parts.size()));
  const at::Tensor result = at::Tensor::empty(sizes);
  double* out = result.data();
  for (const at::Tensor& part : parts) {
    TORCH_CHECK(part.sizes() == parts.front().sizes(), "expected parts of one shape");
    out = std::copy_n(part.data(), part.numel(), out);
  }
  return result;
}

}  // namespace functorch
