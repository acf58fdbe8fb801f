#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace torch::nnapi {

// Values as bytes: value = (code - zero_point) * scale.
struct Quantized {
  double scale;
  int zero_point;
  std::vector<uint8_t> codes;
};

Quantized quantize(const at::Tensor& tensor);

}  // namespace torch::nnapi
