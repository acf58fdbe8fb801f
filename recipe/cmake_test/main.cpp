// Multiplies a small matrix with libtorch, which needs matching headers, libraries and run-time search paths.
#include <ATen/ATen.h>

#include <iostream>

int main() {
  const at::Tensor matrix = at::eye(3) * 2.0 + at::ones({3, 3});
  const at::Tensor solution = at::matmul(matrix, at::ones({3, 1}));
  const double sum = solution.sum().item<double>();
  std::cout << "sum " << sum << std::endl;
  return sum == 15.0 ? 0 : 1;
}
