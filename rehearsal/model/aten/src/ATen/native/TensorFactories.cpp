#include <ATen/NativeFunctions.h>
#include <ATen/core/Generator.h>

#include <algorithm>
#include <cmath>

namespace at::native {

Tensor full(const IntList& size, double fill_value) {
  Tensor result = Tensor::empty(size);
  std::fill_n(result.data(), result.numel(), fill_value);
  return result;
}

Tensor ones(const IntList& size) { return full(size, 1); }

Tensor zeros(const IntList& size) { return full(size, 0); }

Tensor eye(int64_t n) {
  Tensor result = full({n, n}, 0);
  for (int64_t i = 0; i < n; ++i) {
    result.data()[i * n + i] = 1;
  }
  return result;
}

Tensor arange(double start, double end, double step) {
  TORCH_CHECK(step != 0 && (end - start) / step >= 0, "no way from ", start, " to ", end, " in steps of ", step);
  Tensor result = Tensor::empty({static_cast<int64_t>(std::ceil((end - start) / step))});
  for (int64_t i = 0; i < result.numel(); ++i) {
    result.data()[i] = start + static_cast<double>(i) * step;
  }
  return result;
}

Tensor linspace(double start, double end, int64_t steps) {
  Tensor result = Tensor::empty({steps});
  for (int64_t i = 0; i < steps; ++i) {
    result.data()[i] = steps == 1 ? start : start + (end - start) * static_cast<double>(i) / static_cast<double>(steps - 1);
  }
  return result;
}

Tensor rand(const IntList& size) {
  Tensor result = Tensor::empty(size);
  default_generator().fill_uniform(result.data(), result.numel());
  return result;
}

Tensor randn(const IntList& size) {
  Tensor result = Tensor::empty(size);
  default_generator().fill_normal(result.data(), result.numel());
  return result;
}

Tensor randperm(int64_t n) {
  Tensor result = Tensor::empty({n});
  default_generator().fill_permutation(result.data(), n);
  return result;
}

}  // namespace at::native
