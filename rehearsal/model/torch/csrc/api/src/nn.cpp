#include <torch/nn.h>

#include <cmath>

namespace torch {

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol) {
  if (a.sizes() != b.sizes()) {
    return false;
  }
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double x = a.data()[i], y = b.data()[i];
    if (!(x == y || std::fabs(x - y) <= atol + rtol * std::fabs(y))) {
      return false;
    }
  }
  return true;
}

namespace nn {

Linear::Linear(int64_t in_features, int64_t out_features) {
  const double bound = 1 / std::sqrt(static_cast<double>(in_features));
  weight = (rand({out_features, in_features}) - 0.5) * (2 * bound);
  bias = (rand({out_features}) - 0.5) * (2 * bound);
  weight.requires_grad_();
  bias.requires_grad_();
}

Tensor Linear::forward(const Tensor& x) const { return matmul(x, transpose(weight, 0, 1)) + bias; }

Tensor mse_loss(const Tensor& input, const Tensor& target) {
  const Tensor difference = input - target;
  return mean(difference * difference);
}

}  // namespace nn
}  // namespace torch
