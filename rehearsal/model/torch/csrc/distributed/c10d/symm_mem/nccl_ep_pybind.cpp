// torch._nccl_ep: a module beside torch._C, which torch.distributed imports when it needs it.
#include <torch/csrc/python_headers.h>

#include <ATen/detail/CUDAHooksInterface.h>

namespace {

PyObject* is_available(PyObject*, PyObject*) { return PyBool_FromLong(at::getCUDAHooks().deviceCount() > 1); }

PyMethodDef methods[] = {{"is_available", is_available, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "torch._nccl_ep", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__nccl_ep() {
  PyObject* module = PyModule_Create(&definition);
#ifdef Py_GIL_DISABLED
  if (module != nullptr) {
    PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
  }
#endif
  return module;
}
