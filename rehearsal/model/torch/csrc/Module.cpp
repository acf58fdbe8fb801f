// Builds the module torch._C, which the stub of that name returns.
#include <torch/csrc/module_methods.h>

#include <ATen/Version.h>
#include <torch/csrc/Exceptions.h>

#include <libshm/libshm.h>

namespace torch {
namespace {

PyObject* show_config(PyObject*, PyObject*) {
  return guarded([] { return PyUnicode_FromString(at::show_config().c_str()); });
}

PyObject* shm_remove(PyObject*, PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  return text == nullptr ? nullptr : PyBool_FromLong(libshm_remove(text));
}

PyMethodDef own_methods[] = {{"_show_config", show_config, METH_NOARGS, nullptr},
                             {"_shm_remove", shm_remove, METH_O, nullptr},
                             {nullptr, nullptr, 0, nullptr}};

PyObject* fill(PyObject* module) {
  init_tensor(module);
  init_functions(module);
  for (PyMethodDef* methods : {own_methods, cuda_methods(), tensor_numpy_methods()}) {
    if (PyModule_AddFunctions(module, methods) < 0) {
      throw python_error();
    }
  }
  return module;
}

}  // namespace
}  // namespace torch

extern "C" TORCH_PYTHON_API PyObject* initModule() {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "torch._C", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
  PyObject* module = PyModule_Create(&definition);
  if (module == nullptr) {
    return nullptr;
  }
#ifdef Py_GIL_DISABLED
  PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
  PyObject* filled = torch::guarded([&] { return torch::fill(module); });
  if (filled == nullptr) {
    Py_DECREF(module);
  }
  return filled;
}
