#include <c10/util/Exception.h>
#include <c10/util/Shape.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace c10 {

int64_t numel(const IntList& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

IntList contiguous_strides(const IntList& sizes) {
  IntList strides(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    step *= sizes[i];
  }
  return strides;
}

IntList broadcast(const IntList& left, const IntList& right) {
  const size_t rank = std::max(left.size(), right.size());
  IntList result(rank);
  for (size_t i = 0; i < rank; ++i) {  // counted from the last dimension
    const int64_t a = i < left.size() ? left[left.size() - 1 - i] : 1;
    const int64_t b = i < right.size() ? right[right.size() - 1 - i] : 1;
    TORCH_CHECK(a == b || a == 1 || b == 1, "shapes ", to_string(left), " and ", to_string(right), " do not broadcast");
    result[rank - 1 - i] = a == 1 ? b : a;
  }
  return result;
}

IntList broadcast_strides(const IntList& from, const IntList& to) {
  const IntList own = contiguous_strides(from);
  IntList strides(to.size(), 0);
  const size_t extra = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i) {
    strides[extra + i] = from[i] == 1 ? 0 : own[i];
  }
  return strides;
}

int64_t wrap_dim(int64_t dim, int64_t rank) {
  TORCH_CHECK(-rank <= dim && dim < rank, "dimension ", dim, " is out of range for a tensor of ", rank, " dimensions");
  return dim < 0 ? dim + rank : dim;
}

std::string to_string(const IntList& sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) {
    text += (i ? ", " : "") + std::to_string(sizes[i]);
  }
  return text + "]";
}

}  // namespace c10
