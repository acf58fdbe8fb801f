#include <ATen/NativeFunctions.h>
#include <ATen/native/Dispatch.h>
#include <ATen/native/Images.h>

#include <algorithm>

namespace at::native {
namespace {

template <int Size, class Op>
void pool(const double* in, double* out, int64_t height, int64_t width, double first, const Op& op) {
  for (int64_t y = 0; y + Size <= height; y += Size) {
    for (int64_t x = 0; x + Size <= width; x += Size) {
      double value = first;
      for (int i = 0; i < Size; ++i) {
        for (int j = 0; j < Size; ++j) {
          value = op(value, in[(y + i) * width + x + j]);
        }
      }
      *out++ = value;
    }
  }
}

template <class Op>
Tensor pooled(const Tensor& input, int64_t size, double first, const Op& op) {
  const Images in(input);
  TORCH_CHECK(size > 0, "expected a positive kernel size, got ", size);
  const Tensor result = Tensor::empty({in.count, in.channels, in.height / size, in.width / size});
  const int64_t out_size = (in.height / size) * (in.width / size);
  dispatch_int<1, 12>(size, [&](auto constant) {
    for (int64_t plane = 0; plane < in.count * in.channels; ++plane) {
      pool<decltype(constant)::value>(input.data() + plane * in.height * in.width, result.data() + plane * out_size, in.height,
                                      in.width, first, op);
    }
  });
  return result;
}

}  // namespace

Tensor max_pool2d(const Tensor& input, int64_t kernel_size) {
  return pooled(input, kernel_size, -__builtin_inf(), [](double a, double b) { return std::max(a, b); });
}

Tensor avg_pool2d(const Tensor& input, int64_t kernel_size) {
  const double area = static_cast<double>(kernel_size * kernel_size);
  return pooled(input, kernel_size, 0, [area](double a, double b) { return a + b / area; });
}

}  // namespace at::native
