#include <ATen/NativeFunctions.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

namespace at::native {
namespace {

int64_t last_length(const Tensor& t) { return t.dim() == 0 ? 1 : t.size(-1); }

template <class Body>
void each_row(const Tensor& self, const Body& body) {
  const int64_t length = last_length(self);
  for (int64_t first = 0; length > 0 && first < self.numel(); first += length) {
    body(first, length);
  }
}

}  // namespace

// Along the last dimension; NaN sorts last.
Tensor sort(const Tensor& self) {
  const Tensor result = self.clone();
  each_row(self, [&](int64_t first, int64_t length) {
    std::stable_sort(result.data() + first, result.data() + first + length,
                     [](double a, double b) { return a < b || (b != b && a == a); });
  });
  return result;
}

Tensor argsort(const Tensor& self) {
  const Tensor result = Tensor::empty(self.sizes());
  each_row(self, [&](int64_t first, int64_t length) {
    std::vector<int64_t> order(static_cast<size_t>(length));
    std::iota(order.begin(), order.end(), 0);
    const double* row = self.data() + first;
    std::stable_sort(order.begin(), order.end(), [row](int64_t a, int64_t b) { return row[a] < row[b]; });
    std::copy(order.begin(), order.end(), result.data() + first);
  });
  return result;
}

Tensor topk(const Tensor& self, int64_t k) {
  const int64_t length = last_length(self);
  TORCH_CHECK(self.dim() > 0 && 0 <= k && k <= length, "the largest ", k, " of ", length);
  IntList sizes = self.sizes();
  sizes.back() = k;
  const Tensor result = Tensor::empty(sizes);
  double* out = result.data();
  each_row(self, [&](int64_t first, int64_t n) {
    std::vector<double> row(self.data() + first, self.data() + first + n);
    std::partial_sort(row.begin(), row.begin() + k, row.end(), std::greater<>());
    out = std::copy_n(row.begin(), k, out);
  });
  return result;
}

}  // namespace at::native
