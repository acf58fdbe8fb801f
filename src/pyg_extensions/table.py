"""The table of PyTorch Geometric's extensions: names, sources, kinds and costs.

:mod:`cuda_code.kernels`, which is part of packages' tests, describes their libraries. ``conda_build_config.yaml`` has
their versions and hashes, under keys that begin with :attr:`Extension.key`.

CPU seconds hold for g++ 12 and PyTorch 2.13. ``benchmarks/pyg.py`` measured C++; pyg-lib was measured in a run of
``linux_64_cuda130_wheel``. A .cu file took 80 s for two GPU architectures, and 25 s for each further one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

from cuda_code.kernels import KERNELS
from groundwork.errors import UsageError
from groundwork.names import accelerator
from groundwork.text import suggest
from pyg_extensions.recipe_files import variant_file

_SECONDS_PER_CUDA_FILE = 30
_SECONDS_PER_ARCH = 25
_NO_ARCH = ("", "None")  # in the lists of configs without CUDA

Variant = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """Sources that are a git repository with submodules."""

    key: str  #: the variant key that names a local folder with them
    folders: tuple[str, ...]  #: names that the checkout may have in the user's folder of sources
    repository: str  #: used if there is no local folder

    def within(self, folder: Path) -> Path | None:
        """Return the checkout in a folder of sources, if it has one."""
        for name in self.folders:
            if (folder / name).is_dir():
                return folder / name
        return None


@dataclass(frozen=True, kw_only=True)
class Extension:
    """One extension of PyTorch Geometric."""

    conda: str  #: the conda package, and the folder of its recipe: ``pytorch_scatter``
    name: str  #: of the distribution and of the Python module: ``torch_scatter``
    key: str  #: prefix of its keys in conda_build_config.yaml: ``pyg_scatter``
    repository: str  #: upstream's
    cpp_seconds: int  #: CPU seconds of compiling its C++ for one Python with an empty object cache
    cuda_files: int  #: number of files that nvcc compiles
    #: whether upstream publishes source archives; if not, the sources are only in a checkout
    has_sdist: bool = True
    uses_cmake: bool = False  #: whether its setup.py runs CMake
    #: sources that come as a git checkout: all of pyg-lib, and METIS for torch_sparse
    checkout: Checkout | None = None

    @property
    def short_name(self) -> str:
        """``scatter``, which users may write for it."""
        return self.key.removeprefix("pyg_")

    @property
    def git(self) -> str:
        """The address for ``git clone``."""
        return f"{self.repository}.git"

    @property
    def git_key(self) -> str:
        """The variant key that names a repository to build from in place of an archive."""
        return f"{self.key}_git"

    def checkout_within(self, folder: Path) -> Path | None:
        """Return the checkout of the extension itself in a folder of sources, if it has one."""
        for name in (self.conda, self.name):
            if (folder / name / "setup.py").is_file():
                return folder / name
        return None

    def able(self, archs: Sequence[str]) -> tuple[str, ...]:
        """Return those of the GPU architectures that it can be compiled for."""
        oldest = float(KERNELS[self.name].oldest)
        return tuple(arch for arch in archs if _number(arch) >= oldest)

    def cpu_seconds(self, archs: int) -> int:
        """Return the CPU seconds of compiling it for one Python and this number of GPU architectures (CPU: 0)."""
        if not archs:
            return self.cpp_seconds
        per_file = _SECONDS_PER_CUDA_FILE + _SECONDS_PER_ARCH * archs
        return self.cpp_seconds + self.cuda_files * per_file


def _number(arch: str) -> float:
    """Return 9.0 for ``9.0``, ``9.0a`` and ``9.0+PTX``."""
    return float(arch.partition("+")[0].rstrip("af"))


#: The registry: a new extension is a row here and a recipe. ``test_extensions_sources.py`` names each other file that
#: needs a line about it. In the order of installation: torch_sparse imports torch_scatter; the extensions that upstream
#: retires come last.
EXTENSIONS = (
    Extension(
        conda="pyg-lib", name="pyg_lib", key="pyg_lib",
        repository="https://github.com/pyg-team/pyg-lib", cpp_seconds=800, cuda_files=14,
        has_sdist=False, uses_cmake=True,
        checkout=Checkout(
            key="pyg_lib_source_path", folders=("pyg-lib", "pyg_lib"),
            repository="https://github.com/pyg-team/pyg-lib.git",
        ),
    ),
    Extension(
        conda="pytorch_scatter", name="torch_scatter", key="pyg_scatter",
        repository="https://github.com/rusty1s/pytorch_scatter", cpp_seconds=110, cuda_files=3,
    ),
    Extension(
        conda="pytorch_sparse", name="torch_sparse", key="pyg_sparse",
        repository="https://github.com/rusty1s/pytorch_sparse", cpp_seconds=410, cuda_files=4,
        checkout=Checkout(
            key="pyg_metis_source_path", folders=("METIS", "metis"),
            repository="https://github.com/KarypisLab/METIS.git",
        ),
    ),
    Extension(
        conda="pytorch_cluster", name="torch_cluster", key="pyg_cluster",
        repository="https://github.com/rusty1s/pytorch_cluster", cpp_seconds=340, cuda_files=7,
    ),
    Extension(
        conda="pytorch_spline_conv", name="torch_spline_conv", key="pyg_spline_conv",
        repository="https://github.com/rusty1s/pytorch_spline_conv", cpp_seconds=120, cuda_files=2,
    ),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ExtensionRelease:
    """An extension's release in the matrix; unknown fields are empty."""

    name: str  #: the distribution: ``torch_scatter``
    version: str = ""  #: ``2.1.2``
    sha256: str = ""  #: of the source archive
    commit: str = ""  #: the commit that the archive was made from

    @property
    def archive(self) -> str:
        """The source archive's file name on PyPI."""
        return f"{self.name}-{self.version}.tar.gz"

    def within(self, folder: Path) -> Path | None:
        """Return the archive in a folder, which has the index's layout or is flat as ``pip download`` writes it."""
        dashed = self.archive.replace(self.name, self.name.replace("_", "-"), 1)
        for name in (f"{self.name}/{self.archive}", self.archive, dashed):
            if (folder / name).is_file():
                return folder / name
        return None


