#pragma once

#include <ATen/core/Tensor.h>

namespace at::native {

// Sizes of a batch of images with channels.
struct Images {
  int64_t count, channels, height, width;

  explicit Images(const Tensor& t) {
    TORCH_CHECK(t.dim() == 4, "expected images of shape [count, channels, height, width], got ", c10::to_string(t.sizes()));
    count = t.size(0);
    channels = t.size(1);
    height = t.size(2);
    width = t.size(3);
  }
};

}  // namespace at::native
