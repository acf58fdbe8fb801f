// Tensors and arrays of NumPy on the same memory.
#include <torch/csrc/module_methods.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#define NPY_NO_DEPRECATED_API NPY_1_20_API_VERSION
#include <numpy/arrayobject.h>

#include <memory>

namespace torch {
namespace {

constexpr const char* kCapsule = "torch.storage";

void release(PyObject* capsule) { delete static_cast<c10::Storage*>(PyCapsule_GetPointer(capsule, kCapsule)); }

// The array keeps the tensor's memory alive.
PyObject* to_numpy(PyObject*, PyObject* object) {
  return guarded([&] {
    const at::Tensor tensor = unwrap(object);
    TORCH_CHECK(!tensor.requires_grad(), "a tensor that requires a gradient has no array; use detach().numpy()");
    at::IntList sizes = tensor.sizes();
    std::vector<npy_intp> shape(sizes.begin(), sizes.end());
    auto storage = std::make_unique<c10::Storage>(tensor.storage());
    PyObject* capsule = checked(PyCapsule_New(storage.get(), kCapsule, release));
    storage.release();  // the capsule's now
    PyObject* array = PyArray_SimpleNewFromData(static_cast<int>(shape.size()), shape.data(), NPY_DOUBLE, tensor.data());
    if (array == nullptr) {
      Py_DECREF(capsule);
      throw python_error();
    }
    if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array), capsule) < 0) {  // takes the capsule, even if it fails
      Py_DECREF(array);
      throw python_error();
    }
    return array;
  });
}

// On the memory of an array of doubles, or of a copy that NumPy makes of any other one.
PyObject* from_numpy(PyObject*, PyObject* object) {
  return guarded([&] {
    PyObject* converted = checked(PyArray_FROM_OTF(object, NPY_DOUBLE, NPY_ARRAY_CARRAY));
    auto* array = reinterpret_cast<PyArrayObject*>(converted);
    // the last tensor may go on a thread that does not hold the interpreter
    const std::shared_ptr<double> memory(static_cast<double*>(PyArray_DATA(array)), [converted](double*) {
      const PyGILState_STATE state = PyGILState_Ensure();
      Py_DECREF(converted);
      PyGILState_Release(state);
    });
    const at::IntList sizes(PyArray_DIMS(array), PyArray_DIMS(array) + PyArray_NDIM(array));
    return wrap({c10::Storage(memory, PyArray_SIZE(array)), sizes});
  });
}

}  // namespace

void init_numpy() {
  if (_import_array() < 0) {
    throw python_error();
  }
}

PyMethodDef* tensor_numpy_methods() {
  static PyMethodDef methods[] = {{"_tensor_from_numpy", from_numpy, METH_O, nullptr},
                                  {"_tensor_to_numpy", to_numpy, METH_O, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};
  return methods;
}

}  // namespace torch
