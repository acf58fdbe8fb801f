#include <torch/csrc/python_headers.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/backends/nnapi/nnapi_backend.h>

namespace torch::nnapi {

// A tensor the way the backend is given it: scale, zero point, bytes.
TORCH_PYTHON_API PyObject* preprocess(PyObject* tensor) {
  return guarded([&] {
    const Quantized quantized = quantize(unwrap(tensor));
    return Py_BuildValue("diy#", quantized.scale, quantized.zero_point, reinterpret_cast<const char*>(quantized.codes.data()),
                         static_cast<Py_ssize_t>(quantized.codes.size()));
  });
}

}  // namespace torch::nnapi
