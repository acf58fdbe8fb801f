// Uses a header of PyTorch's Python side. Its inline functions call functions of libtorch_python, which must export them.
#include <torch/csrc/jit/python/python_ivalue.h>

#include <iostream>

int main() {
  // None needs no interpreter
  const auto inferred = torch::jit::tryToInferType(pybind11::handle(Py_None));
  std::cout << "type of None: " << (inferred.success() ? "found" : "not found") << std::endl;
  return inferred.success() ? 0 : 1;
}
