// Written by torchgen: the operators, shown to Python.
#include <torch/csrc/utils/pybind.h>

#include <ATen/Functions.h>
#include <torch/csrc/module_methods.h>

namespace torch {

void init_functions(PyObject* module) {
  auto m = py::reinterpret_borrow<py::module_>(module);
  py::module_ functions = m.def_submodule("_VariableFunctions"), linalg = m.def_submodule("_linalg");
$bindings
  m.attr("_methods") = py::make_tuple($methods);
}

}  // namespace torch
