#include <c10/core/Storage.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <utility>

namespace c10 {
namespace {

constexpr size_t kAlignment = 64;
std::atomic<int64_t> in_use{0};

std::shared_ptr<double> allocate(int64_t count) {
  TORCH_CHECK(count >= 0, "a storage cannot hold ", count, " elements");
  const size_t wanted = static_cast<size_t>(count) * sizeof(double);
  const size_t bytes = (wanted + kAlignment - 1) / kAlignment * kAlignment + (wanted == 0 ? kAlignment : 0);
  void* memory = std::aligned_alloc(kAlignment, bytes);
  TORCH_CHECK(memory != nullptr, "not enough memory for ", bytes, " bytes");
  in_use += static_cast<int64_t>(bytes);
  return {static_cast<double*>(memory), [bytes](double* block) {
            std::free(block);
            in_use -= static_cast<int64_t>(bytes);
          }};
}

}  // namespace

Storage::Storage(int64_t count) : data_(allocate(count)), size_(count) {}

Storage::Storage(std::shared_ptr<double> data, int64_t count) : data_(std::move(data)), size_(count) {}

int64_t bytes_in_use() noexcept { return in_use; }

}  // namespace c10
