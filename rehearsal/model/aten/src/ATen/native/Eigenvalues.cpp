#include <ATen/NativeFunctions.h>
#include <ATen/native/Dispatch.h>
#include <ATen/native/Matrix.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace at::native {
namespace {

// Jacobi rotations until nothing is left off the diagonal. N is 0 where the size is known at run time only.
template <int N>
void jacobi(double* a, int64_t runtime_n) {
  const int64_t n = N > 0 ? N : runtime_n;
  for (int sweep = 0; sweep < 60; ++sweep) {
    double off = 0, all = 0;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        all += a[i * n + j] * a[i * n + j];
        off += i == j ? 0 : a[i * n + j] * a[i * n + j];
      }
    }
    if (off <= 1e-30 * all) {
      return;
    }
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t q = p + 1; q < n; ++q) {
        if (a[p * n + q] == 0) {
          continue;
        }
        const double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
        const double t = std::copysign(1.0, theta) / (std::fabs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (int64_t k = 0; k < n; ++k) {
          const double x = a[k * n + p], y = a[k * n + q];
          a[k * n + p] = c * x - s * y;
          a[k * n + q] = s * x + c * y;
        }
        for (int64_t k = 0; k < n; ++k) {
          const double x = a[p * n + k], y = a[q * n + k];
          a[p * n + k] = c * x - s * y;
          a[q * n + k] = s * x + c * y;
        }
      }
    }
  }
}

std::vector<double> symmetric_eigenvalues(std::vector<double> a, int64_t n) {
  if (n >= 1 && n <= 12) {
    dispatch_int<1, 12>(n, [&](auto size) { jacobi<decltype(size)::value>(a.data(), n); });
  } else {
    jacobi<0>(a.data(), n);
  }
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(a[static_cast<size_t>(i * n + i)]);
  }
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace

// Of a symmetric matrix, ascending; only its lower triangle is read.
Tensor linalg_eigvalsh(const Tensor& A) {
  const int64_t n = square_size(A);
  std::vector<double> a(A.data(), A.data() + A.numel());
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = i + 1; j < n; ++j) {
      a[static_cast<size_t>(i * n + j)] = a[static_cast<size_t>(j * n + i)];
    }
  }
  return Tensor::from_values({n}, symmetric_eigenvalues(std::move(a), n));
}

// Descending, as roots of the eigenvalues of the smaller of A A^T and A^T A.
Tensor linalg_svdvals(const Tensor& A) {
  TORCH_CHECK(A.dim() == 2, "expected a matrix, got shape ", c10::to_string(A.sizes()));
  const Tensor other = transpose(A, 0, 1);
  const Tensor gram = A.size(0) <= A.size(1) ? matmul(A, other) : matmul(other, A);
  std::vector<double> values = symmetric_eigenvalues({gram.data(), gram.data() + gram.numel()}, gram.size(0));
  std::reverse(values.begin(), values.end());
  for (double& value : values) {
    value = std::sqrt(std::max(value, 0.0));
  }
  const auto count = static_cast<int64_t>(values.size());
  return Tensor::from_values({count}, values);
}

}  // namespace at::native
