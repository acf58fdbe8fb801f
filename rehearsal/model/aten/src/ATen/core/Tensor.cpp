#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

// What concerns autograd is in torch/csrc/autograd/variable.cpp.
namespace at {

Tensor::Tensor(c10::Storage storage, IntList sizes)
    : impl_(std::make_shared<c10::TensorImpl>(std::move(storage), std::move(sizes))) {}

Tensor Tensor::empty(IntList sizes) {
  const int64_t count = c10::numel(sizes);
  return {c10::Storage(count), std::move(sizes)};
}

Tensor Tensor::from_values(IntList sizes, const std::vector<double>& values) {
  Tensor result = empty(std::move(sizes));
  TORCH_CHECK(result.numel() == static_cast<int64_t>(values.size()), "expected ", result.numel(), " values, got ", values.size());
  std::copy(values.begin(), values.end(), result.data());
  return result;
}

Tensor Tensor::scalar(double value) { return from_values({}, {value}); }

const IntList& Tensor::sizes() const {
  TORCH_CHECK(defined(), "an undefined tensor has no sizes");
  return impl_->sizes;
}

int64_t Tensor::size(int64_t d) const { return sizes()[static_cast<size_t>(c10::wrap_dim(d, dim()))]; }

int64_t Tensor::numel() const { return c10::numel(sizes()); }

double* Tensor::data() const { return storage().data(); }

const c10::Storage& Tensor::storage() const {
  TORCH_CHECK(defined(), "an undefined tensor has no elements");
  return impl_->storage;
}

double Tensor::only_element() const {
  TORCH_CHECK(numel() == 1, "item() needs a tensor with one element, this one has ", numel());
  return data()[0];
}

Tensor Tensor::sum() const { return at::sum(*this); }
Tensor Tensor::mean() const { return at::mean(*this); }
Tensor Tensor::t() const { return at::transpose(*this, 0, 1); }
Tensor Tensor::matmul(const Tensor& other) const { return at::matmul(*this, other); }

Tensor Tensor::detach() const { return defined() ? Tensor(impl_->storage, impl_->sizes) : Tensor(); }

Tensor Tensor::clone() const {
  Tensor result = empty(sizes());
  std::copy_n(data(), numel(), result.data());
  return result;
}

Tensor Tensor::view(IntList sizes) const { return {storage(), std::move(sizes)}; }

}  // namespace at
