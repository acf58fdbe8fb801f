"""What this config's PyTorch must offer: switched off, or called in the wrong way, it is missed only at run time.

features.py PROVIDER CUDA_VERSION|None
"""

import platform
import subprocess
import sys

import numpy
import torch

provider, cuda = sys.argv[1:]

# the BLAS may return complex numbers by value or through an argument: taken for the other, the product is 0 or garbage
for dtype in (torch.complex64, torch.complex128):
    left, right = torch.tensor([1 + 2j, 3], dtype=dtype), torch.tensor([2, 1j], dtype=dtype)
    assert torch.dot(left, right).item() == 2 + 7j, torch.dot(left, right)
    assert torch.vdot(left, right).item() == 2 - 1j, torch.vdot(left, right)

# Debian's source comes without the sources of either; oneDNN is off on Apple's processors
minimal = provider == "debian"
assert torch.backends.mkldnn.is_available() != (minimal or platform.machine() == "arm64")
assert torch.distributed.is_available() != minimal
if cuda != "None":
    assert torch.backends.cudnn.is_available()
    assert torch.backends.cudnn.version() >= 9_00_00, torch.backends.cudnn.version()

# each brings an OpenMP library or none: whoever comes first, there must be one in the end
assert torch.from_numpy(numpy.arange(3)).sum().numpy() == 3
for order in ("torch, numpy", "numpy, torch"):
    subprocess.run([sys.executable, "-c", f"import {order}; torch.ones(3).numpy()"], check=True)
