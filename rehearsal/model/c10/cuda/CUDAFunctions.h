#pragma once

#include <c10/macros/Export.h>

namespace c10::cuda {

// Number of GPUs: always 0, since the model's CUDA is a stand-in that runs on the host.
C10_API int device_count() noexcept;

}  // namespace c10::cuda
