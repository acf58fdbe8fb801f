"""Environments with a Python that runs, and packages whose files are given."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

SITE = f"lib/python3.{sys.version_info.minor}/site-packages"


def venv(root: Path) -> Path:
    """Make an empty virtual environment of this Python."""
    (root / SITE).mkdir(parents=True)
    (root / "bin").mkdir()
    python = os.path.realpath(sys.executable)
    (root / "bin/python").symlink_to(python)
    (root / "pyvenv.cfg").write_text(f"home = {os.path.dirname(python)}\n")
    return root


def install(
    root: Path,
    name: str,
    files: Mapping[str, str | bytes],
    *,
    requires: Iterable[str] = (),
    entry_points: str = "",
    ending: str = "\n",
) -> Path:
    """Install a package of version 1, and return its RECORD."""
    site, info = root / SITE, f"{name.replace('-', '_')}-1.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
    metadata += "".join(f"Requires-Dist: {one}\n" for one in requires)
    every = {**files, f"{info}/METADATA": f"{metadata}\nRead me.\n"}
    if entry_points:
        every[f"{info}/entry_points.txt"] = entry_points
    rows = []
    for path, content in every.items():
        data = content.encode() if isinstance(content, str) else content
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(data)}{ending}")
    record = site / info / "RECORD"
    record.write_text("".join([*rows, f"{info}/RECORD,,{ending}"]), newline="")
    return record
