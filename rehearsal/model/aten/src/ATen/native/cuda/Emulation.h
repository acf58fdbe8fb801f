#pragma once

#include <cstdint>

namespace at::native::cuda {

// Runs a kernel as a GPU would, one block of Threads after another, on the host: what makes this fake CUDA.
// The last block may be a partial one.
template <int Threads, class Kernel>
void launch(int64_t count, const Kernel& kernel) {
  int64_t first = 0;
  for (; first + Threads <= count; first += Threads) {
    for (int thread = 0; thread < Threads; ++thread) {
      kernel(first + thread);
    }
  }
  for (; first < count; ++first) {
    kernel(first);
  }
}

}  // namespace at::native::cuda
