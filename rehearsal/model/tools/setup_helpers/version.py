"""Tells scikit-build-core the version to build."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tools.generate_torch_version import get_torch_version


def dynamic_metadata(settings: Mapping[str, object], project: Mapping[str, object]) -> dict[str, str]:
    """Give what pyproject.toml does not say about the project: its version."""
    return {"version": get_torch_version(Path(__file__).resolve().parents[2])}
