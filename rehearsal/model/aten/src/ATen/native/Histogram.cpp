#include <ATen/NativeFunctions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace at::native {

Tensor histc(const Tensor& self, int64_t bins, double min, double max) {
  TORCH_CHECK(bins > 0 && min < max, "expected bins between two bounds, got ", bins, " between ", min, " and ", max);
  const Tensor result = full({bins}, 0);
  std::mutex mutex;
  parallel_for(0, self.numel(), 1 << 15, [&](int64_t first, int64_t last) {
    std::vector<int64_t> counts(static_cast<size_t>(bins));
    for (int64_t i = first; i < last; ++i) {
      const double value = self.data()[i];
      if (value >= min && value <= max) {
        const auto bin = static_cast<int64_t>((value - min) / (max - min) * static_cast<double>(bins));
        ++counts[static_cast<size_t>(std::min(bin, bins - 1))];
      }
    }
    const std::lock_guard<std::mutex> lock(mutex);
    for (int64_t bin = 0; bin < bins; ++bin) {
      result.data()[bin] += static_cast<double>(counts[static_cast<size_t>(bin)]);
    }
  });
  return result;
}

}  // namespace at::native
