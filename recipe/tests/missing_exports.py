"""Print the functions that headers of PyTorch's Python side call, but libtorch_python does not export.

Extensions that include these headers do not link. For a compiled PyTorch the CMake project then fails. Official wheels
lack the function (2.13.0 to 2.15.0), and a finished library cannot be mended: their test only warns.
"""

import ctypes
import sys
from pathlib import Path

import torch

#: Function, the header whose inline code calls it, and its name in the library.
FUNCTIONS = {
    "torch::jit::detail::_tryToInferTypeImpl": (
        "torch/csrc/jit/python/pybind_utils.h",
        "_ZN5torch3jit6detail19_tryToInferTypeImplEN8pybind116handleE",
    ),
}

folder = Path(torch.__file__).parent
suffix = "dylib" if sys.platform == "darwin" else "so"
library = ctypes.CDLL(str(folder / "lib" / f"libtorch_python.{suffix}"))
for function, (header, symbol) in FUNCTIONS.items():
    text = (folder / "include" / header).read_text()
    # PyTorch 2.6 has the header, but not the function
    if function.rpartition("::")[2] in text and not hasattr(library, symbol):
        print(function)
