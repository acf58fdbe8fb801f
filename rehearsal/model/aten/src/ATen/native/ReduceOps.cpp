#include <ATen/NativeFunctions.h>
#include <ATen/native/Broadcast.h>

#include <algorithm>

namespace at::native {

Tensor sum(const Tensor& self) { return sum_to(self, {}); }

Tensor sum_to(const Tensor& self, const IntList& size) {
  const Tensor result = full(size, 0);
  for (int64_t i = 0; i < self.numel(); ++i) {
    result.data()[broadcast_offset(i, self.sizes(), size)] += self.data()[i];
  }
  return result;
}

Tensor any(const Tensor& self) {
  const bool found = std::any_of(self.data(), self.data() + self.numel(), [](double x) { return x != 0; });
  return Tensor::scalar(found ? 1 : 0);
}

}  // namespace at::native
