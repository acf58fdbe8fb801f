#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

namespace torch::nnapi {

std::string bytes(const at::Tensor& tensor);

// Converts a tensor for the backend.
TORCH_PYTHON_API PyObject* preprocess(PyObject* tensor) {
  return guarded([&] {
    const std::string values = bytes(unwrap(tensor));
    return PyBytes_FromStringAndSize(values.data(), static_cast<Py_ssize_t>(values.size()));
  });
}

}  // namespace torch::nnapi
