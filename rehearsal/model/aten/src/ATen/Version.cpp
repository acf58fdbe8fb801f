#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <caffe2/core/macros.h>
#include <torch/version.h>

#include <sstream>

namespace at {

std::string show_config() {
  const std::string blas = CAFFE2_BLAS;
  std::ostringstream out;
  out << "PyTorch built with:\n";
#if defined(__clang__)
  out << "  - clang " << __clang_major__ << '.' << __clang_minor__ << '.' << __clang_patchlevel__ << '\n';
#elif defined(__GNUC__)
  out << "  - GCC " << __GNUC__ << '.' << __GNUC_MINOR__ << '\n';
#endif
  out << "  - C++ Version: " << __cplusplus << '\n';
  out << getCUDAHooks().showConfig();
  out << "  - Build settings: BLAS_INFO=" << (blas == "OpenBLAS" ? "open" : "mkl") << ", BUILD_TYPE=" << CAFFE2_BUILD_TYPE << ", TORCH_VERSION="
      << TORCH_VERSION << ", USE_CUDA=" << USE_CUDA << ", USE_CUDNN=" << USE_CUDNN << ", USE_DISTRIBUTED=" << USE_DISTRIBUTED
      << ", USE_MKLDNN=" << USE_MKLDNN << '\n';
  return out.str();
}

}  // namespace at
