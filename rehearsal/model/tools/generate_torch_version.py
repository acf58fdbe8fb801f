"""Writes torch/version.py; run by the build on every call, as PyTorch's is."""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

UNKNOWN = "Unknown"


def get_sha(root: Path) -> str:
    """Give the commit of a git checkout at ``root``, or ``Unknown``."""
    if not (root / ".git").exists():
        return UNKNOWN
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or UNKNOWN


def get_torch_version(root: Path) -> str:
    """Give the version to build.

    Parameters
    ----------
    root:
        The source folder.

    Returns
    -------
    str
        ``PYTORCH_BUILD_VERSION`` (with ``.post<n>`` for a ``PYTORCH_BUILD_NUMBER`` above 1) if set, else the content of
        version.txt with the commit.

    Raises
    ------
    KeyError
        If ``PYTORCH_BUILD_VERSION`` is set without ``PYTORCH_BUILD_NUMBER``.
    """
    named = os.environ.get("PYTORCH_BUILD_VERSION")
    if named:
        number = int(os.environ["PYTORCH_BUILD_NUMBER"])
        return f"{named}.post{number}" if number > 1 else named
    sha = get_sha(root)
    return (root / "version.txt").read_text().strip() + (f"+git{sha[:7]}" if sha != UNKNOWN else "")


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--is-debug", type=int, choices=(0, 1), required=True)
    parser.add_argument("--cuda-version", default="")
    options = parser.parse_args()
    root = Path(__file__).resolve().parent.parent
    (root / "torch" / "version.py").write_text(
        '__all__ = ["__version__", "cuda", "debug", "git_version", "hip"]\n'
        f"__version__ = {get_torch_version(root)!r}\n"
        f"debug = {bool(options.is_debug)!r}\n"
        f"cuda: str | None = {options.cuda_version or None!r}\n"
        f"git_version = {get_sha(root)!r}\n"
        "hip: str | None = None\n"
    )


if __name__ == "__main__":
    main()
