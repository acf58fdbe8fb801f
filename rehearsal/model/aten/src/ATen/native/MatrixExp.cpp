#include <ATen/NativeFunctions.h>
#include <ATen/native/Dispatch.h>
#include <ATen/native/Matrix.h>

#include <algorithm>
#include <cmath>

namespace at::native {
namespace {

constexpr int kTerms = 18, kSmall = 8;

double largest_row_sum(const Tensor& a) {
  const int64_t n = a.size(0);
  double largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) {
      sum += std::fabs(a.data()[i * n + j]);
    }
    largest = std::max(largest, sum);
  }
  return largest;
}

// Taylor's series by Horner's rule for exp(scale * A), then squared `squarings` times.
template <int N>
SmallMatrix<N> small_exp(SmallMatrix<N> a, double scale, int squarings) {
  for (double& value : a.values) {
    value *= scale;
  }
  SmallMatrix<N> sum;
  for (int i = 0; i < N; ++i) {
    sum.at(i, i) = 1;
  }
  for (int term = kTerms; term > 0; --term) {
    sum = a * sum;
    for (double& value : sum.values) {
      value /= term;
    }
    for (int i = 0; i < N; ++i) {
      sum.at(i, i) += 1;
    }
  }
  for (int i = 0; i < squarings; ++i) {
    sum = sum * sum;
  }
  return sum;
}

}  // namespace

Tensor linalg_matrix_exp(const Tensor& A) {
  const int64_t n = square_size(A);
  const double norm = largest_row_sum(A);
  const int squarings = norm > 0.5 ? static_cast<int>(std::ceil(std::log2(norm / 0.5))) : 0;
  const double scale = std::ldexp(1.0, -squarings);
  if (n >= 1 && n <= kSmall) {
    const Tensor result = Tensor::empty({n, n});
    dispatch_int<1, kSmall>(n, [&](auto size) {
      const auto sum = small_exp(SmallMatrix<decltype(size)::value>::load(A.data()), scale, squarings);
      std::copy(sum.values.begin(), sum.values.end(), result.data());
    });
    return result;
  }
  const Tensor a = mul(A, Tensor::scalar(scale)), one = eye(n);
  Tensor sum = one;
  for (int term = kTerms; term > 0; --term) {
    sum = add(one, div(matmul(a, sum), Tensor::scalar(term)));
  }
  for (int i = 0; i < squarings; ++i) {
    sum = matmul(sum, sum);
  }
  return sum;
}

}  // namespace at::native
