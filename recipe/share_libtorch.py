"""Make the package ``torch`` use the libtorch that lies in the environment instead of a copy of its own.

``take-out`` removes what libtorch owns from a ``torch`` folder and notes it: done between building and packing, it
spares copying, packing and unpacking all of libtorch for every Python. ``list`` only notes it, for a back end that
keeps it out of the wheel. ``link`` puts relative links into the installed folder instead: header folders as a whole, so
that a compiler that meets a header on both ways sees one file; libraries, programs and CMake files one by one, among
those that stay. ``libtorch_python`` also goes to ``lib/``, where ``TorchConfig.cmake`` looks for it. Standard library
only.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

#: Folders of ``torch`` that libtorch has a part in.
SHARED = ("bin", "include", "lib", "share")
#: The one library that belongs to the Python, wherever it is found.
PYTHON_SIDE = "libtorch_python."
#: Which of its flavours is installed is not this package's affair: one link, to the name that both have.
LINALG = "libtorch_cuda_linalg"


def take_out(torch: Path, prefix: Path) -> list[str]:
    """Remove what libtorch owns from a ``torch`` folder; parameters and result as of :func:`shared`."""
    places = shared(torch, prefix)
    for place in places:
        if (torch / place).is_dir() and not (torch / place).is_symlink():
            shutil.rmtree(torch / place)
        else:
            (torch / place).unlink()
    return places


def shared(torch: Path, prefix: Path) -> list[str]:
    """Give what libtorch owns of a ``torch`` folder.

    `torch`: the built package, ``build/lib.*/torch``, or what was installed in its place.
    """
    places = []
    for folder, folders, files in os.walk(torch):
        here = Path(folder)
        place = here.relative_to(torch)
        if not place.parts:
            folders[:] = [name for name in SHARED if name in folders]
            continue
        if place == Path("include"):
            whole = [name for name in folders if owned(here / name, prefix / place / name)]
            folders[:] = [name for name in folders if name not in whole]
            places += [(place / name).as_posix() for name in whole]
        for name in files:
            ours = name.startswith(PYTHON_SIDE)
            if not ours and (name.startswith(LINALG) or os.path.lexists(prefix / place / name)):
                places.append((place / name).as_posix())
    return sorted(places)


def owned(folder: Path, shared: Path) -> bool:
    """Say whether every file below ``folder`` is also below ``shared``."""
    return shared.is_dir() and all(
        os.path.lexists(shared / path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()
    )


def link(torch: Path, prefix: Path, places: Iterable[str]) -> int:
    """Link what was taken out, and ``libtorch_python``, from an installed ``torch`` folder into the environment.

    Raises FileNotFoundError: If ``torch`` has no ``libtorch_python``.
    Raises FileExistsError: If something lies where a link belongs.
    """
    python_side = sorted((torch / "lib").glob(f"{PYTHON_SIDE}*"))
    if not python_side:
        raise FileNotFoundError(f"no libtorch_python in {torch / 'lib'}: the Python side was not built")
    linked = [
        place
        for place in places
        if not Path(place).name.startswith(LINALG) or place.endswith(f"/{LINALG}.so")
    ]
    kept: list[Path] = []
    for library in sorted(python_side, key=lambda path: -len(path.name)):
        home = prefix / "lib" / library.name
        # a wheel cannot hold links: libtorch_python.so.2 and libtorch_python.so come out of it as copies
        original = next((other for other in kept if filecmp.cmp(other, library, shallow=False)), None)
        if original is None:
            shutil.move(library, home)
            kept.append(home)
        else:
            library.unlink()
            home.unlink(missing_ok=True)
            home.symlink_to(original.name)
        linked.append(library.relative_to(torch).as_posix())
    for place in linked:
        (torch / place).parent.mkdir(parents=True, exist_ok=True)
        # relative: the environment will be moved
        (torch / place).symlink_to(os.path.relpath(prefix / place, (torch / place).parent))
    return len(linked)


def main(arguments: Sequence[str]) -> int:
    """Run the command line: ``take-out|list|link TORCH PREFIX LIST``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("action", choices=("take-out", "list", "link"))
    parser.add_argument("torch", type=Path, help="the package's folder")
    parser.add_argument("prefix", type=Path, help="the environment, with libtorch installed")
    parser.add_argument("list", type=Path, help="file that holds what libtorch owns, a line each")
    options = parser.parse_args(arguments)
    if options.action == "link":
        links = link(options.torch, options.prefix, options.list.read_text().splitlines())
        print(f"::megabuild:: shared links={links}")
    else:
        places = (take_out if options.action == "take-out" else shared)(options.torch, options.prefix)
        options.list.write_text("".join(f"{place}\n" for place in places))
        print(f"::megabuild:: taken-out places={len(places)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
