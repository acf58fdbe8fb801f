"""Command line: generate C++ and bindings from native_functions.yaml; cmake/Codegen.cmake runs it."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import Self

#: By type in a schema: the type of a C++ parameter.
CPP_TYPES = {"Tensor": "const Tensor&", "int": "int64_t", "float": "double", "int[]": "const IntList&"}


@dataclass(frozen=True)
class NativeFunction:
    """An operator: its name, the types and names of its arguments, and the other keys of its entry."""

    name: str
    arguments: dict[str, str]
    backward: dict[str, str]
    method: bool
    module: str

    @classmethod
    def parse(cls, entry: dict[str, Any]) -> Self:
        """Read an entry of native_functions.yaml.

        Raises
        ------
        ValueError
            The signature is invalid.
        """
        match = re.fullmatch(r"(\w+)\((.*)\) -> Tensor", entry["func"])
        if match is None:
            raise ValueError(f"{entry['func']!r}: invalid signature")
        arguments = {word.split()[1]: CPP_TYPES[word.split()[0]] for word in match[2].split(", ")}
        method = entry.get("variants") == "method"
        return cls(match[1], arguments, entry.get("backward", {}), method, entry.get("module", ""))

    @property
    def declaration(self) -> str:
        """The C++ declaration, without the semicolon."""
        return f"Tensor {self.name}({', '.join(f'{kind} {name}' for name, kind in self.arguments.items())})"

    @property
    def definition(self) -> str:
        """The C++ function that runs the operator and records it for autograd."""
        call = f"native::{self.name}({', '.join(self.arguments)})"
        if not self.backward:
            return f"{self.declaration} {{ return {call}; }}\n"
        captures = ", ".join(f"{name} = {name}.detach()" for name in (*self.arguments, "result"))
        gradients = ", ".join(self.backward.get(name, "Tensor()") for name in self.arguments)
        node = "".join(word.capitalize() for word in self.name.split("_")) + "Backward"
        return (
            f"{self.declaration} {{\n  const Tensor result = {call};\n"
            f'  torch::autograd::record(result, "{node}", {{{", ".join(self.arguments)}}},\n'
            f"      [{captures}](const Tensor& grad) -> std::vector<Tensor> {{ return {{{gradients}}}; }});\n"
            "  return result;\n}\n"
        )

    @property
    def binding(self) -> str:
        """The line of pybind11 that makes the operator a Python function."""
        module, name = self.module or "functions", self.name.removeprefix(f"{self.module}_")
        return f'  {module}.def("{name}", &at::{self.name}, py::call_guard<py::gil_scoped_release>());'


def write(path: Path, *lines: str) -> None:
    """Write a file unless its content is the same: an unchanged file must not cause compiles."""
    text = "\n".join(["// Written by torchgen.", *lines, ""])
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def main() -> None:
    """Run the command line: ``NATIVE_FUNCTIONS_YAML FOLDER``."""
    declared, output = Path(sys.argv[1]), Path(sys.argv[2])
    functions = [
        NativeFunction.parse(entry) for entry in yaml.safe_load(declared.read_text(encoding="utf-8"))
    ]
    output.mkdir(parents=True, exist_ok=True)
    header = ["#pragma once", "#include <ATen/core/Tensor.h>"]
    native = [f"{function.declaration};" for function in functions]
    write(output / "NativeFunctions.h", *header, "namespace at::native {", *native, "}")
    write(output / "Functions.h", *header, "namespace at {", *(f"TORCH_API {line}" for line in native), "}")
    headers = ["ATen/Functions.h", "ATen/NativeFunctions.h", "torch/csrc/autograd/FunctionsManual.h",
               "torch/csrc/autograd/function.h"]  # fmt: skip
    definitions = [function.definition for function in functions]
    write(output / "Functions.cpp", *(f"#include <{name}>" for name in headers), "namespace at {",
          "using namespace torch::autograd;", *definitions, "}")  # fmt: skip
    methods = ", ".join(f'"{function.name}"' for function in functions if function.method)
    write(
        output / "python_torch_functions.cpp",
        "#include <torch/csrc/utils/pybind.h>",
        "#include <ATen/Functions.h>",
        "#include <torch/csrc/module_methods.h>",
        "void torch::init_functions(PyObject* module) {",
        "  auto m = py::reinterpret_borrow<py::module_>(module);",
        '  py::module_ functions = m.def_submodule("_VariableFunctions"), linalg = m.def_submodule("_linalg");',
        *(function.binding for function in functions),
        f'  m.attr("_methods") = py::make_tuple({methods});',
        "}",
    )


if __name__ == "__main__":
    main()
