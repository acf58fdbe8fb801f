"""Reads the build settings that libtorch reports."""

from __future__ import annotations

import re

from torch import _C


def is_on(name: str) -> bool:
    """Say whether an option such as ``USE_CUDNN`` was on."""
    return re.search(rf"\b{name}=1\b", _C._show_config()) is not None
