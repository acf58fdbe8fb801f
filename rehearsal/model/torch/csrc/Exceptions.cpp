#include <torch/csrc/Exceptions.h>

namespace torch {

const char* python_error::what() const noexcept { return "a Python error is set"; }

PyObject* checked(PyObject* made) {
  if (made == nullptr) {
    throw python_error();
  }
  return made;
}

void set_python_error() noexcept {
  try {
    throw;
  } catch (const python_error&) {
    // set already
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "unknown exception");
  }
}

}  // namespace torch
