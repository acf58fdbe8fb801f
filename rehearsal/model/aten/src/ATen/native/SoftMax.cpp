#include <ATen/NativeFunctions.h>
#include <ATen/native/Lines.h>

#include <algorithm>
#include <cmath>

namespace at::native {
namespace {

template <bool Log>
Tensor normalized(const Tensor& self, int64_t dim) {
  const Lines lines(self, dim);
  const Tensor result = Tensor::empty(self.sizes());
  lines.each([&](int64_t offset, int64_t) {
    const double* in = self.data() + offset;
    double* out = result.data() + offset;
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < lines.length; ++i) {
      largest = std::max(largest, in[i * lines.inner]);
    }
    for (int64_t i = 0; i < lines.length; ++i) {
      sum += std::exp(in[i * lines.inner] - largest);
    }
    for (int64_t i = 0; i < lines.length; ++i) {
      const double x = in[i * lines.inner] - largest;
      out[i * lines.inner] = Log ? x - std::log(sum) : std::exp(x) / sum;
    }
  });
  return result;
}

}  // namespace

Tensor softmax(const Tensor& self, int64_t dim) { return normalized<false>(self, dim); }
Tensor log_softmax(const Tensor& self, int64_t dim) { return normalized<true>(self, dim); }

Tensor layer_norm(const Tensor& input, double eps) {
  const Lines lines(input, -1);
  const Tensor result = Tensor::empty(input.sizes());
  lines.each([&](int64_t offset, int64_t) {
    const double* in = input.data() + offset;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < lines.length; ++i) {
      sum += in[i];
    }
    const double center = sum / static_cast<double>(lines.length);
    for (int64_t i = 0; i < lines.length; ++i) {
      squares += (in[i] - center) * (in[i] - center);
    }
    const double scale = 1 / std::sqrt(squares / static_cast<double>(lines.length) + eps);
    for (int64_t i = 0; i < lines.length; ++i) {
      result.data()[offset + i] = (in[i] - center) * scale;
    }
  });
  return result;
}

}  // namespace at::native
