#include <ATen/NativeFunctions.h>

#include <complex>
#include <vector>

namespace at::native {
namespace {

using Complex = std::complex<double>;
constexpr double kPi = 3.14159265358979323846;

// A Fourier transform of Size points, unrolled by the compiler down to single ones.
template <int Size>
void butterflies(const Complex* in, Complex* out, size_t stride) {
  if constexpr (Size == 1) {
    *out = *in;
  } else {
    butterflies<Size / 2>(in, out, stride * 2);
    butterflies<Size / 2>(in + stride, out + Size / 2, stride * 2);
    for (int k = 0; k < Size / 2; ++k) {
      const Complex odd = std::polar(1.0, -2 * kPi * k / Size) * out[k + Size / 2];
      out[k + Size / 2] = out[k] - odd;
      out[k] += odd;
    }
  }
}

void transform(const Complex* in, Complex* out, size_t count, size_t stride) {
  if (count == 16) {
    butterflies<16>(in, out, stride);
  } else if (count % 2 == 0) {
    const size_t half = count / 2;
    transform(in, out, half, stride * 2);
    transform(in + stride, out + half, half, stride * 2);
    for (size_t k = 0; k < half; ++k) {
      const Complex odd = std::polar(1.0, -2 * kPi * static_cast<double>(k) / static_cast<double>(count)) * out[k + half];
      out[k + half] = out[k] - odd;
      out[k] += odd;
    }
  } else {
    for (size_t k = 0; k < count; ++k) {
      out[k] = 0;
      for (size_t i = 0; i < count; ++i) {
        out[k] += in[i * stride] * std::polar(1.0, -2 * kPi * static_cast<double>(i * k % count) / static_cast<double>(count));
      }
    }
  }
}

}  // namespace

// Squared magnitudes of the discrete Fourier transform of a vector.
Tensor fft_power(const Tensor& self) {
  TORCH_CHECK(self.dim() == 1 && self.numel() > 0, "expected a vector, got shape ", c10::to_string(self.sizes()));
  const std::vector<Complex> in(self.data(), self.data() + self.numel());
  std::vector<Complex> out(in.size());
  transform(in.data(), out.data(), in.size(), 1);
  const Tensor result = Tensor::empty(self.sizes());
  for (size_t i = 0; i < out.size(); ++i) {
    result.data()[i] = std::norm(out[i]);
  }
  return result;
}

}  // namespace at::native
