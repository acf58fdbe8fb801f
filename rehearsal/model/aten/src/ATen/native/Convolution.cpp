#include <ATen/NativeFunctions.h>
#include <ATen/Parallel.h>
#include <ATen/native/Dispatch.h>
#include <ATen/native/Images.h>

namespace at::native {
namespace {

// Adds the correlation of one channel with one kernel of Rows x Columns.
template <int Rows, int Columns>
void correlate(const double* in, const double* kernel, double* out, int64_t height, int64_t width) {
  const int64_t out_height = height - Rows + 1, out_width = width - Columns + 1;
  for (int64_t y = 0; y < out_height; ++y) {
    for (int64_t x = 0; x < out_width; ++x) {
      double sum = 0;
      for (int i = 0; i < Rows; ++i) {
        for (int j = 0; j < Columns; ++j) {
          sum += in[(y + i) * width + x + j] * kernel[i * Columns + j];
        }
      }
      out[y * out_width + x] += sum;
    }
  }
}

}  // namespace

// Without padding, step 1; kernels up to 6 x 6.
Tensor conv2d(const Tensor& input, const Tensor& weight) {
  const Images in(input), kernels(weight);
  TORCH_CHECK(in.channels == kernels.channels, "the images have ", in.channels, " channels, the kernels ", kernels.channels);
  TORCH_CHECK(in.height >= kernels.height && in.width >= kernels.width, "the kernels are larger than the images");
  const int64_t out_height = in.height - kernels.height + 1, out_width = in.width - kernels.width + 1;
  const Tensor result = full({in.count, kernels.count, out_height, out_width}, 0);
  dispatch_int<1, 6>(kernels.height, [&](auto height) {
    dispatch_int<1, 6>(kernels.width, [&](auto width) {
      constexpr int Rows = decltype(height)::value, Columns = decltype(width)::value;
      parallel_for(0, in.count * kernels.count, 1, [&](int64_t first, int64_t last) {
        for (int64_t number = first; number < last; ++number) {
          const int64_t image = number / kernels.count, kernel = number % kernels.count;
          for (int64_t channel = 0; channel < in.channels; ++channel) {
            correlate<Rows, Columns>(input.data() + (image * in.channels + channel) * in.height * in.width,
                                     weight.data() + (kernel * in.channels + channel) * Rows * Columns,
                                     result.data() + number * out_height * out_width, in.height, in.width);
          }
        }
      });
    });
  });
  return result;
}

}  // namespace at::native
