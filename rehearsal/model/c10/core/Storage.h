#pragma once

#include <c10/macros/Export.h>

#include <cstdint>
#include <memory>

namespace c10 {

// A shared block of doubles, freed with its last owner.
class C10_API Storage {
 public:
  // `count` elements, aligned for vector instructions, not initialised.
  explicit Storage(int64_t count);
  // Memory that somebody else owns, kept alive by the pointer's deleter.
  Storage(std::shared_ptr<double> data, int64_t count);

  double* data() const noexcept { return data_.get(); }
  int64_t size() const noexcept { return size_; }

 private:
  std::shared_ptr<double> data_;
  int64_t size_;
};

// Bytes in all blocks that Storage allocated and that are still alive.
C10_API int64_t bytes_in_use() noexcept;

}  // namespace c10
