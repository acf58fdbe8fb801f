#pragma once

#include <c10/macros/Export.h>

#include <string>

namespace at {

// How libtorch was built: compiler, BLAS, CUDA, options.
TORCH_API std::string show_config();

}  // namespace at
