#include <torch/optim.h>

#include <cmath>
#include <utility>

namespace torch::optim {

Optimizer::Optimizer(std::vector<Tensor> parameters) : parameters_(std::move(parameters)) {}
Optimizer::~Optimizer() = default;

void Optimizer::zero_grad() {
  for (const Tensor& parameter : parameters_) {
    parameter.set_grad(Tensor());
  }
}

SGD::SGD(std::vector<Tensor> parameters, double lr) : Optimizer(std::move(parameters)), lr_(lr) {}

void SGD::step() {
  for (const Tensor& parameter : parameters_) {
    const Tensor grad = parameter.grad();
    for (int64_t i = 0; grad.defined() && i < parameter.numel(); ++i) {
      parameter.data()[i] -= lr_ * grad.data()[i];
    }
  }
}

Adam::Adam(std::vector<Tensor> parameters, double lr) : Optimizer(std::move(parameters)), lr_(lr) {
  for (const Tensor& parameter : parameters_) {
    first_.emplace_back(static_cast<size_t>(parameter.numel()));
    second_.emplace_back(static_cast<size_t>(parameter.numel()));
  }
}

void Adam::step() {
  constexpr double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  ++steps_;
  const double correction1 = 1 - std::pow(beta1, steps_), correction2 = 1 - std::pow(beta2, steps_);
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const Tensor grad = parameters_[p].grad();
    for (size_t i = 0; grad.defined() && i < first_[p].size(); ++i) {
      const double g = grad.data()[i];
      first_[p][i] = beta1 * first_[p][i] + (1 - beta1) * g;
      second_[p][i] = beta2 * second_[p][i] + (1 - beta2) * g * g;
      parameters_[p].data()[i] -= lr_ * (first_[p][i] / correction1) / (std::sqrt(second_[p][i] / correction2) + eps);
    }
  }
}

}  // namespace torch::optim
