"""Find, right after configuring and before packing, faults that would otherwise appear hours later or at users.

    check_staged.py downloads BUILD          configuring downloads nothing
    check_staged.py libraries TORCH PREFIX   PyTorch's libraries find theirs in TORCH, in PREFIX or in every system
    check_staged.py import SOURCES TORCH     torch imports, and every symbol that its libraries need is defined

TORCH is PyTorch's install folder, SOURCES its source tree. Run `import` with LD_BIND_NOW=1 and the Python that libtorch
was compiled for. Needs only the standard library and binutils' readelf, which conda's compilers name in READELF.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from whole_walk import walk

#: Scripts by which CMake's ExternalProject and FetchContent download; CMake writes none for sources that exist.
DOWNLOADS = re.compile(r"download-.+\.cmake|.+-gitclone\.cmake")
#: Libraries of the C library, on which packages do not depend, and of GCC, on which all compiled packages depend.
SYSTEM = re.compile(r"lib(c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\+\+)\.so\.\d+|ld-linux[\w-]*\.so\.\d+")
#: Libraries of the GPU's driver, which build and test machines do not have, and not all users.
DRIVER = re.compile(r"lib(cuda|nvidia-ml)\.so(\.\d+)*")
#: PyTorch opens it only when it uses a GPU: it may need the driver.
OPENED_LATER = re.compile(r"libcaffe2_nvrtc\.so.*")
_EXTENSION = "torch._C"
_BESIDE_TORCH = ("torchgen", "functorch")  # further packages of the source tree
NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")


def downloads(build: Path) -> list[str]:
    """Return the scripts in a build folder that download."""
    found: list[str] = []
    for folder, _, names in walk(build):
        found += [os.path.join(folder, name) for name in names if DOWNLOADS.fullmatch(name)]
    return sorted(found)


def binaries(torch: Path) -> list[Path]:
    """Return PyTorch's libraries, Python modules (from 2.13 on, CMake makes _C and _nccl_ep) and programs."""
    candidates = [*torch.glob("lib/*.so*"), *torch.glob("_*.so"), *torch.glob("bin/*")]
    return sorted(filter(is_binary, candidates))


def is_binary(path: Path) -> bool:
    """Return whether a path is an ELF file and no link."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def lacking(torch: Path, prefix: Path) -> Iterator[str]:
    """Yield an error line for each needed library that is missing, and for each that must not be needed."""
    found = binaries(torch)
    if not found:
        yield f"{torch} has no library: was the tree built?"
    for binary in found:
        for name in needed(binary):
            if DRIVER.fullmatch(name):
                if not OPENED_LATER.fullmatch(binary.name):
                    yield f"{binary} needs {name} of the GPU's driver: torch would not import without a driver"
                continue
            exists = (torch / "lib" / name).exists() or (prefix / "lib" / name).exists()
            if not exists and not SYSTEM.fullmatch(name):
                yield f"{binary} needs {name}, which is neither in {torch / 'lib'} nor in {prefix / 'lib'}"


def needed(binary: Path) -> list[str]:
    """Return the names of the libraries that a library or program needs."""
    command = [os.environ.get("READELF", "readelf"), "-dW", str(binary)]
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return NEEDED.findall(done.stdout)


class StagedC:
    """An importer of torch._C before setup.py has built it: it calls libtorch_python, as torch/csrc/stub.c does."""

    def __init__(self, library: Path) -> None:
        self._library = library

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find torch._C only, before Python finds the folder of that name."""
        if name != _EXTENSION:
            return None
        return ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Load the library; an undefined symbol raises an OSError."""
        library = ctypes.PyDLL(str(self._library), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        library.initModule.restype = ctypes.py_object
        module: ModuleType = library.initModule()
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the library has initialised the module."""


def lay_out(sources: Path, torch: Path, view: Path) -> None:
    """Fill ``view`` with links to import torch from: from 2.14 on, libraries and Python files are in two folders."""
    places = {path.name: path for path in (sources / "torch").iterdir()}
    for path in torch.iterdir():
        if path.name in ("lib", "bin") or path.is_file():
            places[path.name] = path
    (view / "torch").mkdir()
    for name, path in places.items():
        (view / "torch" / name).symlink_to(path)
    for name in _BESIDE_TORCH:
        if (sources / name).is_dir():
            (view / name).symlink_to(sources / name)


def broken(sources: Path, torch: Path) -> Iterator[str]:
    """Yield an error line if torch cannot be imported, and for each library or module that cannot be loaded."""
    libraries = [path for path in binaries(torch) if path.parent.name == "lib" or is_for_this_python(path)]
    if not any((torch / f"_C{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
        suffix = "dylib" if sys.platform == "darwin" else "so"
        sys.meta_path.insert(0, StagedC(torch / "lib" / f"libtorch_python.{suffix}"))
    with tempfile.TemporaryDirectory(prefix="staged-torch-") as folder:
        lay_out(sources, torch, Path(folder))
        sys.path.insert(0, folder)
        fault = import_fault()
    if fault:
        yield fault
        return
    for library in libraries:
        if not OPENED_LATER.fullmatch(library.name) and not is_loadable(library):
            yield f"{library} cannot be loaded"


def is_for_this_python(module: Path) -> bool:
    """Return whether the running Python would import a module: the tree may have another Python's, too."""
    return module.name.endswith(EXTENSION_SUFFIXES[0])


def import_fault() -> str:
    """Import torch and use it; return the fault, or an empty string if only another package is missing."""
    try:
        torch = importlib.import_module("torch")
        torch.add(torch.ones(2), torch.ones(2))
    except Exception as error:  # torch's own code may raise any exception
        traceback.print_exc()
        missing = (getattr(error, "name", None) or "").partition(".")[0]
        if not isinstance(error, ModuleNotFoundError) or missing in ("torch", *_BESIDE_TORCH):
            return f"{type(error).__name__}: {error}"
        print(
            f"::megabuild:: torch imports {missing}, which only the package requires: its test will import it"
        )
    return ""


def is_loadable(library: Path) -> bool:
    """Return whether a library can be loaded, in a process of its own: some are flavours of the same library."""
    child = os.fork()
    if child == 0:
        try:
            ctypes.CDLL(str(library), mode=os.RTLD_NOW)
        except OSError as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return status == 0  # neither an exit code nor a signal


class Check(NamedTuple):
    """A check of the command line."""

    find: Callable[..., Iterable[str]]  #: gets the folders, and returns a line for each fault
    fault: str
    remedy: str


CHECKS = {
    "downloads": Check(
        find=downloads,
        fault="CMake would download sources in the build, by these scripts",
        remedy="add the library to recipe.yaml's host requirements, or switch off the feature (build_env.sh)",
    ),
    "libraries": Check(
        find=lacking,
        fault="PyTorch's libraries need libraries that users may not have",
        remedy="add the package with them to recipe.yaml's host requirements, or do not link them",
    ),
    "import": Check(
        find=broken,
        fault="the compiled torch does not work",
        remedy="correct the cause and build again: compiled objects are kept",
    ),
}


def main(arguments: Sequence[str]) -> int:
    """Run the command line: ``CHECK FOLDER…``; return 1 if the check found a fault."""
    name, *words = arguments
    check = CHECKS[name]
    folders = [Path(word).absolute() for word in words]
    problems = list(check.find(*folders))
    if problems:
        lines = "\n  ".join([f"error: {check.fault}:", *problems])
        print(f"{lines}\nhint: {check.remedy}", file=sys.stderr)
        return 1
    print(f"::megabuild:: checked {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
