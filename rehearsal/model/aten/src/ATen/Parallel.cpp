#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <thread>
#include <vector>

namespace at {
namespace {

int initial_threads() {
  const char* asked = std::getenv("OMP_NUM_THREADS");
  const int number = asked == nullptr ? 0 : std::atoi(asked);
  return number > 0 ? number : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::atomic<int>& thread_count() {
  static std::atomic<int> count{initial_threads()};
  return count;
}

}  // namespace

int get_num_threads() { return thread_count(); }

void set_num_threads(int count) {
  TORCH_CHECK(count > 0, "expected a positive number of threads, got ", count);
  thread_count() = count;
}

void parallel_for(int64_t begin, int64_t end, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  const int64_t length = end - begin;
  if (length <= 0) {
    return;
  }
  const int64_t parts = std::min<int64_t>(get_num_threads(), length / std::max<int64_t>(grain, 1));
  if (parts <= 1) {
    body(begin, end);
    return;
  }
  const int64_t step = (length + parts - 1) / parts;
  std::vector<std::exception_ptr> failures(static_cast<size_t>(parts));
  std::vector<std::thread> threads;
  for (int64_t part = 0; part < parts; ++part) {
    threads.emplace_back([&, part] {
      try {
        body(std::min(end, begin + part * step), std::min(end, begin + (part + 1) * step));
      } catch (...) {
        failures[static_cast<size_t>(part)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
}

std::string get_parallel_info() {
  const char* asked = std::getenv("OMP_NUM_THREADS");
  std::ostringstream out;
  out << "ATen/Parallel:\n\tat::get_num_threads() : " << get_num_threads()
      << "\nstd::thread::hardware_concurrency() : " << std::thread::hardware_concurrency()
      << "\nEnvironment variables:\n\tOMP_NUM_THREADS : " << (asked == nullptr ? "[not set]" : asked)
      << "\nATen parallel backend: native threads\n";
  return out.str();
}

}  // namespace at
