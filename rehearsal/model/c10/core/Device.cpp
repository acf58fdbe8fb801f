#include <c10/core/Device.h>

namespace c10 {

std::string to_string(DeviceType type) { return type == DeviceType::CPU ? "cpu" : "cuda"; }

}  // namespace c10
