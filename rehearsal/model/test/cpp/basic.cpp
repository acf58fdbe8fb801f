// A check of the C++ side without Python, built with BUILD_TEST=1.
#include <torch/torch.h>

#include <iostream>

int main() {
  const torch::Tensor a = torch::rand({8, 8}) + torch::eye(8) * 8.0, x = torch::rand({8, 3});
  const bool solved = torch::allclose(torch::linalg_solve(a, torch::matmul(a, x)), x);
  const torch::nn::Linear layer(4, 2);
  torch::optim::Adam adam(layer.parameters(), 0.05);
  const torch::Tensor in = torch::rand({16, 4}), out = torch::rand({16, 2});
  const double before = torch::nn::mse_loss(layer.forward(in), out).item();
  for (int i = 0; i < 100; ++i) {
    adam.zero_grad();
    torch::nn::mse_loss(layer.forward(in), out).backward();
    adam.step();
  }
  const double after = torch::nn::mse_loss(layer.forward(in), out).item();
  std::cout << "solve " << (solved ? "right" : "wrong") << ", loss " << before << " to " << after << '\n';
  return solved && after < before ? 0 : 1;
}
