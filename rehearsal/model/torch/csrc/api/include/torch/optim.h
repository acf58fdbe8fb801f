#pragma once

#include <torch/types.h>

#include <vector>

namespace torch::optim {

// Changes parameters in place, by their gradients.
class TORCH_API Optimizer {
 public:
  explicit Optimizer(std::vector<Tensor> parameters);
  virtual ~Optimizer();
  virtual void step() = 0;
  void zero_grad();

 protected:
  std::vector<Tensor> parameters_;
};

class TORCH_API SGD : public Optimizer {
 public:
  SGD(std::vector<Tensor> parameters, double lr);
  void step() override;

 private:
  double lr_;
};

class TORCH_API Adam : public Optimizer {
 public:
  Adam(std::vector<Tensor> parameters, double lr);
  void step() override;

 private:
  double lr_;
  int64_t steps_ = 0;
  std::vector<std::vector<double>> first_, second_;
};

}  // namespace torch::optim
