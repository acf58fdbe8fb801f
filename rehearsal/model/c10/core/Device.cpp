#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>

namespace c10 {

Device::Device(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  TORCH_CHECK(name == "cpu" || name == "cuda", "expected a device like cpu or cuda:0, got '", text, "'");
  type = name == "cpu" ? DeviceType::CPU : DeviceType::CUDA;
  if (colon != std::string::npos) {
    const std::string digits = text.substr(colon + 1);
    const bool number = !digits.empty() && digits.size() < 4 &&
        std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    TORCH_CHECK(number, "expected a device index after the colon, got '", text, "'");
    index = std::stoi(digits);
  }
}

std::string Device::str() const {
  const std::string name = type == DeviceType::CPU ? "cpu" : "cuda";
  return index < 0 ? name : name + ":" + std::to_string(index);
}

}  // namespace c10
