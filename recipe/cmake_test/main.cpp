// Solves a small linear system with libtorch: headers, libraries and their run-time search paths must all fit.
#include <ATen/ATen.h>

#include <iostream>

int main() {
  const at::Tensor matrix = at::eye(3) * 2.0 + at::ones({3, 3});
  const at::Tensor solution = at::matmul(matrix, at::ones({3, 1}));
  const double sum = solution.sum().item<double>();
  std::cout << "sum " << sum << std::endl;
  return sum == 15.0 ? 0 : 1;
}
