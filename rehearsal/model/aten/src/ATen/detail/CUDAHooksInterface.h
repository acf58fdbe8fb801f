#pragma once

#include <ATen/core/Tensor.h>

namespace at {

// The functions of libtorch_cuda that libtorch_cpu calls; this class implements them for builds without libtorch_cuda.
struct TORCH_API CUDAHooksInterface {
  virtual ~CUDAHooksInterface();
  virtual bool isBuilt() const { return false; }
  virtual int deviceCount() const { return 0; }
  // Archs compiled for, as in "sm_80 compute_90".
  virtual std::string archs() const { return {}; }
  // Lines for show_config(); empty without CUDA.
  virtual std::string showConfig() const { return {}; }
  // Whether the libtorch_cuda_linalg that is installed was built with MAGMA.
  virtual bool hasMAGMA() const { return false; }
  // Which library libtorch_cuda_linalg solves with.
  virtual std::string linalgBackend() const;
  // Solves a linear system with libtorch_cuda_linalg; on host memory, since the model has no GPU code.
  virtual Tensor emulatedSolve(const Tensor& a, const Tensor& b) const;
};

TORCH_API const CUDAHooksInterface& getCUDAHooks();
// Called once, by libtorch_cuda, when it is loaded.
TORCH_API void registerCUDAHooks(const CUDAHooksInterface* hooks);

}  // namespace at
