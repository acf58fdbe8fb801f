#include <ATen/NativeFunctions.h>
#include <ATen/Parallel.h>
#include <ATen/native/Dispatch.h>

#include <algorithm>

namespace at::native {
namespace {

constexpr int kRows = 6, kColumns = 12;

// Rows x Columns of the product, kept in registers while walking the inner dimension.
template <int Rows, int Columns>
void tile(const double* a, const double* b, double* c, int64_t inner, int64_t width) {
  double sums[Rows][Columns] = {};
  for (int64_t k = 0; k < inner; ++k) {
    for (int i = 0; i < Rows; ++i) {
      for (int j = 0; j < Columns; ++j) {
        sums[i][j] += a[i * inner + k] * b[k * width + j];
      }
    }
  }
  for (int i = 0; i < Rows; ++i) {
    for (int j = 0; j < Columns; ++j) {
      c[i * width + j] = sums[i][j];
    }
  }
}

template <int Rows>
void strip(const double* a, const double* b, double* c, int64_t inner, int64_t width) {
  int64_t column = 0;
  for (; column + kColumns <= width; column += kColumns) {
    tile<Rows, kColumns>(a, b + column, c + column, inner, width);
  }
  if (column < width) {
    dispatch_int<1, kColumns - 1>(width - column, [&](auto rest) {
      tile<Rows, decltype(rest)::value>(a, b + column, c + column, inner, width);
    });
  }
}

}  // namespace

Tensor matmul(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.dim() >= 1 && self.dim() <= 2 && other.dim() >= 1 && other.dim() <= 2, "matmul() takes vectors and matrices");
  const int64_t rows = self.dim() == 2 ? self.size(0) : 1, inner = self.size(-1);
  const int64_t width = other.dim() == 2 ? other.size(1) : 1;
  TORCH_CHECK(other.size(0) == inner, "shapes ", c10::to_string(self.sizes()), " and ", c10::to_string(other.sizes()), " do not multiply");
  IntList sizes;
  if (self.dim() == 2) {
    sizes.push_back(rows);
  }
  if (other.dim() == 2) {
    sizes.push_back(width);
  }
  const Tensor result = Tensor::empty(sizes);
  const double *a = self.data(), *b = other.data();
  double* c = result.data();
  const int64_t strips = (rows + kRows - 1) / kRows;
  const int64_t grain = std::max<int64_t>(1, (1 << 18) / std::max<int64_t>(1, kRows * inner * width));
  parallel_for(0, strips, grain, [=](int64_t first, int64_t last) {
    for (int64_t s = first; s < last; ++s) {
      const int64_t row = s * kRows;
      dispatch_int<1, kRows>(std::min<int64_t>(kRows, rows - row), [&](auto count) {
        strip<decltype(count)::value>(a + row * inner, b, c + row * width, inner, width);
      });
    }
  });
  return result;
}

}  // namespace at::native
