"""Whether an installed extension works beside the PyTorch it was installed for: it is imported and asked."""

from __future__ import annotations

import os
import subprocess
import tempfile

from megabuild.prebuilt.extensions import Extension
from megabuild.prebuilt.install.environment import Environment
from megabuild.prebuilt.install.pip import clean

_SECONDS = 180.0
#: All but the name of the module is the same for all of them. Every extension says which CUDA it was compiled with, -1
#: for none: a wrong build imports happily and fails only at the first operation on a GPU.
_SCRIPT = """\
import importlib, sys
import torch
name = sys.argv[1]
importlib.import_module(name)
found = getattr(torch.ops, "pyg" if name == "pyg_lib" else name).cuda_version()
wanted = torch.version.cuda
if wanted is None and found > 0:
    sys.exit("it was compiled with CUDA, PyTorch here was not")
if wanted is not None and found <= 0:
    sys.exit("it was compiled without CUDA, PyTorch here is for CUDA " + wanted)
compiled = "%d.%d" % (found // 1000, found % 1000 // 10)
if wanted is not None and compiled.split(".")[0] != wanted.split(".")[0]:
    sys.exit("it was compiled with CUDA %s, PyTorch here is for CUDA %s" % (compiled, wanted))
"""


def why_unfit(extension: Extension, environment: Environment) -> str:
    """Return why an installed extension does not work in its environment, or an empty string."""
    argv = [str(environment.python), "-I", "-c", _SCRIPT, extension.name]
    try:
        with tempfile.TemporaryDirectory() as empty:
            done = subprocess.run(
                argv,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_SECONDS,
                cwd=empty,
                env=clean(os.environ),
                stdin=subprocess.DEVNULL,
                check=False,
            )
    except subprocess.TimeoutExpired:
        return f"`import {extension.name}` takes more than {_SECONDS:.0f} s"
    if done.returncode == 0:
        return ""
    said = (done.stderr.strip().splitlines() or [f"it ends with status {done.returncode}"])[-1]
    return said if said.startswith("it ") else f"`import {extension.name}` fails: {said}"