def find(name: str) -> Extension:
    """Return the extension with a name: conda's or PyPI's (with ``-`` or ``_``), or the short one (``scatter``).

    Raises UsageError: There is no such extension.
    """
    word = re.sub(r"[-_.]+", "_", name.strip().lower())
    for extension in EXTENSIONS:
        if word in (extension.name, extension.conda.replace("-", "_"), extension.short_name):
            return extension
    known = [extension.short_name for extension in EXTENSIONS]
    word = word.removeprefix("pytorch_").removeprefix("torch_")
    raise UsageError(f"{name}: unknown extension", suggest(word, known))


def matrix() -> Variant:
    """Return the keys and values of one config; those of the extensions are the same in all configs."""
    document = YAML(typ="safe", pure=True).load(variant_file().read_text(encoding="utf-8"))
    return {key: tuple(map(str, values)) for key, values in document.items()}


def value_of(variant: Variant, key: str, default: str = "") -> str:
    """Return a key's only value, or the first of several."""
    return variant.get(key, (default,))[0]


def release(extension: Extension, variant: Variant) -> ExtensionRelease:
    """Return an extension's release from a config's keys and values."""
    return ExtensionRelease(
        name=extension.name,
        version=value_of(variant, f"{extension.key}_version"),
        sha256=value_of(variant, f"{extension.key}_sha256"),
        commit=value_of(variant, f"{extension.key}_commit"),
    )


def recipes(root: Path) -> dict[str, Path]:
    """Return the extensions' recipes below the repository ``root``, by conda's name, sorted."""
    folder = root.absolute() / "recipe" / "pyg"
    return {path.parent.name: path for path in sorted(folder.glob("*/recipe.yaml"))}


def archs_of(variant: Variant) -> tuple[str, ...]:
    """Return the CUDA architectures of a config; none for a CPU build."""
    key = "torch_cuda_arch_list"
    # conda-smithy's configs have one list for each version of CUDA; the recipe chooses among them
    if key not in variant:
        cuda_version = value_of(variant, "cuda_compiler_version", "None")
        key = f"{key}_{accelerator(cuda_version)}"
    listed = value_of(variant, key)
    return tuple(arch for arch in re.split(r"[;, ]", listed) if arch not in _NO_ARCH)
