"""What the tests share."""

from __future__ import annotations

from typing import Any

import numpy


def is_close(tensor: Any, expected: Any) -> bool:
    """Return whether a tensor has the expected numbers, except for rounding."""
    return bool(numpy.allclose(tensor.detach().numpy(), expected))
