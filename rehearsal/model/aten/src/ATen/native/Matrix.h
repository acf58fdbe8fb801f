#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cmath>
#include <utility>

namespace at::native {

// Size of a square matrix; throws for anything else.
inline int64_t square_size(const Tensor& a) {
  TORCH_CHECK(a.dim() == 2 && a.size(0) == a.size(1), "expected a square matrix, got shape ", c10::to_string(a.sizes()));
  return a.size(0);
}

// A small matrix whose size the compiler knows.
template <int N>
struct SmallMatrix {
  std::array<double, N * N> values{};

  static SmallMatrix load(const double* from) {
    SmallMatrix m;
    for (int i = 0; i < N * N; ++i) {
      m.values[i] = from[i];
    }
    return m;
  }
  double& at(int row, int column) { return values[row * N + column]; }
  double at(int row, int column) const { return values[row * N + column]; }

  SmallMatrix operator*(const SmallMatrix& other) const {
    SmallMatrix product;
    for (int i = 0; i < N; ++i) {
      for (int k = 0; k < N; ++k) {
        for (int j = 0; j < N; ++j) {
          product.at(i, j) += at(i, k) * other.at(k, j);
        }
      }
    }
    return product;
  }

  // Factors in place with partial pivoting; gives the determinant, and the order of rows in `rows`.
  double factor(std::array<int, N>& rows) {
    double determinant = 1;
    for (int i = 0; i < N; ++i) {
      rows[i] = i;
    }
    for (int k = 0; k < N; ++k) {
      int pivot = k;
      for (int i = k + 1; i < N; ++i) {
        pivot = std::fabs(at(i, k)) > std::fabs(at(pivot, k)) ? i : pivot;
      }
      if (pivot != k) {
        determinant = -determinant;
        std::swap(rows[k], rows[pivot]);
        for (int j = 0; j < N; ++j) {
          std::swap(at(k, j), at(pivot, j));
        }
      }
      determinant *= at(k, k);
      if (at(k, k) == 0) {
        return 0;
      }
      for (int i = k + 1; i < N; ++i) {
        at(i, k) /= at(k, k);
        for (int j = k + 1; j < N; ++j) {
          at(i, j) -= at(i, k) * at(k, j);
        }
      }
    }
    return determinant;
  }

  // Solves with a factored matrix.
  std::array<double, N> solve(const std::array<int, N>& rows, const std::array<double, N>& b) const {
    std::array<double, N> x{};
    for (int i = 0; i < N; ++i) {
      x[i] = b[rows[i]];
      for (int j = 0; j < i; ++j) {
        x[i] -= at(i, j) * x[j];
      }
    }
    for (int i = N - 1; i >= 0; --i) {
      for (int j = i + 1; j < N; ++j) {
        x[i] -= at(i, j) * x[j];
      }
      x[i] /= at(i, i);
    }
    return x;
  }
};

}  // namespace at::native
