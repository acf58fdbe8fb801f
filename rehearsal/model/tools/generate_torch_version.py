"""Writes torch/version.py; run by the build on every call, as PyTorch's is."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def get_torch_version(root: Path) -> str:
    """Give the version to build: ``PYTORCH_BUILD_VERSION`` if set, which needs a number, else what version.txt says."""
    named = os.environ.get("PYTORCH_BUILD_VERSION")
    if named:
        number = int(os.environ["PYTORCH_BUILD_NUMBER"])
        return f"{named}.post{number}" if number > 1 else named
    return (root / "version.txt").read_text().strip()


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--is-debug", type=int, choices=(0, 1), required=True)
    parser.add_argument("--cuda-version", default="")
    options = parser.parse_args()
    root = Path(__file__).resolve().parent.parent
    (root / "torch" / "version.py").write_text(
        f"__version__ = {get_torch_version(root)!r}\n"
        f"debug = {bool(options.is_debug)!r}\n"
        f"cuda: str | None = {options.cuda_version or None!r}\n"
        "hip: str | None = None\n"
    )


if __name__ == "__main__":
    main()
