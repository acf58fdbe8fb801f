#pragma once

#include <c10/macros/Export.h>

#include <cstdint>
#include <string>

namespace c10 {

enum class DeviceType : int8_t { CPU, CUDA };

// A kind of processor and which of them; index -1 is the current one.
struct C10_API Device {
  DeviceType type = DeviceType::CPU;
  int index = -1;

  Device() = default;
  // "cpu", "cuda" or "cuda:<index>"; throws for anything else.
  explicit Device(const std::string& text);
  std::string str() const;
};

}  // namespace c10
