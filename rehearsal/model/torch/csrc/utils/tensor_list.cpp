// Tensors from numbers in nested sequences, and back.
#include <torch/csrc/module_methods.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

namespace torch {
namespace {

bool is_sequence(PyObject* data) { return PyList_Check(data) || PyTuple_Check(data); }

at::IntList shape_of(PyObject* data) {
  at::IntList sizes;
  while (is_sequence(data)) {
    const Py_ssize_t length = PySequence_Fast_GET_SIZE(data);
    sizes.push_back(length);
    if (length == 0) {
      break;
    }
    data = PySequence_Fast_GET_ITEM(data, 0);
  }
  return sizes;
}

double* fill(PyObject* data, const at::IntList& sizes, size_t level, double* out) {
  if (level == sizes.size()) {
    *out = PyFloat_AsDouble(data);
    if (PyErr_Occurred() != nullptr) {
      throw python_error();
    }
    return out + 1;
  }
  TORCH_CHECK(is_sequence(data) && PySequence_Fast_GET_SIZE(data) == sizes[level], "expected a sequence of ", sizes[level],
              " at dimension ", level);
  for (int64_t i = 0; i < sizes[level]; ++i) {
    out = fill(PySequence_Fast_GET_ITEM(data, i), sizes, level + 1, out);
  }
  return out;
}

PyObject* unfold(const at::Tensor& tensor, size_t level, int64_t& position) {
  if (level == tensor.sizes().size()) {
    return checked(PyFloat_FromDouble(tensor.data()[position++]));
  }
  PyObject* list = checked(PyList_New(tensor.sizes()[level]));
  for (int64_t i = 0; i < tensor.sizes()[level]; ++i) {
    PyList_SET_ITEM(list, i, unfold(tensor, level + 1, position));
  }
  return list;
}

PyObject* from_data(PyObject*, PyObject* data) {
  return guarded([&] {
    const at::IntList sizes = shape_of(data);
    const at::Tensor tensor = at::Tensor::empty(sizes);
    fill(data, sizes, 0, tensor.data());
    return wrap(tensor);
  });
}

PyObject* to_list(PyObject*, PyObject* tensor) {
  return guarded([&] {
    int64_t position = 0;
    return unfold(unwrap(tensor), 0, position);
  });
}

}  // namespace

PyMethodDef* tensor_list_methods() {
  static PyMethodDef methods[] = {{"_tensor_from_data", from_data, METH_O, nullptr},
                                  {"_tensor_to_list", to_list, METH_O, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};
  return methods;
}

}  // namespace torch
