#include <c10/util/Exception.h>

namespace c10 {

// defined in one library, so that all libraries catch the same type
Error::Error(const std::string& message) : std::runtime_error(message) {}
Error::~Error() = default;

}  // namespace c10
