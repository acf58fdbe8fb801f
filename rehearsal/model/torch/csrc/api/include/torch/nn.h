#pragma once

#include <torch/types.h>

#include <vector>

namespace torch::nn {

// y = x W^T + b
class TORCH_API Linear {
 public:
  Linear(int64_t in_features, int64_t out_features);
  Tensor forward(const Tensor& x) const;
  std::vector<Tensor> parameters() const { return {weight, bias}; }

  Tensor weight, bias;
};

// Mean of the squared differences.
TORCH_API Tensor mse_loss(const Tensor& input, const Tensor& target);

}  // namespace torch::nn
