"""Test that the installed linear algebra library is the expected flavour, and that all its symbols are defined.

linalg_flavour.py magma|nomagma
"""

import ctypes
import os
import sys
from pathlib import Path

import torch
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

(flavour,) = sys.argv[1:]
library = Path(torch.__file__).parent / "lib" / "libtorch_cuda_linalg.so"
with library.open("rb") as file:
    dynamic = ELFFile(file).get_section_by_name(".dynamic")
    assert isinstance(dynamic, DynamicSection)
    needed = [str(getattr(tag, "needed", "")) for tag in dynamic.iter_tags("DT_NEEDED")]
uses_magma = any(name.startswith("libmagma") for name in needed)
assert uses_magma == (flavour == "magma"), f"{library} should be the {flavour} flavour, but needs {needed}"
assert torch.cuda.has_magma == uses_magma
# otherwise an undefined symbol would fail only at the first torch.linalg call on a GPU
ctypes.CDLL(str(library), mode=os.RTLD_NOW)
print(f"{flavour}: every symbol found")
