#include <torch/csrc/autograd/FunctionsManual.h>

#include <ATen/Functions.h>

namespace torch::autograd {
namespace {

at::Tensor columns(const at::Tensor& t) { return t.dim() == 1 ? t.view({t.numel(), 1}) : t; }

}  // namespace

at::Tensor solve_matrix(const at::Tensor& grad, const at::Tensor& a, const at::Tensor& result) {
  return at::neg(at::matmul(columns(at::linalg_solve(at::t(a), grad)), at::t(columns(result))));
}

}  // namespace torch::autograd
