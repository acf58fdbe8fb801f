#include <torch/csrc/python_headers.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

namespace {

PyObject* numel(PyObject*, PyObject* tensor) {
  return torch::guarded([&] { return PyLong_FromLongLong(torch::unwrap(tensor).numel()); });
}

PyMethodDef methods[] = {{"numel", numel, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "functorch._C", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__C() {
  PyObject* module = PyModule_Create(&definition);
#ifdef Py_GIL_DISABLED
  if (module != nullptr) {
    PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
  }
#endif
  return module;
}
