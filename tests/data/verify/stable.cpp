// An operator that keeps to torch's stable ABI; PLANTED: but for one function of c10.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#ifdef PLANTED
#include <c10/util/Exception.h>
#endif

static torch::stable::Tensor copy(const torch::stable::Tensor& x) {
#ifdef PLANTED
  if (x.dim() > 9) c10::detail::torchCheckFail("copy", "stable.cpp", 12, "too many dimensions");
#endif
  STD_TORCH_CHECK(x.dim() < 9, "too many dimensions");
  return torch::stable::clone(x);
}

STABLE_TORCH_LIBRARY(megabuild_stable, m) { m.def("copy(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(megabuild_stable, CPU, m) { m.impl("copy", TORCH_BOX(&copy)); }
