#include <ATen/NativeFunctions.h>
#include <ATen/native/Broadcast.h>

#include <cmath>

namespace at::native {

Tensor add(const Tensor& self, const Tensor& other) { return elementwise(self, other, [](double a, double b) { return a + b; }); }
Tensor sub(const Tensor& self, const Tensor& other) { return elementwise(self, other, [](double a, double b) { return a - b; }); }
Tensor mul(const Tensor& self, const Tensor& other) { return elementwise(self, other, [](double a, double b) { return a * b; }); }
Tensor div(const Tensor& self, const Tensor& other) { return elementwise(self, other, [](double a, double b) { return a / b; }); }
Tensor pow(const Tensor& self, const Tensor& exponent) {
  return elementwise(self, exponent, [](double a, double b) { return b == 2 ? a * a : std::pow(a, b); });
}
Tensor maximum(const Tensor& self, const Tensor& other) {
  return elementwise(self, other, [](double a, double b) { return std::max(a, b); });
}
Tensor minimum(const Tensor& self, const Tensor& other) {
  return elementwise(self, other, [](double a, double b) { return std::min(a, b); });
}

}  // namespace at::native
