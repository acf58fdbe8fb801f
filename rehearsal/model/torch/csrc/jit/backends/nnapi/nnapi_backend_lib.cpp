#include <torch/csrc/jit/backends/nnapi/nnapi_backend.h>

#include <algorithm>
#include <cmath>

namespace torch::nnapi {

Quantized quantize(const at::Tensor& tensor) {
  double low = 0, high = 0;
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    low = std::min(low, tensor.data()[i]);
    high = std::max(high, tensor.data()[i]);
  }
  Quantized result;
  result.scale = high > low ? (high - low) / 255 : 1;
  result.zero_point = static_cast<int>(std::lround(-low / result.scale));
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    const auto code = std::lround(tensor.data()[i] / result.scale) + result.zero_point;
    result.codes.push_back(static_cast<uint8_t>(std::clamp(code, 0L, 255L)));
  }
  return result;
}

}  // namespace torch::nnapi
