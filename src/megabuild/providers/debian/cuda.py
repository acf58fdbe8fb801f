"""Package Debian's CUDA toolkit and MAGMA under conda-forge's names, so that the recipe needs no special case.

Builds run in the root and use its headers and programs. Packages hold only the libraries that PyTorch needs at run
time; a ``-dev`` package has no files, only a name and run_exports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from groundwork.errors import ProviderError
from megabuild.providers.debian import libraries
from megabuild.providers.debian.libraries import Libraries, LibraryFile
from megabuild.providers.debian.root import DebianRoot, remake_hint
from megabuild.providers.local.compilers import nvcc
from megabuild.providers.local.package import LocalPackage, alias

#: The nvcc binary, not the script /usr/bin/nvcc, whose content is the same for every version: object caches hash it.
NVCC = "usr/lib/nvidia-cuda-toolkit/bin/nvcc"
#: The newest g++ that this nvcc accepts.
HOST_COMPILER = "/usr/bin/g++-13"
_VARIABLES = {
    "CUDACXX": f"/{NVCC}",
    "CUDAHOSTCXX": HOST_COMPILER,
    "CUDA_HOME": "/usr",
    # appended, to override PyTorch's cpp_extension, whose -ccbin names a C compiler too new for this nvcc
    "NVCC_APPEND_FLAGS": f"-ccbin={HOST_COMPILER}",
}


def packages(
    root: DebianRoot, table: Mapping[str, Sequence[str]], cuda: str, platform: str
) -> list[LocalPackage]:
    """Describe the CUDA packages of a root made with CUDA; ``cuda`` is the config's version, "12.4".

    ``table`` maps a conda name to its development package, followed by the Debian packages with the libraries.

    Raises ProviderError: The root's toolkit has another version or lacks a library.
    """
    contents = libraries.read(root)
    toolkit = contents.installed.get("nvidia-cuda-toolkit")
    if toolkit is None or not toolkit.version.startswith(f"{cuda}."):
        present = "not installed"
        if toolkit is not None:
            present = upstream_version(toolkit.version)
        raise ProviderError(
            f"Debian's CUDA toolkit: {present}, but the config needs CUDA {cuda}",
            "set cuda_compiler_version for the debian provider in conda_build_config.yaml",
        )
    describer = _Describer(
        root=root,
        contents=contents,
        conda_of=_conda_packages(table, contents),
        common=frozenset(libraries.select(root, contents)),
        cuda=cuda,
        platform=platform,
    )
    version = upstream_version(toolkit.version)
    described = [
        nvcc(version, cuda, platform, _VARIABLES, (), root.fingerprint),
        alias("cuda-profiler-api", "cuda-version", cuda, platform),
    ]
    for conda, (dev, *debs) in table.items():
        runtime = describer.runtime(conda, debs)
        next_major = int(runtime.version.split(".")[0]) + 1
        exported = f"{conda} >={runtime.version},<{next_major}.0a0"
        described += [runtime, alias(dev, conda, runtime.version, platform, exported)]
    return described


@dataclass(frozen=True, kw_only=True)
class _Describer:
    """Describes packages of libraries of a root."""

    root: DebianRoot
    contents: Libraries
    conda_of: Mapping[str, str]  #: conda packages by soname
    common: frozenset[str]  #: sonames in the package of PyTorch's other libraries
    cuda: str
    platform: str

    def runtime(self, conda: str, debs: Sequence[str]) -> LocalPackage:
        """Describe the package ``conda`` with the libraries of Debian packages, and all others that they need.

        Raises ProviderError: The root has none of them.
        """
        sonames: set[str] = set()
        for soname, package in self.conda_of.items():
            if package == conda:
                sonames |= self.contents.closure(soname)
        if not sonames:
            raise ProviderError(
                f"{self.root.path}: no library of {', '.join(debs)}", remake_hint(self.root.path.parent)
            )
        files: dict[str, LibraryFile] = {}
        others: set[str] = set()
        for soname in sorted(sonames):
            package = self.conda_of.get(soname, conda)
            if package != conda:
                others.add(package)
            elif soname not in self.common:
                files[soname] = self.contents.available[soname]
        depends = [f"cuda-version {self.cuda}.*"]
        if sonames & self.common:
            depends.append(libraries.NAME)
        depends += sorted(others)
        return LocalPackage(
            name=conda,
            version=upstream_version(self.contents.installed[debs[0]].version),
            platform=self.platform,
            depends=tuple(depends),
            inputs={"root": self.root.fingerprint, "files": "\n".join(files)},
            fill=partial(libraries.fill, self.root, files, conda),
            summary=f"Libraries of Debian's {', '.join(debs)}",
        )


def _conda_packages(table: Mapping[str, Sequence[str]], contents: Libraries) -> dict[str, str]:
    """Return the conda package of each library that a package of the table has, by soname."""
    conda_of: dict[str, str] = {}
    for conda, (_, *debs) in table.items():
        conda_of |= dict.fromkeys(debs, conda)
    packages: dict[str, str] = {}
    for soname, library in contents.available.items():
        if library.owner in conda_of:
            packages[soname] = conda_of[library.owner]
    return packages


def upstream_version(debian: str) -> str:
    """Return the upstream part of a Debian version: "12.4.5.8" of "12.4.5.8~12.4.1-3".

    Debian keeps a former, too high version as a prefix: "11.1.1+~10.3.5.147~12.4.1-2" is cuRAND's 10.3.5.147.
    """
    match = re.match(r"(?:\d+:)?(?:[\d.]+\+~)?(\d+(?:\.\d+)*)", debian)
    if match is None:
        return "0"
    return match[1]
