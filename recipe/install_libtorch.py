"""Copy libtorch's files from PyTorch's own install folder into an environment.

PyTorch installs into ``torch/`` of its source tree. libtorch's libraries, programs, headers and CMake files go to the
usual folders of an environment; all other files stay for the Python package. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from whole_walk import walk

#: libtorch's libraries; the folder also has sources of some.
LIBRARIES = re.compile(r"lib(c10|caffe2_nvrtc|shm|torch)\w*[.\d]*\.(so|dylib)[.\d]*")
PROGRAM = "bin/torch_shm_manager"
#: Folders of CMake files. The other folders belong to vendored libraries, and are in none of upstream's wheels.
CMAKE = ("ATen", "Caffe2", "Tensorpipe", "Torch")
#: Folders of libtorch's own headers; the others (pybind11, …) belong to other packages.
HEADERS = ("ATen", "c10", "caffe2", "tensorpipe", "torch")
#: Folders of which all files are libtorch's.
_FOLDERS = (*(f"share/cmake/{name}/" for name in CMAKE), *(f"include/{name}/" for name in HEADERS))
#: Libraries compiled against one Python, which the ``pytorch`` packages own.
PYTHON_SIDE = ("libtorch_python", "libfunctorch", "libnnapi_backend")
#: A library in two flavours, which have their own packages.
LINALG = "libtorch_cuda_linalg"


def is_libtorch(place: str) -> bool:
    """Return whether libtorch owns a file, named relative to PyTorch's install folder: ``lib/libc10.so``."""
    name = place.rpartition("/")[2]
    if name.startswith(PYTHON_SIDE) or name.endswith(".pyc"):
        return False
    if place == PROGRAM or place.startswith(_FOLDERS):
        return True
    return place.startswith("lib/") and LIBRARIES.fullmatch(place.removeprefix("lib/")) is not None


def libtorch_files(torch: Path) -> Iterator[Path]:
    """Yield libtorch's files below PyTorch's install folder ``torch``, as paths relative to it."""
    for root in ("bin", "include", "lib", "share"):
        for folder, folders, files in walk(torch / root):
            here = Path(folder)
            folders.sort()
            links = [name for name in folders if (here / name).is_symlink()]
            for name in sorted(files + links):
                place = (here / name).relative_to(torch)
                if is_libtorch(place.as_posix()) and not name.startswith(LINALG):
                    yield place


def install(torch: Path, prefix: Path) -> int:
    """Put libtorch's files into ``prefix``, as hard links if possible, and return their number.

    Raises FileNotFoundError: ``torch`` has no libtorch.
    """
    count = 0
    for path in libtorch_files(torch):
        source = torch / path
        target = prefix / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:  # another file system, or one without hard links
            shutil.copy2(source, target, follow_symlinks=False)
        count += 1
    if not any((prefix / "lib").glob("libtorch_cpu.*")):
        raise FileNotFoundError(f"{torch}: no libtorch_cpu in this folder: was the tree built?")
    return count


def main(arguments: Sequence[str]) -> int:
    """Run the command line: ``TREE PREFIX``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "tree", type=Path, help="PyTorch's built source tree, or the folder it was installed into"
    )
    parser.add_argument("prefix", type=Path, help="the environment that gets the files")
    options = parser.parse_args(arguments)
    print(f"::megabuild:: installed files={install(options.tree / 'torch', options.prefix)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
