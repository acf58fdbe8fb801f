#include <ATen/native/Dispatch.h>
#include <ATen/native/cuda/Kernels.h>

#include <algorithm>
#include <array>

namespace at::native::cuda {
namespace {

constexpr int kTile = 6;

// One tile of the product, from tiles held in "shared memory".
template <int Rows, int Columns>
void tile(const double* a, const double* b, double* c, int64_t inner, int64_t width) {
  std::array<double, Rows * Columns> sums{};
  for (int64_t first = 0; first < inner; first += kTile) {
    std::array<double, Rows * kTile> left{};
    std::array<double, kTile * Columns> right{};
    const auto depth = static_cast<int>(std::min<int64_t>(kTile, inner - first));
    for (int k = 0; k < depth; ++k) {
      for (int i = 0; i < Rows; ++i) {
        left[i * kTile + k] = a[i * inner + first + k];
      }
      for (int j = 0; j < Columns; ++j) {
        right[k * Columns + j] = b[(first + k) * width + j];
      }
    }
    for (int i = 0; i < Rows; ++i) {
      for (int j = 0; j < Columns; ++j) {
        for (int k = 0; k < kTile; ++k) {
          sums[i * Columns + j] += left[i * kTile + k] * right[k * Columns + j];
        }
      }
    }
  }
  for (int i = 0; i < Rows; ++i) {
    std::copy_n(sums.begin() + i * Columns, Columns, c + i * width);
  }
}

}  // namespace

Tensor block_matmul(const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0), "expected two matrices that multiply");
  const int64_t rows = a.size(0), inner = a.size(1), width = b.size(1);
  const Tensor result = Tensor::empty({rows, width});
  for (int64_t i = 0; i < rows; i += kTile) {
    for (int64_t j = 0; j < width; j += kTile) {
      dispatch_int<1, kTile>(std::min<int64_t>(kTile, rows - i), [&](auto r) {
        dispatch_int<1, kTile>(std::min<int64_t>(kTile, width - j), [&](auto c) {
          tile<decltype(r)::value, decltype(c)::value>(a.data() + i * inner, b.data() + j, result.data() + i * width + j, inner, width);
        });
      });
    }
  }
  return result;
}

}  // namespace at::native::cuda
