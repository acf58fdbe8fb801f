#include <ATen/NativeFunctions.h>
#include <ATen/native/Broadcast.h>

#include <algorithm>

namespace at::native {

// 1 where it holds, 0 elsewhere.
Tensor eq(const Tensor& self, const Tensor& other) {
  return elementwise(self, other, [](double a, double b) { return a == b ? 1.0 : 0.0; });
}
Tensor ne(const Tensor& self, const Tensor& other) {
  return elementwise(self, other, [](double a, double b) { return a != b ? 1.0 : 0.0; });
}
Tensor lt(const Tensor& self, const Tensor& other) {
  return elementwise(self, other, [](double a, double b) { return a < b ? 1.0 : 0.0; });
}
Tensor gt(const Tensor& self, const Tensor& other) {
  return elementwise(self, other, [](double a, double b) { return a > b ? 1.0 : 0.0; });
}

Tensor any(const Tensor& self) {
  return Tensor::scalar(std::any_of(self.data(), self.data() + self.numel(), [](double x) { return x != 0; }) ? 1 : 0);
}
Tensor all(const Tensor& self) {
  return Tensor::scalar(std::all_of(self.data(), self.data() + self.numel(), [](double x) { return x != 0; }) ? 1 : 0);
}

}  // namespace at::native
