#pragma once

#include <c10/macros/Export.h>

#include <cstdint>
#include <mutex>
#include <random>

namespace at {

// A source of random numbers; one thread at a time.
class TORCH_API Generator {
 public:
  explicit Generator(uint64_t seed);
  void set_seed(uint64_t seed);
  uint64_t seed() const;
  void fill_uniform(double* out, int64_t count);
  void fill_normal(double* out, int64_t count);
  void fill_permutation(double* out, int64_t count);

 private:
  mutable std::mutex mutex_;
  uint64_t seed_;
  std::mt19937_64 engine_;
};

// The generator that rand() and its like draw from.
TORCH_API Generator& default_generator();

}  // namespace at
