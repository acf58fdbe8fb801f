#include <torch/csrc/module_methods.h>

namespace torch {
namespace {

// A shape given as numbers, torch.ones(2, 3), or as one sequence, torch.ones((2, 3)), made a tuple of ints.
PyObject* parse_size(PyObject*, PyObject* arguments) {
  const bool one = PyTuple_GET_SIZE(arguments) == 1 && PySequence_Check(PyTuple_GET_ITEM(arguments, 0)) != 0;
  PyObject* sizes = PySequence_Tuple(one ? PyTuple_GET_ITEM(arguments, 0) : arguments);
  for (Py_ssize_t i = 0; sizes != nullptr && i < PyTuple_GET_SIZE(sizes); ++i) {
    if (PyIndex_Check(PyTuple_GET_ITEM(sizes, i)) == 0) {
      PyErr_Format(PyExc_TypeError, "a size must be a whole number, not %s", Py_TYPE(PyTuple_GET_ITEM(sizes, i))->tp_name);
      Py_CLEAR(sizes);
    }
  }
  return sizes;
}

}  // namespace

PyMethodDef* arg_parser_methods() {
  static PyMethodDef methods[] = {{"_parse_size", parse_size, METH_VARARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
  return methods;
}

}  // namespace torch
