#pragma once

#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

namespace torch::autograd {
struct Node;
}

namespace at {

using c10::IntList;

// A handle on a tensor: copies share the same elements and the same place in the autograd graph.
class TORCH_API Tensor {
 public:
  Tensor() = default;
  Tensor(std::shared_ptr<double[]> data, IntList sizes);
  // Not initialised.
  static Tensor empty(const IntList& sizes);
  static Tensor from_values(const IntList& sizes, const std::vector<double>& values);
  static Tensor scalar(double value);

  bool defined() const noexcept { return impl_ != nullptr; }
  const IntList& sizes() const;
  int64_t dim() const { return static_cast<int64_t>(sizes().size()); }
  int64_t numel() const { return c10::numel(sizes()); }
  double* data() const;
  // The only element of a tensor with one.
  template <class T = double>
  T item() const {
    return static_cast<T>(only_element());
  }
  Tensor sum() const;
  // Same elements, outside the graph.
  Tensor detach() const;
  // Same elements, another shape of the same size, outside the graph.
  Tensor view(const IntList& sizes) const;

  bool requires_grad() const noexcept;
  const Tensor& requires_grad_(bool on = true) const;
  // Undefined before backward().
  Tensor grad() const;
  void set_grad(const Tensor& grad) const;
  std::shared_ptr<torch::autograd::Node> grad_fn() const;
  void set_grad_fn(std::shared_ptr<torch::autograd::Node> node) const;
  // Accumulates gradients of this one-element tensor into the leaves it was computed from.
  void backward() const;

  c10::TensorImpl* impl() const noexcept { return impl_.get(); }
  // The caller shares the ownership.
  std::shared_ptr<double[]> storage() const { return impl_->data; }

 private:
  double only_element() const;

  std::shared_ptr<c10::TensorImpl> impl_;
};

}  // namespace at
