// Opens libtorch_cuda_linalg.so on first use, so that its flavours with and without MAGMA are interchangeable.
#include <ATen/native/cuda/LinalgBackend.h>

#include <dlfcn.h>

namespace at::native::cuda {
namespace {

const LinalgBackend* registered = nullptr;

void* open() {
  void* library = dlopen("libtorch_cuda_linalg.so", RTLD_LOCAL | RTLD_NOW);
  TORCH_CHECK(library != nullptr, "Error in dlopen: ", dlerror());
  return library;
}

}  // namespace

void register_linalg_backend(const LinalgBackend* backend) { registered = backend; }

const LinalgBackend& linalg_backend() {
  static const void* library = open();
  TORCH_CHECK(library != nullptr && registered != nullptr, "libtorch_cuda_linalg.so registered nothing");
  return *registered;
}

}  // namespace at::native::cuda
