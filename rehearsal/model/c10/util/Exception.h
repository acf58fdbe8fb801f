#pragma once

#include <c10/macros/Export.h>

#include <sstream>
#include <stdexcept>
#include <string>

namespace c10 {

// What every library of ours throws: a message and the function that gave up.
class C10_API Error : public std::runtime_error {
 public:
  Error(const char* function, const std::string& message);
  const std::string& function() const noexcept;

 private:
  std::string function_;
};

namespace detail {
template <class... Args>
std::string join(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}
[[noreturn]] C10_API void fail(const char* function, const char* condition, const std::string& message);
}  // namespace detail

}  // namespace c10

// Throws c10::Error with the remaining arguments as message unless the condition holds.
#define TORCH_CHECK(condition, ...)                                                          \
  do {                                                                                       \
    if (!(condition)) {                                                                      \
      ::c10::detail::fail(__func__, #condition, ::c10::detail::join(__VA_ARGS__));           \
    }                                                                                        \
  } while (false)
