#include <torch/csrc/python_headers.h>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/module_methods.h>

namespace torch {
namespace {

PyObject* is_enabled(PyObject*, PyObject*) { return PyBool_FromLong(autograd::grad_enabled()); }

PyObject* set_enabled(PyObject*, PyObject* on) {
  const int value = PyObject_IsTrue(on);
  if (value < 0) {
    return nullptr;
  }
  autograd::set_grad_enabled(value == 1);
  Py_RETURN_NONE;
}

}  // namespace

PyMethodDef* autograd_methods() {
  static PyMethodDef methods[] = {{"is_grad_enabled", is_enabled, METH_NOARGS, nullptr},
                                  {"_set_grad_enabled", set_enabled, METH_O, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};
  return methods;
}

}  // namespace torch
