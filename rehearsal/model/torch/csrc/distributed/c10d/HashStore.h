#pragma once

#include <c10/macros/Export.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

namespace c10d {

// Keys and values shared by the threads of one process.
class C10_API HashStore {
 public:
  void set(const std::string& key, const std::string& value);
  // Waits for the key; throws when the time is over.
  std::string get(const std::string& key, std::chrono::milliseconds timeout = std::chrono::seconds(10));
  // Adds to a number, which is 0 at first; gives the sum.
  int64_t add(const std::string& key, int64_t value);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace c10d
