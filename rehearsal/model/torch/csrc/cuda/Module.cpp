#include <torch/csrc/module_methods.h>

#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#ifdef USE_CUDA
#include <ATen/cuda/KernelSource.h>
#include <ATen/native/cuda/Kernels.h>
#endif

namespace torch {
namespace {

PyObject* is_built(PyObject*, PyObject*) { return PyBool_FromLong(at::getCUDAHooks().isBuilt()); }

PyObject* device_count(PyObject*, PyObject*) { return PyLong_FromLong(at::getCUDAHooks().deviceCount()); }

PyObject* arch_flags(PyObject*, PyObject*) {
  return guarded([] {
    PyObject* list = checked(PyList_New(0));
    for (const std::string& arch : at::getCUDAHooks().archList()) {
      PyObject* text = checked(PyUnicode_FromString(arch.c_str()));
      const int status = PyList_Append(list, text);
      Py_DECREF(text);
      checked(status == 0 ? list : nullptr);
    }
    return list;
  });
}

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

#ifdef USE_CUDA
PyObject* kernel_source(PyObject*, PyObject* arguments) {
  const char *name = nullptr, *expression = nullptr;
  if (PyArg_ParseTuple(arguments, "ss", &name, &expression) == 0) {
    return nullptr;
  }
  return guarded([&] { return PyUnicode_FromString(at::cuda::kernel_source(name, expression).c_str()); });
}

PyObject* emulated_matmul(PyObject*, PyObject* arguments) {
  PyObject *a = nullptr, *b = nullptr;
  if (PyArg_ParseTuple(arguments, "OO", &a, &b) == 0) {
    return nullptr;
  }
  return guarded([&] { return wrap(at::native::cuda::block_matmul(unwrap(a), unwrap(b))); });
}

PyObject* emulated_sort(PyObject*, PyObject* a) {
  return guarded([&] { return wrap(at::native::cuda::bitonic_sort(unwrap(a))); });
}

PyObject* emulated_sum(PyObject*, PyObject* a) {
  return guarded([&] { return PyFloat_FromDouble(at::native::cuda::block_sum(unwrap(a))); });
}
#endif

}  // namespace

PyMethodDef* cuda_methods() {
  static PyMethodDef methods[] = {{"_cuda_isBuilt", is_built, METH_NOARGS, nullptr},
                                  {"_cuda_getDeviceCount", device_count, METH_NOARGS, nullptr},
                                  {"_cuda_getArchFlags", arch_flags, METH_NOARGS, nullptr},
                                  {"_cuda_hasMAGMA", has_magma, METH_NOARGS, nullptr},
                                  {"_cuda_linalgBackend", linalg_backend, METH_NOARGS, nullptr},
                                  {"_cuda_emulatedSolve", emulated_solve, METH_VARARGS, nullptr},
#ifdef USE_CUDA
                                  {"_cuda_kernelSource", kernel_source, METH_VARARGS, nullptr},
                                  {"_cuda_emulatedMatmul", emulated_matmul, METH_VARARGS, nullptr},
                                  {"_cuda_emulatedSort", emulated_sort, METH_O, nullptr},
                                  {"_cuda_emulatedSum", emulated_sum, METH_O, nullptr},
#endif
                                  {nullptr, nullptr, 0, nullptr}};
  return methods;
}

}  // namespace torch
