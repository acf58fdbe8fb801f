#pragma once

#include <ATen/core/Tensor.h>

namespace at::native {

// A tensor seen as lines along one dimension: element i of line (o, n) is at (o * length + i) * inner + n.
struct Lines {
  int64_t outer = 1, length = 1, inner = 1;

  Lines(const Tensor& tensor, int64_t dim) {
    const int64_t along = c10::wrap_dim(dim, tensor.dim());
    for (int64_t i = 0; i < tensor.dim(); ++i) {
      (i < along ? outer : i == along ? length : inner) *= tensor.size(i);
    }
  }

  // Calls body(offset of the line's first element, number of the line) for every line.
  template <class Body>
  void each(Body&& body) const {
    for (int64_t o = 0; o < outer; ++o) {
      for (int64_t n = 0; n < inner; ++n) {
        body(o * length * inner + n, o * inner + n);
      }
    }
  }
};

}  // namespace at::native
