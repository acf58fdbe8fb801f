#include <torch/csrc/autograd/function.h>

#include <utility>

// The methods of at::Tensor for autograd.
namespace {

struct AutogradMeta : c10::AutogradMetaInterface {
  bool requires_grad = false;
  at::Tensor grad;
  std::shared_ptr<torch::autograd::Node> grad_fn;
};

AutogradMeta& meta(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), "an undefined tensor has no gradient");
  if (tensor.impl()->autograd == nullptr) {
    tensor.impl()->autograd = std::make_unique<AutogradMeta>();
  }
  return static_cast<AutogradMeta&>(*tensor.impl()->autograd);
}

}  // namespace

namespace at {

bool Tensor::requires_grad() const noexcept { return defined() && (meta(*this).requires_grad || grad_fn() != nullptr); }

const Tensor& Tensor::requires_grad_(bool on) const {
  TORCH_CHECK(grad_fn() == nullptr, "only leaves of the graph can change requires_grad");
  meta(*this).requires_grad = on;
  return *this;
}

Tensor Tensor::grad() const { return meta(*this).grad; }
void Tensor::set_grad(const Tensor& grad) const { meta(*this).grad = grad; }
std::shared_ptr<torch::autograd::Node> Tensor::grad_fn() const { return meta(*this).grad_fn; }
void Tensor::set_grad_fn(std::shared_ptr<torch::autograd::Node> node) const { meta(*this).grad_fn = std::move(node); }
void Tensor::backward() const { torch::autograd::run_backward(*this); }

}  // namespace at
