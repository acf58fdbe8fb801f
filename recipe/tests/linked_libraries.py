"""Test that libraries opened through links in torch/lib find the libraries they need: linked_libraries.py PREFIX.

glibc resolves $ORIGIN to the folder of the link. A Python with an RPATH would hide that a library lacks one, so this
test uses only the loader (ldd).
"""

import os
import subprocess
import sys
from pathlib import Path

import torch

linked, libraries = Path(torch.__file__).parent / "lib", Path(sys.argv[1]) / "lib"
environment = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
links = sorted(path for path in linked.glob("*.so*") if path.is_symlink())
assert links, f"no library in {linked} is a link"
for link in links:
    done = subprocess.run(["ldd", str(link)], stdout=subprocess.PIPE, text=True, check=False, env=environment)
    missing = [line.split()[0] for line in done.stdout.splitlines() if line.endswith("not found")]
    lost = [name for name in missing if (libraries / name).exists()]
    assert not lost, f"{link} does not find {', '.join(lost)} of {libraries}"
print(f"{len(links)} linked libraries find all libraries they need")
