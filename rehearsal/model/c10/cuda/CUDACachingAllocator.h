#pragma once

#include <c10/macros/Export.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace c10::cuda {

// Keeps freed blocks by size and hands them out again; blocks are host memory in the model.
class C10_API CachingAllocator {
 public:
  CachingAllocator() = default;
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;
  ~CachingAllocator();

  double* allocate(int64_t count);
  void release(double* block);
  // Bytes that are cached and in nobody's use.
  int64_t cached_bytes() const;

 private:
  mutable std::mutex mutex_;
  std::map<double*, int64_t> used_;
  std::multimap<int64_t, double*> free_;
};

}  // namespace c10::cuda
