"""Test that libraries opened through links in torch/lib find the libraries they need: linked_libraries.py PREFIX.

glibc resolves $ORIGIN to the folder of the link. A Python with an RPATH would hide that a library lacks one, so this
test uses only the loader. ldd 2.43 resolves the link first, as no program does that opens one: LD_PRELOAD does not.
"""

import os
import subprocess
import sys
from pathlib import Path

import torch

linked = Path(torch.__file__).parent / "lib"
libraries = Path(sys.argv[1]) / "lib"
plain = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
links = sorted(path for path in linked.glob("*.so*") if path.is_symlink())
assert links, f"no library in {linked} is a link"
for link in links:
    # a path without spaces, which would separate libraries; a program without an RPATH
    environment = {**plain, "LD_TRACE_LOADED_OBJECTS": "1", "LD_PRELOAD": f"./{link.name}"}
    done = subprocess.run(
        ["/bin/true"], stdout=subprocess.PIPE, text=True, check=False, env=environment, cwd=linked
    )
    assert done.stdout, f"{link}: the dynamic linker prints no libraries (exit code {done.returncode})"
    missing = [line.split()[0] for line in done.stdout.splitlines() if line.endswith("not found")]
    lost = [name for name in missing if (libraries / name).exists()]
    assert not lost, f"{link} does not find {', '.join(lost)} of {libraries}"
print(f"{len(links)} linked libraries find all libraries they need")
