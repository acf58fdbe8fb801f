#include <ATen/NativeFunctions.h>

#include <algorithm>
#include <random>

namespace at::native {

Tensor full(const IntList& size, double fill_value) {
  const Tensor result = Tensor::empty(size);
  std::fill_n(result.data(), result.numel(), fill_value);
  return result;
}

Tensor ones(const IntList& size) { return full(size, 1); }

Tensor eye(int64_t n) {
  const Tensor result = full({n, n}, 0);
  for (int64_t i = 0; i < n; ++i) {
    result.data()[i * n + i] = 1;
  }
  return result;
}

Tensor rand(const IntList& size) {
  thread_local std::mt19937_64 engine;
  const Tensor result = Tensor::empty(size);
  std::generate_n(result.data(), result.numel(), [] { return std::uniform_real_distribution<double>()(engine); });
  return result;
}

}  // namespace at::native
