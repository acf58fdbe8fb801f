// Builds the module torch._C, which the stub of that name returns.
#include <torch/csrc/module_methods.h>

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/csrc/Exceptions.h>

#include <libshm/libshm.h>

namespace torch {
namespace {

PyObject* show_config(PyObject*, PyObject*) {
  return guarded([] { return PyUnicode_FromString(at::show_config().c_str()); });
}

PyObject* parallel_info(PyObject*, PyObject*) {
  return guarded([] { return PyUnicode_FromString(at::get_parallel_info().c_str()); });
}

PyObject* get_num_threads(PyObject*, PyObject*) { return PyLong_FromLong(at::get_num_threads()); }

PyObject* set_num_threads(PyObject*, PyObject* count) {
  const long value = PyLong_AsLong(count);
  if (PyErr_Occurred() != nullptr) {
    return nullptr;
  }
  return guarded([&] {
    at::set_num_threads(static_cast<int>(value));
    return Py_NewRef(Py_None);
  });
}

// Puts a few bytes into shared memory and takes them out again.
PyObject* shm_round_trip(PyObject*, PyObject* arguments) {
  const char *name = nullptr, *data = nullptr;
  Py_ssize_t length = 0;
  if (PyArg_ParseTuple(arguments, "sy#", &name, &data, &length) == 0) {
    return nullptr;
  }
  return guarded([&] {
    const std::string bytes(data, static_cast<size_t>(length));
    const ManagedSharedMemory memory(name, bytes.size());
    bytes.copy(static_cast<char*>(memory.data()), bytes.size());
    return PyBytes_FromStringAndSize(static_cast<const char*>(memory.data()), length);
  });
}

PyMethodDef own_methods[] = {{"_show_config", show_config, METH_NOARGS, nullptr},
                             {"_parallel_info", parallel_info, METH_NOARGS, nullptr},
                             {"get_num_threads", get_num_threads, METH_NOARGS, nullptr},
                             {"set_num_threads", set_num_threads, METH_O, nullptr},
                             {"_shm_round_trip", shm_round_trip, METH_VARARGS, nullptr},
                             {nullptr, nullptr, 0, nullptr}};

void add(PyObject* module, PyMethodDef* methods) {
  if (PyModule_AddFunctions(module, methods) < 0) {
    throw python_error();
  }
}

void fill(PyObject* module) {
  init_tensor(module);
  init_functions(module);
  add(module, own_methods);
  add(module, arg_parser_methods());
  add(module, autograd_methods());
  add(module, cuda_methods());
  add(module, generator_methods());
  add(module, tensor_list_methods());
#ifdef USE_NUMPY
  init_numpy();
  add(module, tensor_numpy_methods());
#endif
#ifdef USE_DISTRIBUTED
  add(module, c10d_methods());
#endif
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
  PyObject* filled = torch::guarded([&] {
    torch::fill(module);
    return module;
  });
  if (filled == nullptr) {
    Py_DECREF(module);
  }
  return filled;
}
