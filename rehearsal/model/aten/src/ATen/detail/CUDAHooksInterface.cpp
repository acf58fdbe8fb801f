#include <ATen/detail/CUDAHooksInterface.h>

namespace at {
namespace {

const CUDAHooksInterface none;
const CUDAHooksInterface* registered = &none;

}  // namespace

CUDAHooksInterface::~CUDAHooksInterface() = default;

std::string CUDAHooksInterface::linalgBackend() const { TORCH_CHECK(false, "Torch not compiled with CUDA enabled"); }

Tensor CUDAHooksInterface::emulatedSolve(const Tensor&, const Tensor&) const {
  TORCH_CHECK(false, "Torch not compiled with CUDA enabled");
}

const CUDAHooksInterface& getCUDAHooks() { return *registered; }

void registerCUDAHooks(const CUDAHooksInterface* hooks) { registered = hooks; }

}  // namespace at
