#pragma once

#include <ATen/core/Tensor.h>

namespace at::native {

// Returns the position of an element of a shape in a tensor that is broadcast to it. Dimensions are matched from the last one
// on, and dimensions that repeat do not count.
inline int64_t broadcast_offset(int64_t position, const IntList& shape, const IntList& own) {
  int64_t offset = 0, step = 1;
  for (size_t back = 1; back <= own.size(); ++back) {
    const int64_t size = own[own.size() - back], index = position % shape[shape.size() - back];
    position /= shape[shape.size() - back];
    offset += size == 1 ? 0 : index * step;
    step *= size;
  }
  return offset;
}

}  // namespace at::native
