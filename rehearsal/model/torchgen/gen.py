"""Command line: write the generated sources; called by cmake/Codegen.cmake."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from string import Template

from torchgen.model import NativeFunction, load

TEMPLATES = Path(__file__).resolve().parent / "templates"


def declarations(functions: Sequence[NativeFunction], *, prefix: str = "") -> str:
    """Give C++ declarations, one a line."""
    return "\n".join(f"{prefix}{function.declaration};" for function in functions)


def definition(function: NativeFunction) -> str:
    """Give the C++ function that runs an operator and records it for autograd."""
    if not function.backward:
        return f"{function.declaration} {{ return native::{function.call}; }}"
    inputs = ", ".join(function.tensors)
    captures = ", ".join(f"{name} = {name}.detach()" for name in (*function.tensors, "result"))
    others = [argument.name for argument in function.arguments if argument.type != "Tensor"]
    gradients = ", ".join(function.backward.get(name, "Tensor()") for name in function.tensors)
    node = "".join(word.capitalize() for word in function.name.split("_")) + "Backward"
    return (
        f"{function.declaration} {{\n"
        f"  const Tensor result = native::{function.call};\n"
        f"  if (torch::autograd::should_record({{{inputs}}})) {{\n"
        f'    torch::autograd::record(result, "{node}", {{{inputs}}},\n'
        f"        [{', '.join([captures, *others])}](const Tensor& grad) -> std::vector<Tensor> {{\n"
        f"          return {{{gradients}}};\n"
        f"        }});\n"
        f"  }}\n"
        f"  return result;\n"
        f"}}"
    )


def binding(function: NativeFunction) -> str:
    """Give the pybind11 line that shows an operator to Python."""
    name = function.name.removeprefix(f"{function.module}_") if function.module else function.name
    module = function.module or "functions"
    arguments = "".join(f', py::arg("{argument.name}")' for argument in function.arguments)
    return f'  {module}.def("{name}", &at::{function.name}{arguments}, py::call_guard<py::gil_scoped_release>());'


def write(path: Path, template: str, **values: str) -> None:
    """Fill in a template; leave the file alone if that changes nothing, so that nothing is compiled for it."""
    text = Template((TEMPLATES / template).read_text(encoding="utf-8")).substitute(values)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--native-functions", type=Path, required=True)
    parser.add_argument("--aten-output", type=Path, required=True)
    parser.add_argument("--python-output", type=Path, required=True)
    options = parser.parse_args()
    functions = load(options.native_functions)

    aten = options.aten_output
    write(aten / "NativeFunctions.h", "NativeFunctions.h", declarations=declarations(functions))
    write(aten / "Functions.h", "Functions.h", declarations=declarations(functions, prefix="TORCH_API "))
    write(aten / "Functions.cpp", "Functions.cpp", definitions="\n\n".join(map(definition, functions)))
    write(
        options.python_output / "python_torch_functions.cpp",
        "python_torch_functions.cpp",
        bindings="\n".join(map(binding, functions)),
        methods=", ".join(f'"{function.name}"' for function in functions if function.method),
    )


if __name__ == "__main__":
    main()
