// torch.Tensor; operators, and methods that are operators too, are added in torch/_tensor.py.
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/tensor_text.h>

namespace torch {

PyObject* wrap(const at::Tensor& tensor) { return py::cast(tensor).release().ptr(); }

at::Tensor unwrap(PyObject* object) {
  if (!py::isinstance<at::Tensor>(object)) {
    PyErr_Format(PyExc_TypeError, "expected a torch.Tensor, got %s", Py_TYPE(object)->tp_name);
    throw python_error();
  }
  return py::cast<at::Tensor>(py::handle(object));
}

void init_tensor(PyObject* module) {
  using at::Tensor;
  auto m = py::reinterpret_borrow<py::module_>(module);
  py::class_<Tensor>(m, "Tensor")
      .def(py::init(&Tensor::scalar))
      .def(py::init(&Tensor::from_values))
      .def_property_readonly("shape", [](const Tensor& self) { return py::tuple(py::cast(self.sizes())); })
      .def_property_readonly("requires_grad", &Tensor::requires_grad)
      .def_property_readonly("grad", [](const Tensor& self) -> py::object {
        const Tensor grad = self.grad();
        return grad.defined() ? py::cast(grad) : py::none();
      })
      .def("requires_grad_", [](const Tensor& self, bool on) { return self.requires_grad_(on); }, py::arg("requires_grad") = true)
      .def("backward", &Tensor::backward, py::call_guard<py::gil_scoped_release>())
      .def("item", &Tensor::item<double>)
      .def("detach", &Tensor::detach)
      .def("__repr__", &tensor_text);
  py::implicitly_convertible<double, Tensor>();
  py::implicitly_convertible<int64_t, Tensor>();
}

}  // namespace torch
