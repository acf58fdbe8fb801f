#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <utility>

// The methods for autograd are in torch/csrc/autograd/variable.cpp.
namespace at {

Tensor::Tensor(std::shared_ptr<double[]> data, IntList sizes)
    : impl_(std::make_shared<c10::TensorImpl>(std::move(data), std::move(sizes))) {}

Tensor Tensor::empty(const IntList& sizes) {
  const int64_t count = c10::numel(sizes);
  TORCH_CHECK(count >= 0, "negative size in ", c10::to_string(sizes));
  return {std::shared_ptr<double[]>(new double[static_cast<size_t>(count)]), sizes};
}

Tensor Tensor::from_values(const IntList& sizes, const std::vector<double>& values) {
  const Tensor result = empty(sizes);
  TORCH_CHECK(result.numel() == static_cast<int64_t>(values.size()), "expected ", result.numel(), " values, got ", values.size());
  std::copy(values.begin(), values.end(), result.data());
  return result;
}

Tensor Tensor::scalar(double value) { return from_values({}, {value}); }

const IntList& Tensor::sizes() const {
  TORCH_CHECK(defined(), "an undefined tensor has no sizes");
  return impl_->sizes;
}

double* Tensor::data() const {
  TORCH_CHECK(defined(), "an undefined tensor has no elements");
  return impl_->data.get();
}

double Tensor::only_element() const {
  TORCH_CHECK(numel() == 1, "item() needs a tensor with one element, this one has ", numel());
  return data()[0];
}

Tensor Tensor::sum() const { return at::sum(*this); }

Tensor Tensor::detach() const { return defined() ? view(sizes()) : Tensor(); }

Tensor Tensor::view(const IntList& sizes) const {
  TORCH_CHECK(c10::numel(sizes) == numel(), "shape ", c10::to_string(sizes), " does not hold ", numel(), " elements");
  return {impl_->data, sizes};
}

}  // namespace at
