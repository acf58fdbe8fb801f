"""Test the features that this config's PyTorch must have: users would miss them only at run time.

features.py PROVIDER CUDA_VERSION|None
"""

import platform
import subprocess
import sys

import numpy
import torch

provider, cuda = sys.argv[1:]

# a BLAS returns complex numbers by value or through an argument; if PyTorch assumes the other way, this is 0 or garbage
for dtype in (torch.complex64, torch.complex128):
    left = torch.tensor([1 + 2j, 3], dtype=dtype)
    right = torch.tensor([2, 1j], dtype=dtype)
    assert torch.dot(left, right).item() == 2 + 7j, torch.dot(left, right)
    assert torch.vdot(left, right).item() == 2 - 1j, torch.vdot(left, right)

assert torch.backends.mkldnn.is_available() == (platform.machine() != "arm64")  # off on Apple's processors
assert torch.distributed.is_available() == (provider != "debian")  # off in build_env.sh
if cuda != "None":
    assert torch.backends.cudnn.is_available()
    assert torch.backends.cudnn.version() >= 9_00_00, torch.backends.cudnn.version()

# NumPy and torch may each load an OpenMP library: in both orders, both must work
assert torch.from_numpy(numpy.arange(3)).sum().numpy() == 3
for order in ("torch, numpy", "numpy, torch"):
    subprocess.run([sys.executable, "-c", f"import {order}; torch.ones(3).numpy()"], check=True)
