#include <torch/csrc/distributed/c10d/HashStore.h>

#include <c10/util/Exception.h>

namespace c10d {

void HashStore::set(const std::string& key, const std::string& value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  values_[key] = value;
  changed_.notify_all();
}

std::string HashStore::get(const std::string& key, std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  const bool there = changed_.wait_for(lock, timeout, [&] { return values_.count(key) > 0; });
  TORCH_CHECK(there, "no value for ", key, " within ", timeout.count(), " ms");
  return values_[key];
}

int64_t HashStore::add(const std::string& key, int64_t value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string& text = values_[key];
  const int64_t sum = (text.empty() ? 0 : std::stoll(text)) + value;
  text = std::to_string(sum);
  changed_.notify_all();
  return sum;
}

}  // namespace c10d
