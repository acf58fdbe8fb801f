#include <ATen/detail/CUDAHooksInterface.h>

#include <atomic>

namespace at {
namespace {

std::atomic<const CUDAHooksInterface*>& registered() {
  static std::atomic<const CUDAHooksInterface*> hooks{nullptr};
  return hooks;
}

}  // namespace

CUDAHooksInterface::~CUDAHooksInterface() = default;

std::string CUDAHooksInterface::linalgBackend() const { TORCH_CHECK(false, "Torch not compiled with CUDA enabled"); }

Tensor CUDAHooksInterface::emulatedSolve(const Tensor&, const Tensor&) const {
  TORCH_CHECK(false, "Torch not compiled with CUDA enabled");
}

const CUDAHooksInterface& getCUDAHooks() {
  static const CUDAHooksInterface none;
  const CUDAHooksInterface* hooks = registered();
  return hooks == nullptr ? none : *hooks;
}

void registerCUDAHooks(const CUDAHooksInterface* hooks) { registered() = hooks; }

}  // namespace at
