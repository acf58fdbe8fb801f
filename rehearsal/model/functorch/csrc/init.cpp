#include <torch/csrc/python_headers.h>

#include <csrc/vmap.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

namespace functorch {
namespace {

PyObject* unstack_(PyObject*, PyObject* tensor) {
  return torch::guarded([&] {
    const std::vector<at::Tensor> parts = unstack(torch::unwrap(tensor));
    PyObject* list = torch::checked(PyList_New(static_cast<Py_ssize_t>(parts.size())));
    for (size_t i = 0; i < parts.size(); ++i) {
      PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), torch::wrap(parts[i]));
    }
    return list;
  });
}

PyObject* stack_(PyObject*, PyObject* list) {
  return torch::guarded([&] {
    std::vector<at::Tensor> parts;
    for (Py_ssize_t i = 0; i < PySequence_Size(list); ++i) {
      PyObject* part = torch::checked(PySequence_GetItem(list, i));
      parts.push_back(torch::unwrap(part));
      Py_DECREF(part);
    }
    return torch::wrap(stack(parts));
  });
}

PyMethodDef methods[] = {{"_unstack", unstack_, METH_O, nullptr}, {"_stack", stack_, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};

}  // namespace
}  // namespace functorch

PyMODINIT_FUNC PyInit__C() {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "functorch._C", nullptr, -1, functorch::methods,
                                   nullptr,               nullptr,        nullptr, nullptr};
  PyObject* module = PyModule_Create(&definition);
#ifdef Py_GIL_DISABLED
  if (module != nullptr) {
    PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
  }
#endif
  return module;
}
