#include <torch/csrc/autograd/FunctionsManual.h>

#include <ATen/Functions.h>

namespace torch::autograd {
namespace {

Tensor row(const Tensor& t) { return t.dim() == 1 ? t.view({1, t.numel()}) : t; }
Tensor column(const Tensor& t) { return t.dim() == 1 ? t.view({t.numel(), 1}) : t; }

}  // namespace

Tensor sum_to(const Tensor& grad, const Tensor& like) {
  Tensor result = grad;
  while (result.dim() > like.dim()) {
    result = at::sum_dim(result, 0, false);
  }
  for (int64_t i = 0; i < like.dim(); ++i) {
    if (like.size(i) == 1 && result.size(i) != 1) {
      result = at::sum_dim(result, i, true);
    }
  }
  return result;
}

Tensor matmul_left(const Tensor& grad, const Tensor& self, const Tensor& other) {
  const Tensor b = column(other);
  const Tensor full_grad = grad.view({row(self).size(0), b.size(1)});
  return at::matmul(full_grad, at::transpose(b, 0, 1)).view(self.sizes());
}

Tensor matmul_right(const Tensor& grad, const Tensor& self, const Tensor& other) {
  const Tensor a = row(self);
  const Tensor full_grad = grad.view({a.size(0), column(other).size(1)});
  return at::matmul(at::transpose(a, 0, 1), full_grad).view(other.sizes());
}

Tensor solve_matrix(const Tensor& grad, const Tensor& a, const Tensor& result) {
  const Tensor right = column(at::linalg_solve(at::transpose(a, 0, 1), grad));
  return at::neg(at::matmul(right, at::transpose(column(result), 0, 1)));
}

}  // namespace torch::autograd
