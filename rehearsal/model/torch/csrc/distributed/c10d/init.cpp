// Functions on a store in a capsule; torch.distributed makes a class of them.
#include <torch/csrc/module_methods.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/distributed/c10d/HashStore.h>

namespace torch {
namespace {

constexpr const char* kCapsule = "torch.HashStore";

c10d::HashStore& store_in(PyObject* capsule) {
  void* store = PyCapsule_GetPointer(capsule, kCapsule);
  if (store == nullptr) {
    throw python_error();
  }
  return *static_cast<c10d::HashStore*>(store);
}

PyObject* make(PyObject*, PyObject*) {
  return PyCapsule_New(new c10d::HashStore(), kCapsule, [](PyObject* capsule) {
    delete static_cast<c10d::HashStore*>(PyCapsule_GetPointer(capsule, kCapsule));
  });
}

PyObject* set(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  const char *key = nullptr, *value = nullptr;
  if (PyArg_ParseTuple(arguments, "Oss", &capsule, &key, &value) == 0) {
    return nullptr;
  }
  return guarded([&] {
    store_in(capsule).set(key, value);
    return Py_NewRef(Py_None);
  });
}

PyObject* add(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  const char* key = nullptr;
  long long value = 0;
  if (PyArg_ParseTuple(arguments, "OsL", &capsule, &key, &value) == 0) {
    return nullptr;
  }
  return guarded([&] { return PyLong_FromLongLong(store_in(capsule).add(key, value)); });
}

PyObject* get(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  const char* key = nullptr;
  double seconds = 0;
  if (PyArg_ParseTuple(arguments, "Osd", &capsule, &key, &seconds) == 0) {
    return nullptr;
  }
  return guarded([&] {
    c10d::HashStore& store = store_in(capsule);
    std::string value;
    std::exception_ptr failure;
    Py_BEGIN_ALLOW_THREADS  // another thread is to set what this one waits for
    try {
      value = store.get(key, std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
    } catch (...) {
      failure = std::current_exception();
    }
    Py_END_ALLOW_THREADS
    if (failure) {
      std::rethrow_exception(failure);
    }
    return PyUnicode_FromString(value.c_str());
  });
}

}  // namespace

PyMethodDef* c10d_methods() {
  static PyMethodDef methods[] = {{"_c10d_init", make, METH_NOARGS, nullptr},
                                  {"_c10d_set", set, METH_VARARGS, nullptr},
                                  {"_c10d_add", add, METH_VARARGS, nullptr},
                                  {"_c10d_get", get, METH_VARARGS, nullptr},
                                  {nullptr, nullptr, 0, nullptr}};
  return methods;
}

}  // namespace torch
