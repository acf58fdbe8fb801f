#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>

namespace c10::cuda {

CachingAllocator::~CachingAllocator() {
  for (const auto& [size, block] : free_) {
    delete[] block;
  }
  for (const auto& [block, size] : used_) {
    delete[] block;
  }
}

double* CachingAllocator::allocate(int64_t count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t rounded = 64;
  while (rounded < count) {
    rounded *= 2;
  }
  double* block = nullptr;
  if (const auto found = free_.find(rounded); found != free_.end()) {
    block = found->second;
    free_.erase(found);
  } else {
    block = new double[static_cast<size_t>(rounded)];
  }
  used_.emplace(block, rounded);
  return block;
}

void CachingAllocator::release(double* block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = used_.find(block);
  TORCH_CHECK(found != used_.end(), "a block that this allocator did not hand out");
  free_.emplace(found->second, block);
  used_.erase(found);
}

int64_t CachingAllocator::cached_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t elements = 0;
  for (const auto& [size, block] : free_) {
    elements += size;
  }
  return elements * static_cast<int64_t>(sizeof(double));
}

}  // namespace c10::cuda
