#include <torch/csrc/jit/python/pybind_utils.h>

namespace torch::jit::detail {

std::optional<InferredType> _tryToInferTypeImpl(py::handle input) {
  if (py::isinstance<py::float_>(input)) {
    return InferredType{"float"};
  }
  return std::nullopt;
}

}  // namespace torch::jit::detail
