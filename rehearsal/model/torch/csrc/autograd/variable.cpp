#include <torch/csrc/autograd/function.h>

#include <utility>

// The part of at::Tensor that concerns autograd.
namespace {

struct AutogradMeta : c10::AutogradMetaInterface {
  bool requires_grad = false;
  at::Tensor grad;
  std::shared_ptr<torch::autograd::Node> grad_fn;
};

AutogradMeta* existing(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<AutogradMeta*>(tensor.impl()->autograd.get()) : nullptr;
}

AutogradMeta& made(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), "an undefined tensor has no gradient");
  if (tensor.impl()->autograd == nullptr) {
    tensor.impl()->autograd = std::make_unique<AutogradMeta>();
  }
  return *existing(tensor);
}

}  // namespace

namespace at {

bool Tensor::requires_grad() const noexcept {
  const AutogradMeta* meta = existing(*this);
  return meta != nullptr && (meta->requires_grad || meta->grad_fn != nullptr);
}

const Tensor& Tensor::requires_grad_(bool on) const {
  TORCH_CHECK(is_leaf(), "only leaves of the graph can change requires_grad");
  made(*this).requires_grad = on;
  return *this;
}

Tensor Tensor::grad() const {
  const AutogradMeta* meta = existing(*this);
  return meta == nullptr ? Tensor() : meta->grad;
}

void Tensor::set_grad(const Tensor& grad) const { made(*this).grad = grad; }

std::shared_ptr<torch::autograd::Node> Tensor::grad_fn() const {
  const AutogradMeta* meta = existing(*this);
  return meta == nullptr ? nullptr : meta->grad_fn;
}

void Tensor::set_grad_fn(std::shared_ptr<torch::autograd::Node> node) const { made(*this).grad_fn = std::move(node); }

void Tensor::backward() const { torch::autograd::run_backward(*this); }

}  // namespace at
