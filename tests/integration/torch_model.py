"""A model of PyTorch and of its extensions, for tests of what installs them and looks into them.

The libraries are really compiled and linked. Those with device code carry a section ``.nv_fatbin`` in CUDA's format
with an entry for each arch; what is in such an entry nobody runs. ``import torch`` and the extensions load them.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from cuda_code.kernels import KERNELS

TORCH, CUDA = "2.13.0", "13.0"
_LIBRARIES = ("c10", "torch", "torch_cpu", "torch_python", "c10_cuda", "torch_cuda")
_RUNTIME = "libcudart.so.13"

_HEADERS = (
    "cub/version.cuh", "cublas_v2.h", "cuda_profiler_api.h", "curand_kernel.h", "cusolverDn.h", "cusparse.h",
)  # fmt: skip
_NVCC = """\
#!/bin/sh
case "$1" in
--version) echo "Cuda compilation tools, release {version}, V{version}.88"; exit ;;
--dryrun) echo "#$ _HERE_={home}/bin" >&2; echo "#$ TOP={home}/bin/.." >&2; exit ;;
esac
for word; do
    case "$word" in
    *.cu) input="$word" ;;
    *compute_45*) echo "nvcc fatal   : Unsupported gpu architecture 'compute_45'" >&2; exit 1 ;;
    esac
    output="$word"
done
exec g++ -x c++ -D__global__= -I{home}/include -c "$input" -o "$output"
"""
_INIT = """\
import ctypes, glob, os
from types import SimpleNamespace
from torch import version
__version__ = version.__version__
cuda = SimpleNamespace(is_available=lambda: False)
for _path in sorted(glob.glob(os.path.join(os.path.dirname(__file__), "lib", "*.so*"))):
    ctypes.CDLL(_path, ctypes.RTLD_GLOBAL)
class _Ops:
    def load_library(self, path):
        setattr(self, os.path.basename(os.path.dirname(path)), ctypes.CDLL(path))
ops = _Ops()
"""
_CPP_EXTENSION = """\
import os
import setuptools
from setuptools.command.build_ext import build_ext
_LIB = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib")
class BuildExtension(build_ext):
    @classmethod
    def with_options(cls, **options):
        class Made(cls):
            def __init__(self, *args, **kwargs):
                kwargs.update(options)
                super().__init__(*args, **kwargs)
        return Made
    def __init__(self, *args, **kwargs):
        self.use_ninja = kwargs.pop("use_ninja", True)
        kwargs.pop("no_python_abi_suffix", None)
        super().__init__(*args, **kwargs)
        assert self.use_ninja, "the slow way"
    def build_extension(self, extension):
        super().build_extension(extension)
        status = os.environ.get("NINJA_STATUS", "")  # as ninja would say it
        print(status.replace("%f", "1").replace("%t", "1").replace("%e", "0.1") + "cc", flush=True)
    def get_ext_filename(self, name):
        return name.replace(".", os.sep) + ".so"
def extension(name, sources, cuda):
    links = ["-Wl,--no-as-needed", "-L" + _LIB, "-lc10", "-ltorch", "-ltorch_cpu"]
    links += ["-lc10_cuda", "-ltorch_cuda", "-l:libcudart.so.13"] if cuda else []
    return setuptools.Extension(name, sources, extra_link_args=links)
"""
_MODULE = """\
import glob, os, torch
for path in sorted(glob.glob(os.path.join(os.path.dirname(__file__), "_version_c*.so"))):
    torch.ops.load_library(path)
"""
_SETUP = """\
import os, sys
sys.path.insert(0, os.getcwd())
from setuptools import setup
from torch.utils import cpp_extension
from model import NAME, STEMS, source
cuda = os.environ.get("FORCE_CUDA") == "1"
archs = os.environ.get("TORCH_CUDA_ARCH_LIST", "").split(";") if cuda else []
modules = []
for stem, kernels in STEMS.items():
    path = "csrc_" + stem + ".c"
    open(path, "w").write(source(archs if kernels else [], cuda))
    modules.append(cpp_extension.extension(f"{NAME}._{stem}_{'cuda' if cuda else 'cpu'}", [path], cuda))
setup(name=NAME, version="VERSION", packages=[NAME], ext_modules=modules,
      cmdclass={"build_ext": cpp_extension.BuildExtension.with_options(no_python_abi_suffix=True, use_ninja=False)})
