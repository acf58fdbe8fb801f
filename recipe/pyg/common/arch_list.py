"""Print the CUDA architectures that are new enough: ``arch_list.py "5.0;6.0;12.0+PTX" --at-least 6.0``."""

from __future__ import annotations

import argparse


def at_least(archs: str, oldest: str) -> str:
    """Return the list without the architectures older than ``oldest``, in the same order."""
    wanted = _number(oldest)
    return ";".join(arch for arch in archs.split(";") if _number(arch) >= wanted)


def _number(arch: str) -> tuple[int, int]:
    major, minor = arch.removesuffix("+PTX").rstrip("af").split(".")
    return int(major), int(minor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archs")
    parser.add_argument("--at-least", required=True, metavar="ARCH")
    arguments = parser.parse_args()
    print(at_least(arguments.archs, arguments.at_least))


if __name__ == "__main__":
    main()
