"""Write torch/version.py; every build runs this, as in PyTorch."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def get_torch_version(root: Path) -> str:
    """Return ``PYTORCH_BUILD_VERSION`` with ``PYTORCH_BUILD_NUMBER`` if set, else the content of version.txt."""
    named = os.environ.get("PYTORCH_BUILD_VERSION")
    if named:
        number = int(os.environ["PYTORCH_BUILD_NUMBER"])
        return f"{named}.post{number}" if number > 1 else named
    return (root / "version.txt").read_text().strip()


def main() -> None:
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