"""


def fatbin(archs: Sequence[str]) -> bytes:
    """One translation unit's device code for archs such as ``9.0`` and ``12.0+PTX``."""
    entries = b""
    for arch in archs:
        number = int(arch.removesuffix("+PTX").replace(".", ""))
        for kind in (2, 1) if arch.endswith("+PTX") else (2,):
            entries += struct.pack("<HHIQ12xII28x", kind, 0x101, 64, 8, number, 0) + b"model!!!"
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def source(archs: Sequence[str], cuda: bool) -> str:
    """C of an extension's library."""
    runtime = int(CUDA.replace(".", "")) * 100
    text = f"int cuda_version(void) {{ return {runtime if cuda else -1}; }}\n"
    if not cuda:
        text += 'const char *refusal(void) { return "Not compiled with CUDA support"; }\n'
    if archs:
        values = ",".join(map(str, fatbin(archs)))
        text += f'__asm__(".section .nv_fatbin,\\"a\\"\\n.balign 8\\n.byte {values}\\n.previous\\n");\n'
    return text


def make_torch(site: Path, cuda: str | None = CUDA) -> None:
    """Put the model of PyTorch into an environment's site-packages."""
    package = site / "torch"
    (package / "lib").mkdir(parents=True)
    (package / "utils").mkdir()
    (package / "utils" / "__init__.py").touch()
    (package / "utils" / "cpp_extension.py").write_text(_CPP_EXTENSION)
    (package / "__init__.py").write_text(_INIT)
    version = TORCH + ("+cu" + cuda.replace(".", "") if cuda else "+cpu")
    (package / "version.py").write_text(f"__version__ = {version!r}\ncuda = {cuda!r}\nhip = None\n")
    info = site / f"torch-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    for name in [f"lib{library}.so" for library in _LIBRARIES] + [_RUNTIME]:
        if cuda or "cuda" not in name:
            path = package / "lib" / name
            _link("int model;\n", path, f"-Wl,-soname,{name}")


def make_nvcc(home: Path) -> None:
    """Put a toolkit into a folder: headers with nothing in them, and an nvcc whose C++ is what g++ makes of it."""
    for name in _HEADERS:
        (home / "include" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "include" / name).touch()
    number = int(CUDA.replace(".", "")) * 100
    (home / "include" / "cuda_runtime.h").write_text(f"#define CUDART_VERSION {number}\n")
    (home / "bin").mkdir()
    (home / "bin" / "nvcc").write_text(_NVCC.format(home=home, version=CUDA))
    (home / "bin" / "nvcc").chmod(0o755)


def libraries(
    name: str, folder: Path, torch: Path, archs: Sequence[str], *, cuda: bool = True
) -> dict[str, bytes]:
    """Compile an extension's libraries; returns the files of its wheel."""
    folder.mkdir(parents=True)
    files = {f"{name}/__init__.py": _MODULE.encode()}
    links = ["-Wl,--no-as-needed", f"-L{torch / 'lib'}", "-lc10", "-ltorch", "-ltorch_cpu"]
    links += ["-lc10_cuda", "-ltorch_cuda", f"-l:{_RUNTIME}"] if cuda else []
    for stem, has_kernels in stems(name).items():
        file_name = f"_{stem}_{'cuda' if cuda else 'cpu'}.so"
        _link(source(archs if has_kernels and cuda else (), cuda), folder / file_name, *links)
        files[f"{name}/{file_name}"] = (folder / file_name).read_bytes()
    return files


def stems(name: str) -> dict[str, bool]:
    """The libraries of an extension, and whether they have device code."""
    module = KERNELS[name]
    return {stem: stem in module.kernels for stem in sorted(module.kernels | module.plain)}


def make_sdist(name: str, version: str, folder: Path, *, broken: bool = False) -> Path:
    """Write an sdist of an extension, whose setup.py is built like upstream's; a broken one does not compile."""
    root = folder / f"{name}-{version}"
    (root / name).mkdir(parents=True)
    (root / name / "__init__.py").write_text(_MODULE)
    (root / "setup.py").write_text(_SETUP.replace("VERSION", version))
    (root / "csrc").mkdir()
    (root / "csrc" / "version.cpp").write_text("// upstream's sources are here\n")
    (root / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    # what makes the C source, as it is here
    text = Path(__file__).read_text().replace("from cuda_code.kernels import KERNELS\n", "")
    made = "int broken = ;\n" if broken else ""
    text += f"\n\nNAME = {name!r}\nSTEMS = {stems(name)!r}\n_sound = source\n"
    text += f"def source(archs, cuda):\n    return _sound(archs, cuda) + {made!r}\n"
    (root / "model.py").write_text(text)
    archive = folder / f"{root.name}.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(root, root.name)
    return archive


def _link(text: str, target: Path, *options: str) -> None:
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", *options, "-o", str(target)]
    done = subprocess.run(command, input=text, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"the model does not compile: {done.stderr}")
