// Compiled twice, with and without MAGMA.
#include <ATen/Functions.h>
#include <ATen/native/cuda/LinalgBackend.h>

#ifdef TORCH_LINALG_MAGMA
#include <magma.h>
#endif

#include <string>

namespace at::native::cuda {
namespace {

#ifdef TORCH_LINALG_MAGMA
std::string name() {
  return "Magma " + std::to_string(MAGMA_VERSION_MAJOR) + "." + std::to_string(MAGMA_VERSION_MINOR) + "." +
      std::to_string(MAGMA_VERSION_MICRO);
}
#else
std::string name() { return "Cusolver"; }
#endif

// Both flavours solve on the host: a rehearsal's MAGMA is a version and a library to link to, without functions.
Tensor solve(const Tensor& a, const Tensor& b) { return linalg_solve(a, b); }

const LinalgBackend backend{name, solve};

const struct Registration {
  Registration() { register_linalg_backend(&backend); }
} registration;

}  // namespace
}  // namespace at::native::cuda
