#include <ATen/core/Generator.h>

#include <algorithm>
#include <numeric>

namespace at {

Generator::Generator(uint64_t seed) : seed_(seed), engine_(seed) {}

void Generator::set_seed(uint64_t seed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  seed_ = seed;
  engine_.seed(seed);
}

uint64_t Generator::seed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return seed_;
}

void Generator::fill_uniform(double* out, int64_t count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::uniform_real_distribution<double> draw(0.0, 1.0);
  std::generate_n(out, count, [&] { return draw(engine_); });
}

void Generator::fill_normal(double* out, int64_t count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::normal_distribution<double> draw;
  std::generate_n(out, count, [&] { return draw(engine_); });
}

void Generator::fill_permutation(double* out, int64_t count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::iota(out, out + count, 0.0);
  std::shuffle(out, out + count, engine_);
}

Generator& default_generator() {
  static Generator generator(67280421310721ULL);
  return generator;
}

}  // namespace at
