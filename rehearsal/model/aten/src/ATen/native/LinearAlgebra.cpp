#include <ATen/NativeFunctions.h>

#include <algorithm>
#include <cmath>

namespace at::native {

Tensor t(const Tensor& self) {
  TORCH_CHECK(self.dim() == 2, "expected a matrix, got shape ", c10::to_string(self.sizes()));
  const int64_t rows = self.sizes()[0], columns = self.sizes()[1];
  const Tensor result = Tensor::empty({columns, rows});
  for (int64_t i = 0; i < self.numel(); ++i) {
    result.data()[i % columns * rows + i / columns] = self.data()[i];
  }
  return result;
}

Tensor matmul(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.dim() == 2 && other.dim() == 2 && self.sizes()[1] == other.sizes()[0], "shapes ",
              c10::to_string(self.sizes()), " and ", c10::to_string(other.sizes()), " do not multiply");
  const int64_t rows = self.sizes()[0], inner = self.sizes()[1], columns = other.sizes()[1];
  const Tensor result = full({rows, columns}, 0);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < inner; ++k) {
      for (int64_t j = 0; j < columns; ++j) {
        result.data()[i * columns + j] += self.data()[i * inner + k] * other.data()[k * columns + j];
      }
    }
  }
  return result;
}

// Gauss-Jordan elimination with partial pivoting.
Tensor linalg_solve(const Tensor& A, const Tensor& B) {
  TORCH_CHECK(A.dim() == 2 && A.sizes()[0] == A.sizes()[1] && (B.dim() == 1 || B.dim() == 2) && B.sizes()[0] == A.sizes()[0],
              "shapes ", c10::to_string(A.sizes()), " and ", c10::to_string(B.sizes()), " make no linear system");
  const int64_t n = A.sizes()[0], width = B.dim() == 2 ? B.sizes()[1] : 1;
  const Tensor left = add(A, Tensor::scalar(0)), result = add(B, Tensor::scalar(0));
  double *a = left.data(), *x = result.data();
  for (int64_t k = 0; k < n; ++k) {
    int64_t pivot = k;
    for (int64_t i = k + 1; i < n; ++i) {
      pivot = std::fabs(a[i * n + k]) > std::fabs(a[pivot * n + k]) ? i : pivot;
    }
    TORCH_CHECK(a[pivot * n + k] != 0, "linalg.solve: the matrix is singular");
    if (pivot != k) {
      std::swap_ranges(a + k * n, a + (k + 1) * n, a + pivot * n);
      std::swap_ranges(x + k * width, x + (k + 1) * width, x + pivot * width);
    }
    for (int64_t i = 0; i < n; ++i) {
      const double factor = i == k ? 0 : a[i * n + k] / a[k * n + k];
      for (int64_t j = k; j < n; ++j) {
        a[i * n + j] -= factor * a[k * n + j];
      }
      for (int64_t j = 0; j < width; ++j) {
        x[i * width + j] -= factor * x[k * width + j];
      }
    }
  }
  for (int64_t i = 0; i < n * width; ++i) {
    x[i] /= a[i / width * (n + 1)];
  }
  return result;
}

}  // namespace at::native
