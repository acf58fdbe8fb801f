#include <ATen/DynamicLibrary.h>
#include <ATen/cuda/KernelSource.h>
#include <ATen/nvrtc_stub/ATenNVRTC.h>
#include <c10/util/Exception.h>

namespace at::cuda {

std::string kernel_source(const std::string& name, const std::string& expression) {
  static const DynamicLibrary library("libcaffe2_nvrtc.so");
  const auto load = reinterpret_cast<const NVRTC* (*)()>(library.sym("load_nvrtc"));
  std::string text(512 + name.size() + expression.size(), '\0');
  const int length = load()->write_source(name.c_str(), expression.c_str(), text.data(), static_cast<int>(text.size()));
  TORCH_CHECK(length >= 0 && static_cast<size_t>(length) < text.size(), "no kernel for ", expression);
  text.resize(static_cast<size_t>(length));
  return text;
}

}  // namespace at::cuda
