// An operator in the manner of the extensions: on the GPU where it was compiled with CUDA, otherwise their own message.
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <torch/library.h>

#ifdef WITH_CUDA
void twice_cuda(float* out, const float* in, long count);
#endif

static at::Tensor twice(const at::Tensor& x) {
#ifdef WITH_CUDA
  if (x.is_cuda()) twice_cuda(x.mutable_data_ptr<float>(), x.const_data_ptr<float>(), x.numel());
#else
  TORCH_CHECK(!x.is_cuda(), "Not compiled with CUDA support");
#endif
  return at::add(x, x);
}

TORCH_LIBRARY(megabuild_test, m) { m.def("twice(Tensor x) -> Tensor", &twice); }
