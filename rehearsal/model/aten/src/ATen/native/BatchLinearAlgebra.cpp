#include <ATen/NativeFunctions.h>
#include <ATen/native/Dispatch.h>
#include <ATen/native/Matrix.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace at::native {
namespace {

constexpr int kSmall = 8;

// P A = L U in one matrix, with partial pivoting.
struct LU {
  int64_t n;
  std::vector<double> values;
  std::vector<int64_t> rows;
  double determinant = 1;

  explicit LU(const Tensor& a) : n(square_size(a)), values(a.data(), a.data() + a.numel()), rows(static_cast<size_t>(n)) {
    std::iota(rows.begin(), rows.end(), 0);
    for (int64_t k = 0; k < n && determinant != 0; ++k) {
      int64_t pivot = k;
      for (int64_t i = k + 1; i < n; ++i) {
        pivot = std::fabs(at(i, k)) > std::fabs(at(pivot, k)) ? i : pivot;
      }
      if (pivot != k) {
        std::swap_ranges(&at(k, 0), &at(k, 0) + n, &at(pivot, 0));
        std::swap(rows[static_cast<size_t>(k)], rows[static_cast<size_t>(pivot)]);
        determinant = -determinant;
      }
      determinant *= at(k, k);
      for (int64_t i = k + 1; i < n && determinant != 0; ++i) {
        const double factor = at(i, k) /= at(k, k);
        for (int64_t j = k + 1; j < n; ++j) {
          at(i, j) -= factor * at(k, j);
        }
      }
    }
  }
  double& at(int64_t row, int64_t column) { return values[static_cast<size_t>(row * n + column)]; }

  // B is n by `width`; so is the result.
  void solve(const double* b, double* x, int64_t width) {
    for (int64_t i = 0; i < n; ++i) {
      std::copy_n(b + rows[static_cast<size_t>(i)] * width, width, x + i * width);
      for (int64_t j = 0; j < i; ++j) {
        for (int64_t c = 0; c < width; ++c) {
          x[i * width + c] -= at(i, j) * x[j * width + c];
        }
      }
    }
    for (int64_t i = n - 1; i >= 0; --i) {
      for (int64_t j = i + 1; j < n; ++j) {
        for (int64_t c = 0; c < width; ++c) {
          x[i * width + c] -= at(i, j) * x[j * width + c];
        }
      }
      for (int64_t c = 0; c < width; ++c) {
        x[i * width + c] /= at(i, i);
      }
    }
  }
};

template <int N>
double small_solve(const double* a, const double* b, double* x, int64_t width) {
  auto matrix = SmallMatrix<N>::load(a);
  std::array<int, N> rows;
  const double determinant = matrix.factor(rows);
  if (determinant != 0) {
    for (int64_t c = 0; c < width; ++c) {
      std::array<double, N> column;
      for (int i = 0; i < N; ++i) {
        column[i] = b[i * width + c];
      }
      column = matrix.solve(rows, column);
      for (int i = 0; i < N; ++i) {
        x[i * width + c] = column[i];
      }
    }
  }
  return determinant;
}

}  // namespace

Tensor linalg_solve(const Tensor& A, const Tensor& B) {
  const int64_t n = square_size(A);
  TORCH_CHECK((B.dim() == 1 || B.dim() == 2) && B.size(0) == n, "shapes ", c10::to_string(A.sizes()), " and ", c10::to_string(B.sizes()), " make no linear system");
  const int64_t width = B.dim() == 2 ? B.size(1) : 1;
  const Tensor result = Tensor::empty(B.sizes());
  double determinant = 0;
  if (n >= 1 && n <= kSmall) {
    dispatch_int<1, kSmall>(n, [&](auto size) {
      determinant = small_solve<decltype(size)::value>(A.data(), B.data(), result.data(), width);
    });
  } else {
    LU lu(A);
    determinant = lu.determinant;
    if (determinant != 0) {
      lu.solve(B.data(), result.data(), width);
    }
  }
  TORCH_CHECK(determinant != 0, "linalg.solve: the matrix is singular");
  return result;
}

Tensor linalg_det(const Tensor& A) { return Tensor::scalar(LU(A).determinant); }

Tensor linalg_inv(const Tensor& A) { return linalg_solve(A, eye(square_size(A))); }

}  // namespace at::native
