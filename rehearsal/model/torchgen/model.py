"""What native_functions.yaml declares, as dataclasses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import Self

#: Type in a schema to how C++ takes it.
CPP_TYPES = {
    "Tensor": "const Tensor&",
    "int": "int64_t",
    "float": "double",
    "bool": "bool",
    "int[]": "const IntList&",
}


@dataclass(frozen=True)
class Argument:
    """One argument of an operator."""

    type: str
    name: str

    @property
    def cpp(self) -> str:
        """The parameter in a C++ declaration."""
        return f"{CPP_TYPES[self.type]} {self.name}"


@dataclass(frozen=True)
class NativeFunction:
    """One operator."""

    name: str
    arguments: tuple[Argument, ...]
    backward: dict[str, str]
    method: bool
    module: str | None

    @classmethod
    def parse(cls, entry: dict[str, Any]) -> Self:
        """Read an entry of native_functions.yaml.

        Parameters
        ----------
        entry:
            The entry.

        Returns
        -------
        NativeFunction
            The operator.

        Raises
        ------
        ValueError
            If the signature cannot be read, or a gradient is given for an argument that there is not.
        """
        match = re.fullmatch(r"(\w+)\((.*)\) -> Tensor", entry["func"])
        if match is None:
            raise ValueError(f"cannot read the signature {entry['func']!r}")
        pairs = (word.rsplit(" ", 1) for word in match[2].split(", ") if word)
        arguments = tuple(Argument(kind, name) for kind, name in pairs)
        unknown = {argument.type for argument in arguments} - CPP_TYPES.keys()
        if unknown:
            raise ValueError(f"unknown types in {entry['func']!r}: {', '.join(sorted(unknown))}")
        backward = dict(entry.get("backward", {}))
        if not backward.keys() <= {argument.name for argument in arguments if argument.type == "Tensor"}:
            raise ValueError(f"{match[1]} has gradients for arguments that are no tensors of its own")
        return cls(match[1], arguments, backward, entry.get("variants") == "method", entry.get("module"))

    @property
    def declaration(self) -> str:
        """The C++ declaration, without the semicolon."""
        return f"Tensor {self.name}({', '.join(argument.cpp for argument in self.arguments)})"

    @property
    def call(self) -> str:
        """A C++ call that passes the arguments on."""
        return f"{self.name}({', '.join(argument.name for argument in self.arguments)})"

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the arguments that are tensors."""
        return tuple(argument.name for argument in self.arguments if argument.type == "Tensor")


def load(path: Path) -> tuple[NativeFunction, ...]:
    """Read native_functions.yaml.

    Parameters
    ----------
    path:
        The file.

    Returns
    -------
    tuple[NativeFunction, ...]
        Operators in the order of the file.
    """
    with path.open(encoding="utf-8") as file:
        return tuple(NativeFunction.parse(entry) for entry in yaml.safe_load(file))
