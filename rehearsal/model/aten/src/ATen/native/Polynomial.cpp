#include <ATen/NativeFunctions.h>
#include <ATen/Parallel.h>
#include <ATen/native/Dispatch.h>

#include <array>

namespace at::native {
namespace {

// Horner's rule with all coefficients at hand.
template <int Count>
double horner(const std::array<double, Count>& coefficients, double x) {
  double sum = coefficients[0];
  for (int i = 1; i < Count; ++i) {
    sum = sum * x + coefficients[i];
  }
  return sum;
}

// Coefficients of Chebyshev polynomials of the first kind, highest power first, worked out by the compiler.
template <int Degree>
constexpr std::array<double, Degree + 1> chebyshev_coefficients() {
  std::array<double, Degree + 1> now{};
  if constexpr (Degree == 0) {
    now[0] = 1;
  } else if constexpr (Degree == 1) {
    now[0] = 1;
  } else {
    constexpr auto one = chebyshev_coefficients<Degree - 1>();
    constexpr auto two = chebyshev_coefficients<Degree - 2>();
    for (int i = 0; i < Degree; ++i) {
      now[i] += 2 * one[i];
    }
    for (int i = 0; i < Degree - 1; ++i) {
      now[i + 2] -= two[i];
    }
  }
  return now;
}

template <int Count>
Tensor evaluate(const std::array<double, Count>& coefficients, const Tensor& x) {
  const Tensor result = Tensor::empty(x.sizes());
  parallel_for(0, x.numel(), 1 << 14, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      result.data()[i] = horner<Count>(coefficients, x.data()[i]);
    }
  });
  return result;
}

}  // namespace

// Highest power first; up to 24 coefficients.
Tensor polyval(const Tensor& coefficients, const Tensor& x) {
  Tensor result;
  dispatch_int<1, 24>(coefficients.numel(), [&](auto count) {
    constexpr int Count = decltype(count)::value;
    std::array<double, Count> values;
    for (int i = 0; i < Count; ++i) {
      values[i] = coefficients.data()[i];
    }
    result = evaluate<Count>(values, x);
  });
  return result;
}

Tensor chebyshev(const Tensor& x, int64_t n) {
  Tensor result;
  dispatch_int<0, 23>(n, [&](auto degree) {
    constexpr int Degree = decltype(degree)::value;
    result = evaluate<Degree + 1>(chebyshev_coefficients<Degree>(), x);
  });
  return result;
}

}  // namespace at::native
