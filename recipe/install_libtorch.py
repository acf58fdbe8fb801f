"""Lay what belongs to libtorch from PyTorch's own install folder into an environment.

PyTorch installs into ``torch/`` of its source tree; libtorch's part of that (libraries, programs, headers, CMake files)
goes to the usual places of an environment, the rest stays for the Python package. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

#: Libraries, which lie beside the sources of some of them.
LIBRARIES = re.compile(r"lib(c10|caffe2_nvrtc|shm|torch)\w*[.\d]*\.(so|dylib)[.\d]*")
PROGRAM = "bin/torch_shm_manager"
#: CMake files: other folders are of libraries that PyTorch vendors, and are in none of upstream's wheels.
CMAKE = ("ATen", "Caffe2", "Tensorpipe", "Torch")
#: Header folders of libtorch itself; others (pybind11, …) have packages of their own.
HEADERS = ("ATen", "c10", "caffe2", "tensorpipe", "torch")
#: Compiled against one Python: owned by the ``pytorch`` packages.
PYTHON_SIDE = ("libtorch_python", "libfunctorch", "libnnapi_backend")
#: In two flavours, each a package of its own.
LINALG = "libtorch_cuda_linalg"


def is_libtorch(place: str) -> bool:
    """Say whether libtorch has a file of PyTorch's install folder, named relative to it: ``lib/libc10.so``."""
    top, _, inside = place.partition("/")
    name = place.rpartition("/")[2]
    if name.startswith(PYTHON_SIDE) or name.endswith(".pyc"):
        return False
    if top == "lib":
        return LIBRARIES.fullmatch(inside) is not None
    if top == "share":
        return inside.startswith(tuple(f"cmake/{folder}/" for folder in CMAKE))
    return place == PROGRAM or (
        top == "include" and inside.startswith(tuple(f"{folder}/" for folder in HEADERS))
    )


def libtorch_files(torch: Path) -> Iterator[Path]:
    """Give libtorch's files below PyTorch's install folder ``torch``, as paths relative to it."""
    for root in ("bin", "include", "lib", "share"):
        for folder, folders, files in os.walk(torch / root):
            here = Path(folder)
            folders.sort()
            for name in sorted(files + [f for f in folders if (here / f).is_symlink()]):
                place = (here / name).relative_to(torch)
                if is_libtorch(place.as_posix()) and not name.startswith(LINALG):
                    yield place


def install(torch: Path, prefix: Path) -> int:
    """Put libtorch's files into ``prefix``, as hard links where the file system allows it.

    Raises FileNotFoundError: If there is no libtorch to install.
    """
    count = 0
    for path in libtorch_files(torch):
        source, target = torch / path, prefix / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:  # another file system, or one without hard links
            shutil.copy2(source, target, follow_symlinks=False)
        count += 1
    if not any((prefix / "lib").glob("libtorch_cpu.*")):
        raise FileNotFoundError(f"{torch} holds no libtorch_cpu: was the tree built?")
    return count


def main(arguments: Sequence[str]) -> int:
    """Run the command line: ``TREE PREFIX``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "tree", type=Path, help="PyTorch's source tree, built, or what it was installed below"
    )
    parser.add_argument("prefix", type=Path, help="the environment")
    options = parser.parse_args(arguments)
    print(f"::megabuild:: installed files={install(options.tree / 'torch', options.prefix)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
