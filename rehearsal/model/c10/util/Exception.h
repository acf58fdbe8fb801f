#pragma once

#include <c10/macros/Export.h>

#include <sstream>
#include <stdexcept>

namespace c10 {

// The exception that all libraries of the model throw.
class C10_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message);
  ~Error() override;
};

namespace detail {
template <class... Args>
std::string join(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}
}  // namespace detail

}  // namespace c10

// Throws c10::Error with the remaining arguments as message unless the condition holds.
#define TORCH_CHECK(condition, ...)                            \
  do {                                                         \
    if (!(condition)) {                                        \
      throw ::c10::Error(::c10::detail::join(__VA_ARGS__));    \
    }                                                          \
  } while (false)
