#include <ATen/NativeFunctions.h>
#include <ATen/native/Dispatch.h>
#include <ATen/native/Lines.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace at::native {
namespace {

template <int Rank, int Level>
double* gather(const std::array<int64_t, Rank>& sizes, const std::array<int64_t, Rank>& strides, const double* in, double* out) {
  for (int64_t i = 0; i < sizes[Level]; ++i) {
    if constexpr (Level + 1 == Rank) {
      *out++ = in[i * strides[Level]];
    } else {
      out = gather<Rank, Level + 1>(sizes, strides, in + i * strides[Level], out);
    }
  }
  return out;
}

}  // namespace

Tensor reshape(const Tensor& self, const IntList& shape) {
  IntList sizes = shape;
  const auto open = std::find(sizes.begin(), sizes.end(), -1);
  if (open != sizes.end()) {
    *open = 1;
    const int64_t known = c10::numel(sizes);
    TORCH_CHECK(known > 0 && self.numel() % known == 0, "shape ", c10::to_string(shape), " does not fit ", self.numel(), " elements");
    *open = self.numel() / known;
  }
  return self.view(sizes);
}

Tensor transpose(const Tensor& self, int64_t dim0, int64_t dim1) {
  const auto a = static_cast<size_t>(c10::wrap_dim(dim0, self.dim())), b = static_cast<size_t>(c10::wrap_dim(dim1, self.dim()));
  IntList sizes = self.sizes(), strides = c10::contiguous_strides(sizes);
  std::swap(sizes[a], sizes[b]);
  std::swap(strides[a], strides[b]);
  const Tensor result = Tensor::empty(sizes);
  dispatch_int<1, 8>(self.dim(), [&](auto rank) {
    constexpr int Rank = decltype(rank)::value;
    std::array<int64_t, Rank> n, step;
    std::copy_n(sizes.begin(), Rank, n.begin());
    std::copy_n(strides.begin(), Rank, step.begin());
    gather<Rank, 0>(n, step, self.data(), result.data());
  });
  return result;
}

Tensor narrow(const Tensor& self, int64_t dim, int64_t start, int64_t length) {
  const Lines lines(self, dim);
  const int64_t first = start < 0 ? start + lines.length : start;
  TORCH_CHECK(0 <= first && 0 <= length && first + length <= lines.length, "[", first, ", ", first + length, ") is outside of ", lines.length);
  IntList sizes = self.sizes();
  sizes[static_cast<size_t>(c10::wrap_dim(dim, self.dim()))] = length;
  const Tensor result = Tensor::empty(sizes);
  double* out = result.data();
  for (int64_t o = 0; o < lines.outer; ++o) {
    out = std::copy_n(self.data() + (o * lines.length + first) * lines.inner, length * lines.inner, out);
  }
  return result;
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  const Lines lines(self, dim);
  IntList sizes = self.sizes();
  sizes[static_cast<size_t>(c10::wrap_dim(dim, self.dim()))] = index.numel();
  const Tensor result = Tensor::empty(sizes);
  double* out = result.data();
  for (int64_t o = 0; o < lines.outer; ++o) {
    for (int64_t i = 0; i < index.numel(); ++i) {
      const auto position = c10::wrap_dim(static_cast<int64_t>(std::llround(index.data()[i])), lines.length);
      out = std::copy_n(self.data() + (o * lines.length + position) * lines.inner, lines.inner, out);
    }
  }
  return result;
}

}  // namespace at::native
