#include <ATen/NativeFunctions.h>
#include <ATen/Parallel.h>
#include <ATen/native/Dispatch.h>

#include <cmath>

namespace at::native {
namespace {

template <int Width>
double fixed_distance(const double* a, const double* b) {
  double sum = 0;
  for (int i = 0; i < Width; ++i) {
    sum += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return std::sqrt(sum);
}

double distance(const double* a, const double* b, int64_t width) {
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) {
    sum += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return std::sqrt(sum);
}

template <class Metric>
void all_pairs(const Tensor& a, const Tensor& b, double* out, const Metric& metric) {
  const int64_t n = a.size(0), m = b.size(0), width = a.size(1);
  parallel_for(0, n, 64, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      for (int64_t j = 0; j < m; ++j) {
        out[i * m + j] = metric(a.data() + i * width, b.data() + j * width);
      }
    }
  });
}

}  // namespace

Tensor cdist(const Tensor& x1, const Tensor& x2) {
  TORCH_CHECK(x1.dim() == 2 && x2.dim() == 2 && x1.size(1) == x2.size(1), "expected two lists of points of the same dimension");
  const Tensor result = Tensor::empty({x1.size(0), x2.size(0)});
  const int64_t width = x1.size(1);
  if (width >= 1 && width <= 24) {
    dispatch_int<1, 24>(width, [&](auto size) { all_pairs(x1, x2, result.data(), fixed_distance<decltype(size)::value>); });
  } else {
    all_pairs(x1, x2, result.data(), [width](const double* a, const double* b) { return distance(a, b, width); });
  }
  return result;
}

}  // namespace at::native
