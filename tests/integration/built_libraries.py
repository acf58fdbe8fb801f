"""Libraries really built for tests: against official torch wheels, with NVIDIA's compiler from PyPI.

Everything is kept between runs in the user's cache folder, by what it was made of. Only wheels are fetched: no
interpreter of the torch's Python is needed, since nothing is run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from platformdirs import user_cache_path

SOURCES = Path(__file__).resolve().parent.parent / "data" / "verify"
_CUDA_TOOLKIT = ("cuda-toolkit[nvcc,cccl,crt,nvvm,cudart]==13.0.3.0", "nvidia-cuda-cuobjdump==13.5.37")
# upstream names every library that it may need; not every compiler keeps what it does
_CXX = ("g++", "-std=c++20", "-O1", "-shared", "-fPIC", "-s", "-Wl,--no-as-needed")
_UNPACKED = (
    "torch/include/", "torch/lib/", "torch/share/", "torch/utils/cpp_extension.py", "torch/version.py", ".dist-info/",
)  # fmt: skip


@dataclass(frozen=True)
class Cuda:
    """NVIDIA's compiler, in a folder of the cache."""

    home: Path

    def fatbin_library(self, name: str, *flags: str) -> Path:
        """Compile kernel.cu alone into a shared library, and return it."""
        # the last one counts: flags may ask for the static runtime, which relocatable code is linked with
        runtime = [] if "-cudart" in flags else ["-cudart", "none"]
        nvcc = [f"{self.home}/bin/nvcc", "-shared", "-Xcompiler", "-fPIC", *self._runtime(), *runtime]
        made = f"fatbins/{name}.so"
        return _compiled(made, SOURCES / "kernel.cu", flags, *nvcc, "-Wno-deprecated-gpu-targets", *flags)

    def object(self, *archs: str) -> Path:
        """Compile kernel.cu for architectures such as 90 and 120, and return the object."""
        codes = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs]
        nvcc = [f"{self.home}/bin/nvcc", "-c", "-Xcompiler", "-fPIC", "--compress-mode=size"]
        return _compiled(f"fatbins/{'-'.join(archs)}.o", SOURCES / "kernel.cu", archs, *nvcc, *codes)

    def _runtime(self) -> list[str]:
        folder = _cached("fatbins/runtime", None, ()).parent
        link = folder / "libcudart.so"  # wheels have the versioned name only
        if not link.is_symlink():
            link.symlink_to(self.home / "lib" / "libcudart.so.13")
        return [f"-L{self.home / 'lib'}", f"-L{folder}", "-lcudart"]

    @property
    def runtime(self) -> Path:
        """The CUDA runtime library."""
        return self.home / "lib" / "libcudart.so.13"

    @property
    def cuobjdump(self) -> Path:
        """NVIDIA's own reader of device code."""
        return self.home / "bin" / "cuobjdump"


@dataclass(frozen=True)
class Torch:
    """An official torch wheel, unpacked as an environment has it."""

    prefix: Path
    site_packages: Path

    def build(self, name: str, *flags: str, linked: Iterable[Path] = ()) -> Path:
        """Compile operator.cpp against this torch, link it to more, and return the library."""
        more = [str(path) for path in linked]
        torch = self.site_packages / "torch"
        includes = [f"-I{torch / 'include'}", f"-I{torch / 'include/torch/csrc/api/include'}"]
        libraries = [f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10", "-Wl,--allow-shlib-undefined"]
        texts, options = [*_CXX, *flags, *more, str(self.site_packages)], [*_CXX, *flags, *includes]
        name = f"libraries/{name}.so"
        return _compiled(name, SOURCES / "operator.cpp", texts, *options, more=[*more, *libraries])


def torch_wheel(requirement: str, python: str) -> Torch:
    """Fetch a torch wheel and unpack it, once; skip the test where it cannot be had."""
    named = f"torch/{requirement.replace('==', '-')}-py{python}"
    prefix = _cached(named, None, (requirement, python, *_UNPACKED))
    site = prefix / "lib" / f"python{python}" / "site-packages"
    if not prefix.exists():
        work = _fresh(prefix)
        options = f"-q --no-deps --only-binary=:all: --platform=manylinux_2_28_{os.uname().machine}"
        command = [sys.executable, "-m", "pip", "download", *options.split()]
        _fetch([*command, f"--python-version={python}", "-d", str(work / "wheel"), requirement])
        (wheel,) = (work / "wheel").glob("torch-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if any(part in name for part in _UNPACKED)]
            archive.extractall(work / site.relative_to(prefix), names)
        shutil.rmtree(work / "wheel")
        work.rename(prefix)
    return Torch(prefix=prefix, site_packages=site)


def cuda() -> Cuda:
    """Fetch NVIDIA's compiler, once; skip the test where it cannot be had."""
    folder = _cached("cuda-13.0", None, _CUDA_TOOLKIT)
    if not folder.exists():
        work = _fresh(folder)
        _fetch([sys.executable, "-m", "pip", "install", "-q", "--target", str(work), *_CUDA_TOOLKIT])
        work.rename(folder)
    home = folder / "nvidia" / "cu13"
    for program in (home / "bin").iterdir():
        if program.is_file():
            program.chmod(0o755)
    return Cuda(home=home)


def _cached(name: str, source: Path | None, texts: Sequence[str]) -> Path:
    """Return a path of the cache that is another one for other contents."""
    digest = hashlib.sha256("\0".join(texts).encode())
    if source is not None:
        digest.update(source.read_bytes())
    base = user_cache_path("megabuild") / "tests" / "verify"
    path = base / Path(name).parent / digest.hexdigest()[:12] / Path(name).name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _fresh(target: Path) -> Path:
    work = target.with_name(f"{target.name}.part")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    return work


def _fetch(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"not to be had: {command[-1]}: {(done.stderr.strip().splitlines() or [''])[-1]}")


def _compiled(name: str, source: Path, texts: Sequence[str], *command: str, more: Sequence[str] = ()) -> Path:
    """Compile a source, once for its content and these texts, and return the compiled file."""
    made = _cached(name, source, texts)
    if not made.exists():
        part = made.with_name(f"part-{made.name}")
        words = [*command, "-o", str(part), str(source), *more]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stderr}"
        part.replace(made)
    return made
