#include <ATen/native/cuda/Kernels.h>

#include <algorithm>
#include <array>

namespace at::native::cuda {
namespace {

// A tree over the lanes of a block, as a GPU reduces.
template <int Lanes>
double tree(std::array<double, Lanes>& lanes) {
  if constexpr (Lanes == 1) {
    return lanes[0];
  } else {
    std::array<double, Lanes / 2> half;
    for (int i = 0; i < Lanes / 2; ++i) {
      half[i] = lanes[i] + lanes[i + Lanes / 2];
    }
    return tree<Lanes / 2>(half);
  }
}

}  // namespace

double block_sum(const Tensor& a) {
  constexpr int kLanes = 256;
  double sum = 0;
  for (int64_t first = 0; first < a.numel(); first += kLanes) {
    std::array<double, kLanes> lanes{};
    std::copy_n(a.data() + first, std::min<int64_t>(kLanes, a.numel() - first), lanes.begin());
    sum += tree<kLanes>(lanes);
  }
  return sum;
}

}  // namespace at::native::cuda
