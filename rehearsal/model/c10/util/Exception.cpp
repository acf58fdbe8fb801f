#include <c10/util/Exception.h>

namespace c10 {

// here, so that every library means the same type when it catches one
Error::Error(const std::string& message) : std::runtime_error(message) {}
Error::~Error() = default;

}  // namespace c10
