#include <c10/util/Exception.h>

namespace c10 {

Error::Error(const char* function, const std::string& message) : std::runtime_error(message), function_(function) {}

const std::string& Error::function() const noexcept { return function_; }

namespace detail {
void fail(const char* function, const char* condition, const std::string& message) {
  throw Error(function, message.empty() ? join("expected ", condition, " in ", function) : message);
}
}  // namespace detail

}  // namespace c10
