#include <ATen/NativeFunctions.h>
#include <ATen/native/Dispatch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace at::native {
namespace {

constexpr int kPanel = 16;

// Applies I - 2 v v^T to Width columns at once.
template <int Width>
void reflect(double* columns, const std::vector<double>& v, int64_t stride) {
  std::array<double, Width> sums{};
  for (size_t i = 0; i < v.size(); ++i) {
    for (int j = 0; j < Width; ++j) {
      sums[j] += v[i] * columns[static_cast<int64_t>(i) * stride + j];
    }
  }
  for (size_t i = 0; i < v.size(); ++i) {
    for (int j = 0; j < Width; ++j) {
      columns[static_cast<int64_t>(i) * stride + j] -= 2 * v[i] * sums[j];
    }
  }
}

}  // namespace

// The triangular factor R, with a diagonal that is not negative, which makes it unique.
Tensor linalg_qr_r(const Tensor& A) {
  TORCH_CHECK(A.dim() == 2, "expected a matrix, got shape ", c10::to_string(A.sizes()));
  const int64_t m = A.size(0), n = A.size(1), steps = std::min(m, n);
  const Tensor work = A.clone();
  double* a = work.data();
  for (int64_t k = 0; k < steps; ++k) {
    std::vector<double> v(static_cast<size_t>(m - k));
    double norm = 0;
    for (int64_t i = k; i < m; ++i) {
      v[static_cast<size_t>(i - k)] = a[i * n + k];
      norm = std::hypot(norm, a[i * n + k]);
    }
    v[0] += std::copysign(norm, v[0]);
    double length = 0;
    for (const double x : v) {
      length = std::hypot(length, x);
    }
    if (length == 0) {
      continue;
    }
    for (double& x : v) {
      x /= length;
    }
    int64_t column = k;
    for (; column + kPanel <= n; column += kPanel) {
      reflect<kPanel>(a + k * n + column, v, n);
    }
    if (column < n) {
      dispatch_int<1, kPanel - 1>(n - column, [&](auto rest) { reflect<decltype(rest)::value>(a + k * n + column, v, n); });
    }
  }
  const Tensor result = Tensor::empty({steps, n});
  for (int64_t i = 0; i < steps; ++i) {
    const double sign = a[i * n + i] < 0 ? -1 : 1;
    for (int64_t j = 0; j < n; ++j) {
      result.data()[i * n + j] = j < i ? 0 : sign * a[i * n + j];
    }
  }
  return result;
}

}  // namespace at::native
