"""Every library that is opened through a link in torch/lib finds what it needs: linked_libraries.py PREFIX.

glibc takes $ORIGIN from the folder of the link. A Python with an RPATH of its own hides a library that lacks one, so
the loader alone is asked.
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
    asked = subprocess.run(
        ["ldd", str(link)], stdout=subprocess.PIPE, text=True, check=False, env=environment
    )
    missing = [line.split()[0] for line in asked.stdout.splitlines() if line.endswith("not found")]
    lost = [name for name in missing if (libraries / name).exists()]
    assert not lost, f"{link} does not find {', '.join(lost)} of {libraries}"
print(f"{len(links)} linked libraries find what they need")
