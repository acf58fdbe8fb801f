"""Make the Python package ``torch`` use the environment's libtorch instead of its own copy.

``take-out`` removes libtorch's files from a ``torch`` folder between building and packing, and lists them: libtorch is
not copied, packed and unpacked for every Python. ``list`` only lists them, for a back end that leaves them out of the
wheel. ``link`` puts relative links to them into the installed folder. A header folder becomes one link, so that a
compiler that finds a header by two paths sees one file; libraries, programs and CMake files are linked one by one.
``libtorch_python`` moves to ``lib/``, where ``TorchConfig.cmake`` looks for it. Standard library only.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from whole_walk import walk

#: Folders of ``torch`` that contain files of libtorch.
SHARED = ("bin", "include", "lib", "share")
#: This library belongs to the Python package, although ``lib/`` has it too.
PYTHON_SIDE = "libtorch_python."
#: A library in two flavours: the package has one link, to the name that both flavours use.
LINALG = "libtorch_cuda_linalg"


def take_out(torch: Path, prefix: Path) -> list[str]:
    """Remove libtorch's files from a ``torch`` folder; parameters and result are those of :func:`shared`."""
    places = shared(torch, prefix)
    for place in places:
        path = torch / place
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    return places


def shared(torch: Path, prefix: Path) -> list[str]:
    """Return the files and whole header folders of a ``torch`` folder that libtorch owns, relative to it.

    `torch`: the built package, ``build/lib.*/torch``, or the folder that CMake installed.
    """
    places: list[str] = []
    for folder, folders, files in walk(torch):
        place = Path(folder).relative_to(torch)
        if not place.parts:
            folders[:] = sorted(set(SHARED).intersection(folders))
            continue
        if place == Path("include"):
            whole = [name for name in folders if owned(torch / place / name, prefix / place / name)]
            folders[:] = sorted(set(folders) - set(whole))
            places += [(place / name).as_posix() for name in whole]
        for name in files:
            if is_shared(place / name, prefix):
                places.append((place / name).as_posix())
    return sorted(places)


def is_shared(place: Path, prefix: Path) -> bool:
    """Return whether libtorch owns a file of ``torch``."""
    if place.name.startswith(PYTHON_SIDE):
        return False
    return place.name.startswith(LINALG) or os.path.lexists(prefix / place)


def owned(folder: Path, shared: Path) -> bool:
    """Return whether every file below ``folder`` is also below ``shared``."""
    if not shared.is_dir():
        return False
    for here, _, names in walk(folder):
        place = shared / Path(here).relative_to(folder)
        if not all(os.path.lexists(place / name) for name in names):
            return False
    return True


def link(torch: Path, prefix: Path, places: Iterable[str]) -> int:
    """Link ``places``, and ``libtorch_python``, from an installed ``torch`` folder into the environment.

    Returns: The number of links.
    Raises FileNotFoundError: ``torch`` has no ``libtorch_python``.
    Raises FileExistsError: A file is in the place of a link.
    """
    linked = [place for place in places if f"/{LINALG}" not in place or place.endswith(f"/{LINALG}.so")]
    linked += move_python_side(torch, prefix)
    for place in linked:
        (torch / place).parent.mkdir(parents=True, exist_ok=True)
        # relative, because the environment will be moved
        (torch / place).symlink_to(os.path.relpath(prefix / place, (torch / place).parent))
    return len(linked)


def move_python_side(torch: Path, prefix: Path) -> list[str]:
    """Move ``libtorch_python`` into the environment; return its former places, relative to ``torch``."""
    libraries = sorted((torch / "lib").glob(f"{PYTHON_SIDE}*"))
    if not libraries:
        raise FileNotFoundError(f"{torch / 'lib'}: no libtorch_python: the Python side was not built")
    kept: list[Path] = []
    for library in sorted(libraries, key=lambda path: -len(path.name)):
        home = prefix / "lib" / library.name
        # a wheel cannot contain links: libtorch_python.so.2 and libtorch_python.so are copies in it
        originals = [other for other in kept if filecmp.cmp(other, library, shallow=False)]
        if originals:
            library.unlink()
            home.unlink(missing_ok=True)
            home.symlink_to(originals[0].name)
        else:
            shutil.move(library, home)
            kept.append(home)
    return [library.relative_to(torch).as_posix() for library in libraries]


#: The actions: one that links, and those that list.
_LINK = "link"
_LISTERS = {"take-out": take_out, "list": shared}


def main(arguments: Sequence[str]) -> int:
    """Run the command line: ``take-out|list|link TORCH PREFIX LIST``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("action", choices=(*_LISTERS, _LINK))
    parser.add_argument("torch", type=Path, help="the package's folder")
    parser.add_argument("prefix", type=Path, help="the environment, with libtorch installed")
    parser.add_argument("list", type=Path, help="file that lists libtorch's files, one a line")
    options = parser.parse_args(arguments)
    if options.action == _LINK:
        links = link(options.torch, options.prefix, options.list.read_text().splitlines())
        print(f"::megabuild:: shared links={links}")
    else:
        places = _LISTERS[options.action](options.torch, options.prefix)
        options.list.write_text("".join(f"{place}\n" for place in places))
        print(f"::megabuild:: taken-out places={len(places)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
