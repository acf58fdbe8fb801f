// Makes NumPy arrays that share the memory of tensors.
#include <torch/csrc/module_methods.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#define NPY_NO_DEPRECATED_API NPY_1_20_API_VERSION
#include <numpy/arrayobject.h>

namespace torch {
namespace {

constexpr const char* kCapsule = "torch.storage";
using Storage = std::shared_ptr<double[]>;

// The array keeps the tensor's memory alive.
PyObject* to_numpy(PyObject*, PyObject* object) {
  return guarded([&] {
    // only here, because PyTorch can be imported without NumPy
    if (PyArray_API == nullptr && _import_array() < 0) {
      throw python_error();
    }
    const at::Tensor tensor = unwrap(object);
    TORCH_CHECK(!tensor.requires_grad(), "a tensor that requires a gradient has no array; use detach().numpy()");
    std::vector<npy_intp> shape(tensor.sizes().begin(), tensor.sizes().end());
    PyObject* array = checked(
        PyArray_SimpleNewFromData(static_cast<int>(shape.size()), shape.data(), NPY_DOUBLE, tensor.data()));
    PyObject* capsule = checked(PyCapsule_New(new Storage(tensor.storage()), kCapsule, [](PyObject* made) {
      delete static_cast<Storage*>(PyCapsule_GetPointer(made, kCapsule));
    }));
    if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array), capsule) < 0) {  // takes the capsule, even if it fails
      Py_DECREF(array);
      throw python_error();
    }
    return array;
  });
}

}  // namespace

PyMethodDef* tensor_numpy_methods() {
  static PyMethodDef methods[] = {{"_tensor_to_numpy", to_numpy, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
  return methods;
}

}  // namespace torch
