#include <ATen/native/cuda/Emulation.h>
#include <ATen/native/cuda/Kernels.h>

namespace at::native::cuda {

Tensor fused_multiply_add(const Tensor& a, const Tensor& b, const Tensor& c) {
  TORCH_CHECK(a.sizes() == b.sizes() && a.sizes() == c.sizes(), "expected three tensors of one shape");
  const Tensor result = Tensor::empty(a.sizes());
  const double *x = a.data(), *y = b.data(), *z = c.data();
  double* out = result.data();
  launch<256>(a.numel(), [=](int64_t i) { out[i] = x[i] * y[i] + z[i]; });
  return result;
}

}  // namespace at::native::cuda
