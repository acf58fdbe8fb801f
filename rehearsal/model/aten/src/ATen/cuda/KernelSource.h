#pragma once

#include <c10/macros/Export.h>

#include <string>

namespace at::cuda {

// Source of an element-wise kernel, written by libcaffe2_nvrtc.
TORCH_CUDA_API std::string kernel_source(const std::string& name, const std::string& expression);

}  // namespace at::cuda
