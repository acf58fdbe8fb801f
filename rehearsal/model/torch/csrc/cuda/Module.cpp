#include <torch/csrc/module_methods.h>

#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

namespace torch {
namespace {

PyObject* is_built(PyObject*, PyObject*) { return PyBool_FromLong(at::getCUDAHooks().isBuilt()); }
PyObject* device_count(PyObject*, PyObject*) { return PyLong_FromLong(at::getCUDAHooks().deviceCount()); }
PyObject* archs(PyObject*, PyObject*) { return PyUnicode_FromString(at::getCUDAHooks().archs().c_str()); }
PyObject* has_magma(PyObject*, PyObject*) { return PyBool_FromLong(at::getCUDAHooks().hasMAGMA()); }

PyObject* linalg_backend(PyObject*, PyObject*) {
  return guarded([] { return PyUnicode_FromString(at::getCUDAHooks().linalgBackend().c_str()); });
}

PyObject* emulated_solve(PyObject*, PyObject* arguments) {
  PyObject *a = nullptr, *b = nullptr;
  if (PyArg_ParseTuple(arguments, "OO", &a, &b) == 0) {
    return nullptr;
  }
  return guarded([&] { return wrap(at::getCUDAHooks().emulatedSolve(unwrap(a), unwrap(b))); });
}

}  // namespace

PyMethodDef* cuda_methods() {
  static PyMethodDef methods[] = {{"_cuda_isBuilt", is_built, METH_NOARGS, nullptr},
                                  {"_cuda_getDeviceCount", device_count, METH_NOARGS, nullptr},
                                  {"_cuda_getArchFlags", archs, METH_NOARGS, nullptr},
                                  {"_cuda_hasMAGMA", has_magma, METH_NOARGS, nullptr},
                                  {"_cuda_linalgBackend", linalg_backend, METH_NOARGS, nullptr},
                                  {"_cuda_emulatedSolve", emulated_solve, METH_VARARGS, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};
  return methods;
}

}  // namespace torch
