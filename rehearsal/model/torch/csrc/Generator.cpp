#include <torch/csrc/module_methods.h>

#include <ATen/core/Generator.h>

namespace torch {
namespace {

PyObject* manual_seed(PyObject*, PyObject* seed) {
  const unsigned long long value = PyLong_AsUnsignedLongLong(seed);
  if (PyErr_Occurred() != nullptr) {
    return nullptr;
  }
  at::default_generator().set_seed(value);
  Py_RETURN_NONE;
}

PyObject* initial_seed(PyObject*, PyObject*) { return PyLong_FromUnsignedLongLong(at::default_generator().seed()); }

}  // namespace

PyMethodDef* generator_methods() {
  static PyMethodDef methods[] = {{"manual_seed", manual_seed, METH_O, nullptr},
                                  {"initial_seed", initial_seed, METH_NOARGS, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};
  return methods;
}

}  // namespace torch
