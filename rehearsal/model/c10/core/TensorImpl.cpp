#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include <utility>

namespace c10 {

AutogradMetaInterface::~AutogradMetaInterface() = default;

TensorImpl::TensorImpl(Storage storage_, IntList sizes_) : storage(std::move(storage_)), sizes(std::move(sizes_)) {
  for (const int64_t size : sizes) {
    TORCH_CHECK(size >= 0, "negative size in ", to_string(sizes));
  }
  TORCH_CHECK(numel(sizes) == storage.size(), "shape ", to_string(sizes), " does not hold ", storage.size(), " elements");
}

}  // namespace c10
