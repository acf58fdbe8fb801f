#include <ATen/NativeFunctions.h>
#include <ATen/native/Dispatch.h>
#include <ATen/native/Matrix.h>

#include <algorithm>
#include <cmath>

namespace at::native {
namespace {

constexpr int kBlock = 20;

// Factors the block at `a` in place; false if it is not positive definite.
template <int N>
bool diagonal_block(double* a, int64_t stride) {
  for (int j = 0; j < N; ++j) {
    for (int k = 0; k < j; ++k) {
      a[j * stride + j] -= a[j * stride + k] * a[j * stride + k];
    }
    if (!(a[j * stride + j] > 0)) {
      return false;
    }
    a[j * stride + j] = std::sqrt(a[j * stride + j]);
    for (int i = j + 1; i < N; ++i) {
      for (int k = 0; k < j; ++k) {
        a[i * stride + j] -= a[i * stride + k] * a[j * stride + k];
      }
      a[i * stride + j] /= a[j * stride + j];
    }
  }
  return true;
}

// Solves for the rows below a factored diagonal block.
template <int N>
void panel(const double* diagonal, double* rows, int64_t count, int64_t stride) {
  for (int64_t i = 0; i < count; ++i) {
    double* row = rows + i * stride;
    for (int j = 0; j < N; ++j) {
      for (int k = 0; k < j; ++k) {
        row[j] -= row[k] * diagonal[j * stride + k];
      }
      row[j] /= diagonal[j * stride + j];
    }
  }
}

}  // namespace

Tensor linalg_cholesky(const Tensor& A) {
  const int64_t n = square_size(A);
  const Tensor result = A.clone();
  double* a = result.data();
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t width = std::min<int64_t>(kBlock, n - first), below = n - first - width;
    double* diagonal = a + first * n + first;
    double* rows = diagonal + width * n;
    dispatch_int<1, kBlock>(width, [&](auto size) {
      constexpr int N = decltype(size)::value;
      TORCH_CHECK(diagonal_block<N>(diagonal, n), "linalg.cholesky: the matrix is not positive definite");
      panel<N>(diagonal, rows, below, n);
      for (int64_t i = 0; i < below; ++i) {
        for (int64_t j = 0; j <= i; ++j) {
          double sum = 0;
          for (int k = 0; k < N; ++k) {
            sum += rows[i * n + k] * rows[j * n + k];
          }
          rows[i * n + N + j] -= sum;
        }
      }
    });
  }
  for (int64_t i = 0; i < n; ++i) {
    std::fill(a + i * n + i + 1, a + (i + 1) * n, 0.0);
  }
  return result;
}

}  // namespace at::native
