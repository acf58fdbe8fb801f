#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Dispatch.h>

#include <algorithm>
#include <array>

namespace at::native {

template <int Rank>
struct Walk {
  std::array<int64_t, Rank> sizes, a, b;
};

// One loop per dimension, nested by the compiler; the innermost runs over whole rows.
template <int Rank, int Level, class Op>
double* loop(const Walk<Rank>& walk, const double* a, const double* b, double* out, const Op& op) {
  for (int64_t i = 0; i < walk.sizes[Level]; ++i) {
    if constexpr (Level + 1 == Rank) {
      *out++ = op(a[i * walk.a[Level]], b[i * walk.b[Level]]);
    } else {
      out = loop<Rank, Level + 1>(walk, a + i * walk.a[Level], b + i * walk.b[Level], out, op);
    }
  }
  return out;
}

// op(x, y) for all pairs of elements that broadcasting brings together.
template <class Op>
Tensor elementwise(const Tensor& a, const Tensor& b, const Op& op) {
  const Tensor result = Tensor::empty(c10::broadcast(a.sizes(), b.sizes()));
  const double *x = a.data(), *y = b.data();
  double* out = result.data();
  if (a.sizes() == b.sizes()) {
    parallel_for(0, result.numel(), 1 << 15, [=](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        out[i] = op(x[i], y[i]);
      }
    });
    return result;
  }
  dispatch_int<1, 8>(result.dim(), [&](auto rank) {
    constexpr int Rank = decltype(rank)::value;
    const IntList left = c10::broadcast_strides(a.sizes(), result.sizes());
    const IntList right = c10::broadcast_strides(b.sizes(), result.sizes());
    Walk<Rank> walk;
    std::copy_n(result.sizes().begin(), Rank, walk.sizes.begin());
    std::copy_n(left.begin(), Rank, walk.a.begin());
    std::copy_n(right.begin(), Rank, walk.b.begin());
    loop<Rank, 0>(walk, x, y, out, op);
  });
  return result;
}

}  // namespace at::native
