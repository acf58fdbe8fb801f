"""Lay what belongs to libtorch from PyTorch's own install folder into an environment.

PyTorch installs into ``torch/`` of its source tree; libtorch's part of that (libraries, programs, headers, CMake files)
goes to the usual places of an environment, the rest stays for the Python package. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

#: Header folders of libtorch itself; others (pybind11, …) have packages of their own.
HEADERS = ("ATen", "c10", "caffe2", "tensorpipe", "torch")
#: Compiled against one Python: owned by the ``pytorch`` packages.
PYTHON_SIDE = ("libtorch_python", "libfunctorch", "libnnapi_backend")
#: In two flavours, each a package of its own.
LINALG = "libtorch_cuda_linalg"


def libtorch_files(torch: Path) -> Iterator[Path]:
    """Give libtorch's files below PyTorch's install folder ``torch``, as paths relative to it."""
    roots = [torch / "bin", torch / "lib", torch / "share", *(torch / "include" / name for name in HEADERS)]
    for root in roots:
        for folder, folders, files in os.walk(root):
            here = Path(folder)
            folders.sort()
            for name in sorted(files + [f for f in folders if (here / f).is_symlink()]):
                if name.startswith((*PYTHON_SIDE, LINALG)) or name.endswith(".pyc"):
                    continue
                yield (here / name).relative_to(torch)


def install(torch: Path, prefix: Path) -> int:
    """Put libtorch's files into ``prefix``, as hard links where the file system allows it.

    Parameters
    ----------
    torch:
        PyTorch's install folder, ``torch/`` in its source tree.
    prefix:
        The environment.

    Returns
    -------
    int
        Number of files.

    Raises
    ------
    FileNotFoundError
        If there is no libtorch to install.
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
