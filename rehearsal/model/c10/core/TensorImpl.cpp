#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include <functional>
#include <numeric>
#include <utility>

namespace c10 {

int64_t numel(const IntList& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

std::string to_string(const IntList& sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) {
    text += (i ? ", " : "") + std::to_string(sizes[i]);
  }
  return text + "]";
}

AutogradMetaInterface::~AutogradMetaInterface() = default;

TensorImpl::TensorImpl(std::shared_ptr<double[]> data_, IntList sizes_) : data(std::move(data_)), sizes(std::move(sizes_)) {
  for (const int64_t size : sizes) {
    TORCH_CHECK(size >= 0, "negative size in ", to_string(sizes));
  }
}

}  // namespace c10
