"""Make an installed ``torch`` folder use the libtorch that lies in the environment instead of a copy of its own.

What libtorch owns becomes relative links: header folders as a whole, so that a compiler that meets a header on both
ways sees one file; libraries, programs and CMake files one by one, among those that stay. ``libtorch_python`` also goes
to ``lib/``, where ``TorchConfig.cmake`` looks for it. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

#: Folders of ``torch`` that libtorch has a part in.
SHARED = ("bin", "include", "lib", "share")


def share(torch: Path, prefix: Path) -> int:
    """Replace copies of libtorch's files below ``torch`` by links into ``prefix``.

    Parameters
    ----------
    torch:
        ``site-packages/torch``.
    prefix:
        The environment, with libtorch installed.

    Returns
    -------
    int
        Number of links made.

    Raises
    ------
    FileNotFoundError
        If ``torch`` has no ``libtorch_python``.
    """
    python_side = sorted((torch / "lib").glob("libtorch_python.*"))
    if not python_side:
        raise FileNotFoundError(f"no libtorch_python in {torch / 'lib'}: the Python side was not built")
    for library in python_side:
        shutil.copy2(library, prefix / "lib" / library.name, follow_symlinks=False)
    linked = 0
    for folder, folders, files in os.walk(torch):
        here = Path(folder)
        place = here.relative_to(torch)
        if not place.parts:
            folders[:] = [name for name in SHARED if name in folders]
            continue
        if place == Path("include"):
            for name in [name for name in folders if owned(here / name, prefix / place / name)]:
                shutil.rmtree(here / name)
                link(here / name, prefix / place / name)
                folders.remove(name)
                linked += 1
        for name in files:
            if os.path.lexists(prefix / place / name):
                (here / name).unlink()
                link(here / name, prefix / place / name)
                linked += 1
    return linked


def owned(folder: Path, shared: Path) -> bool:
    """Say whether every file below ``folder`` is also below ``shared``."""
    return shared.is_dir() and all(
        os.path.lexists(shared / path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()
    )


def link(place: Path, target: Path) -> None:
    """Make ``place`` a relative link to ``target``: the environment will be moved."""
    place.symlink_to(os.path.relpath(target, place.parent))


def main(arguments: Sequence[str]) -> int:
    """Run the command line: ``TORCH PREFIX``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("torch", type=Path, help="site-packages/torch")
    parser.add_argument("prefix", type=Path, help="the environment, with libtorch installed")
    options = parser.parse_args(arguments)
    print(f"::megabuild:: shared links={share(options.torch, options.prefix)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
