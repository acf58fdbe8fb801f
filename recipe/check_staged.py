"""Say right after configuring, and before anything is packed, what would else be found after hours, or by users.

    check_staged.py downloads BUILD          configuring took nothing from the network
    check_staged.py libraries TORCH PREFIX   what PyTorch's libraries need is beside them, in PREFIX or in every system
    check_staged.py import SOURCES TORCH     torch imports, and every symbol of its libraries is somewhere

TORCH is PyTorch's install folder, SOURCES its source tree. The last is for the Python that libtorch was compiled
against, with LD_BIND_NOW=1. Standard library and binutils' readelf only, which conda's compilers name in READELF.
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
from collections.abc import Iterator, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from types import ModuleType

#: What ExternalProject and FetchContent write to download with; not for sources that are there.
DOWNLOADS = re.compile(r"download-.+\.cmake|.+-gitclone\.cmake")
#: The C library's, which is no dependency of packages, and GCC's, which all that is compiled depends on.
SYSTEM = re.compile(r"lib(c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\+\+)\.so\.\d+|ld-linux[\w-]*\.so\.\d+")
#: Of the GPU's driver: there is none where packages are built and tested, and not everybody has one.
DRIVER = re.compile(r"lib(cuda|nvidia-ml)\.so(\.\d+)*")
#: Opened when a GPU is used; may need its driver.
OPENED_LATER = re.compile(r"libcaffe2_nvrtc\.so.*")
NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")


def downloads(build: Path) -> list[str]:
    """Return the scripts in a build folder that download."""
    places = (Path(folder, name) for folder, _, names in os.walk(build) for name in names)
    return sorted(str(place) for place in places if DOWNLOADS.fullmatch(place.name))


def binaries(torch: Path) -> list[Path]:
    """Return PyTorch's libraries, Python's modules among them, and programs."""
    found = [*torch.glob("lib/*.so*"), *torch.glob("_C*.so"), *torch.glob("bin/*")]
    return sorted(
        path
        for path in found
        if not path.is_symlink() and path.is_file() and path.open("rb").read(4) == b"\x7fELF"
    )


def lacking(torch: Path, prefix: Path) -> Iterator[str]:
    """Yield a line for each library that is asked for and is nowhere, or must not be asked for."""
    for binary in binaries(torch):
        command = [os.environ.get("READELF", "readelf"), "-dW", str(binary)]
        printed = subprocess.run(
            command, env={**os.environ, "LC_ALL": "C"}, check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        for name in NEEDED.findall(printed):
            if DRIVER.fullmatch(name):
                if not OPENED_LATER.fullmatch(binary.name):
                    yield f"{binary} needs {name}, the GPU's driver: torch would not import without one"
            elif not SYSTEM.fullmatch(name) and not any(
                (place / "lib" / name).exists() for place in (torch, prefix)
            ):
                yield f"{binary} needs {name}, which is neither beside it nor in {prefix / 'lib'}"


class StagedC:
    """Makes torch._C where setup.py has not yet: by a call of libtorch_python, as torch/csrc/stub.c does it."""

    def __init__(self, library: Path) -> None:
        self._library = library

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Answer for torch._C alone, before Python finds the folder of that name."""
        return ModuleSpec(name, self) if name == "torch._C" else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Load the library; a symbol that nobody has is an ImportError here."""
        library = ctypes.PyDLL(str(self._library), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
        library.initModule.restype = ctypes.py_object
        module: ModuleType = library.initModule()
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is left to do."""


def lay_out(sources: Path, torch: Path, view: Path) -> None:
    """Link a folder to import from: from 2.14 on what is compiled is installed elsewhere than Python's files lie."""
    places = {f"torch/{path.name}": path for path in (sources / "torch").iterdir()}
    places |= {
        f"torch/{path.name}": path
        for path in torch.iterdir()
        if path.name in ("lib", "bin") or path.is_file()
    }
    places |= {name: sources / name for name in ("torchgen", "functorch") if (sources / name).is_dir()}
    (view / "torch").mkdir()
    for name, path in places.items():
        (view / name).symlink_to(path)


def broken(sources: Path, torch: Path) -> Iterator[str]:
    """Yield what cannot be loaded: torch itself, or a library that it opens later."""
    libraries = [path for path in binaries(torch) if path.parent.name == "lib"]
    if not any((torch / f"_C{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
        suffix = "dylib" if sys.platform == "darwin" else "so"
        sys.meta_path.insert(0, StagedC(torch / "lib" / f"libtorch_python.{suffix}"))
    with tempfile.TemporaryDirectory(prefix="staged-torch-") as folder:
        lay_out(sources, torch, Path(folder))
        sys.path.insert(0, folder)
        try:
            imported = importlib.import_module("torch")
            imported.add(imported.ones(2), imported.ones(2))
        except Exception as error:  # whatever torch's own code raises
            traceback.print_exc()
            missing = (getattr(error, "name", None) or "").partition(".")[0]
            if not isinstance(error, ModuleNotFoundError) or missing in ("torch", "torchgen", "functorch"):
                yield f"{type(error).__name__}: {error}"
                return
            print(
                f"::megabuild:: torch imports {missing}, which only the package asks for: its test will see"
            )
    for library in libraries:
        if OPENED_LATER.fullmatch(library.name):
            continue
        if (child := os.fork()) == 0:  # each in a process of its own: some are flavours of one
            try:
                ctypes.CDLL(str(library), mode=os.RTLD_NOW)
            except OSError as error:
                print(error, file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            yield f"{library} cannot be loaded"


def main(arguments: Sequence[str]) -> int:
    """Run the command line: CHECK FOLDER…; see above."""
    check, *folders = arguments[0], *(Path(folder).absolute() for folder in arguments[1:])
    if check == "downloads":
        problems = downloads(*folders)
        what = "CMake downloads what is neither in the sources nor in the environment, by"
        remedy = "name it in recipe.yaml's host requirements, or switch off what asks for it (build_env.sh)"
    elif check == "libraries":
        problems = list(lacking(*folders))
        what = "what would be packed asks for libraries that those who install it need not have"
        remedy = "name the package with them in recipe.yaml's host requirements, or keep the linker from them"
    else:
        problems = list(broken(*folders))
        what = "torch as it was compiled cannot be used"
        remedy = "correct the cause and build again: what is compiled is kept"
    if problems:
        print("\n  ".join([f"error: {what}:", *problems]) + f"\n{remedy}", file=sys.stderr)
    else:
        print(f"::megabuild:: checked {check}")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
