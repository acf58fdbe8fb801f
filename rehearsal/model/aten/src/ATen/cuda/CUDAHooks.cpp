// The functions of libtorch_cuda that libtorch_cpu calls. Only this file depends on the CUDA version and the archs.
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/cuda/LinalgBackend.h>
#include <c10/cuda/CUDAFunctions.h>

#include <dlfcn.h>

#include <filesystem>

namespace at::cuda {
namespace {

// Found by `strings libtorch_cuda.so`: the archs that real kernels would have been compiled for.
__attribute__((used)) const char arch_record[] = "TORCH_CUDA_ARCHS=" CUDA_ARCH_FLAGS;

struct CUDAHooks : CUDAHooksInterface {
  bool isBuilt() const override { return true; }
  int deviceCount() const override { return c10::cuda::device_count(); }
  std::string archs() const override { return CUDA_ARCH_FLAGS; }

  std::string showConfig() const override {
    return "  - CUDA Runtime " CUDA_VERSION_TEXT "\n  - NVCC architecture flags: " CUDA_ARCH_FLAGS "\n" +
        (hasMAGMA() ? "  - " + linalgBackend() + "\n" : "");
  }

  bool hasMAGMA() const override {
    // libtorch_cuda_linalg is opened only when needed; a link under its name shows that the flavour with MAGMA is installed
    Dl_info here{};
    std::error_code missing;
    if (dladdr(&arch_record, &here) == 0) {
      return false;
    }
    const auto library = std::filesystem::path(here.dli_fname).parent_path() / "libtorch_cuda_linalg.so";
    return std::filesystem::canonical(library, missing).filename() == "libtorch_cuda_linalg_magma.so";
  }

  std::string linalgBackend() const override { return native::cuda::linalg_backend().name(); }

  Tensor emulatedSolve(const Tensor& a, const Tensor& b) const override { return native::cuda::linalg_backend().solve(a, b); }
};

const CUDAHooks hooks;

const struct Registration {
  Registration() { registerCUDAHooks(&hooks); }
} registration;

}  // namespace
}  // namespace at::cuda
