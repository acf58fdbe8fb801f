"""The linalg library needs MAGMA exactly in its magma flavour."""

import sys

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

library, flavour = sys.argv[1:]
with open(library, "rb") as file:
    dynamic = ELFFile(file).get_section_by_name(".dynamic")
    assert isinstance(dynamic, DynamicSection)
    needed = [str(getattr(tag, "needed", "")) for tag in dynamic.iter_tags("DT_NEEDED")]
uses_magma = any(name.startswith("libmagma") for name in needed)
assert uses_magma == (flavour == "magma"), f"{library} is the {flavour} flavour and needs {needed}"
