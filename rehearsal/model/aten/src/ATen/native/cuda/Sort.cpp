#include <ATen/native/cuda/Kernels.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace at::native::cuda {

// The network a GPU would run, for any length by padding with infinity.
Tensor bitonic_sort(const Tensor& a) {
  size_t size = 1;
  while (size < static_cast<size_t>(a.numel())) {
    size *= 2;
  }
  std::vector<double> values(a.data(), a.data() + a.numel());
  values.resize(size, std::numeric_limits<double>::infinity());
  for (size_t width = 2; width <= size; width *= 2) {
    for (size_t step = width / 2; step > 0; step /= 2) {
      for (size_t i = 0; i < size; ++i) {
        const size_t other = i ^ step;
        const bool ascending = (i & width) == 0;
        if (other > i && (values[i] > values[other]) == ascending) {
          std::swap(values[i], values[other]);
        }
      }
    }
  }
  const Tensor result = Tensor::empty(a.sizes());
  std::copy_n(values.begin(), a.numel(), result.data());
  return result;
}

}  // namespace at::native::cuda
