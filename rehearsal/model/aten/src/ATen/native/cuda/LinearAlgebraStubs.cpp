// Opens libtorch_cuda_linalg.so on first use, so that its builds with and without MAGMA can stand for each other.
#include <ATen/DynamicLibrary.h>
#include <ATen/native/cuda/LinalgBackend.h>

#include <atomic>

namespace at::native::cuda {
namespace {

std::atomic<const LinalgBackend*>& registered() {
  static std::atomic<const LinalgBackend*> backend{nullptr};
  return backend;
}

}  // namespace

void register_linalg_backend(const LinalgBackend* backend) { registered() = backend; }

const LinalgBackend& linalg_backend() {
  static const DynamicLibrary library("libtorch_cuda_linalg.so");
  const LinalgBackend* backend = registered();
  TORCH_CHECK(backend != nullptr, "libtorch_cuda_linalg.so registered nothing");
  return *backend;
}

}  // namespace at::native::cuda
