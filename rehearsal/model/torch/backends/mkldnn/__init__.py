"""oneDNN: reported as the build was asked for it; the model has no kernels of it."""

from __future__ import annotations

import sys

from torch.backends._settings import is_on


def is_available() -> bool:
    """Say whether the build was made with it."""
    return is_on("USE_MKLDNN")


#: The module itself, under the name of PyTorch's wrapper around it.
m = sys.modules[__name__]
