#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace at::native {

// Calls body with `value` as a compile-time constant, so that inner loops have fixed lengths; throws outside [Low, High].
template <int Low, int High, class Body>
void dispatch_int(int64_t value, Body&& body) {
  if constexpr (Low > High) {
    TORCH_CHECK(false, value, " is not supported");
  } else if (value == Low) {
    body(std::integral_constant<int, Low>());
  } else {
    dispatch_int<Low + 1, High>(value, std::forward<Body>(body));
  }
}

}  // namespace at::native
