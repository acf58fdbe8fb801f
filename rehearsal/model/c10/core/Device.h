#pragma once

#include <c10/macros/Export.h>

#include <string>

namespace c10 {

enum class DeviceType { CPU, CUDA };

// "cpu" or "cuda".
C10_API std::string to_string(DeviceType type);

}  // namespace c10
