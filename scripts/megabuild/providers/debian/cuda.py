"""Debian's CUDA toolkit and MAGMA under conda-forge's names, so that the recipe asks for them as it does anywhere.

Headers and programs stay in the root, where builds run; packages hold what PyTorch needs at run time. A ``-dev``
package is its name and its run_exports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

from groundwork.errors import ProviderError
from megabuild.providers.debian import libraries
from megabuild.providers.debian.root import DebianRoot
from megabuild.providers.local.compilers import activation
from megabuild.providers.local.package import LocalPackage

#: nvcc itself: /usr/bin/nvcc is a script, by whose content an object cache would know any version.
NVCC = "usr/lib/nvidia-cuda-toolkit/bin/nvcc"
#: The newest g++ that this nvcc accepts.
HOST_COMPILER = "/usr/bin/g++-13"


def packages(
    root: DebianRoot, table: Mapping[str, Sequence[str]], cuda: str, platform: str
) -> list[LocalPackage]:
    """Describe the packages of the CUDA in a root that was made with it; ``cuda`` is the config's version, "12.4".

    The table has by conda name the name of a development package and the Debian packages whose libraries are packaged.

    Raises ProviderError: The root's toolkit is of another version, or lacks a library.
    """
    contents = libraries.read(root)
    toolkit = contents.installed.get("nvidia-cuda-toolkit")
    if toolkit is None or not toolkit.version.startswith(f"{cuda}."):
        has = upstream_version(toolkit.version) if toolkit else "none"
        raise ProviderError(
            f"Debian's CUDA toolkit is {has}, this config is for CUDA {cuda}",
            "Set cuda_compiler_version of the debian provider in conda_build_config.yaml.",
        )
    everywhere = set(libraries.select(root, contents))
    owner_of = {deb: conda for conda, (_, *debs) in table.items() for deb in debs}
    home = {soname: owner_of[owner] for soname, (_, owner) in contents.available.items() if owner in owner_of}
    version = upstream_version(toolkit.version)
    described = [
        _compiler(root, version, cuda, platform),
        _metadata_package("cuda-profiler-api", version, platform, f"cuda-version {cuda}.*"),
    ]
    for conda, (dev, *debs) in table.items():
        own = {soname for soname, package in home.items() if package == conda}
        if not own:
            raise ProviderError(
                f"{root.path} has no library of {', '.join(debs)}", "Delete that folder and run again."
            )
        sonames = set[str]().union(*(contents.closure(soname) for soname in own))
        files = {
            soname: contents.available[soname]
            for soname in sorted(sonames - everywhere)
            if home.get(soname, conda) == conda
        }
        others = sorted({home[soname] for soname in sonames if home.get(soname, conda) != conda})
        version = upstream_version(contents.installed[debs[0]].version)
        common = [libraries.NAME] if sonames & everywhere else []
        described.append(
            LocalPackage(
                name=conda,
                version=version,
                platform=platform,
                depends=(f"cuda-version {cuda}.*", *common, *others),
                inputs={"root": root.fingerprint, "files": "\n".join(files)},
                fill=partial(libraries.fill, root, files, conda),
                summary=f"Libraries of Debian's {', '.join(debs)}",
            )
        )
        exported = f"{conda} >={version},<{int(version.split('.')[0]) + 1}.0a0"
        described.append(_metadata_package(dev, version, platform, f"{conda} =={version}", exported))
    return described


def _compiler(root: DebianRoot, version: str, cuda: str, platform: str) -> LocalPackage:
    variables = {
        "CUDACXX": f"/{NVCC}",
        "CUDAHOSTCXX": HOST_COMPILER,
        "CUDA_HOME": "/usr",
        # the last word counts: PyTorch's cpp_extension names the C compiler, which is too new
        "NVCC_APPEND_FLAGS": f"-ccbin={HOST_COMPILER}",
    }
    package = LocalPackage(
        name=f"cuda-nvcc_{platform}",
        version=version,
        platform=platform,
        depends=(f"cuda-version {cuda}.*", f"gxx_{platform}"),
        run_exports={"strong": (f"cuda-version >={cuda},<{int(cuda.split('.')[0]) + 1}",)},
        inputs={"root": root.fingerprint},
        summary=f"Activates Debian's nvcc {version}",
    )
    return activation(package, variables, order="~")


def _metadata_package(name: str, version: str, platform: str, depends: str, *exported: str) -> LocalPackage:
    return LocalPackage(
        name=name,
        version=version,
        platform=platform,
        depends=(depends,),
        run_exports={"weak": exported} if exported else {},
        summary="The root's own headers",
    )


def upstream_version(debian: str) -> str:
    """The upstream part of a Debian version: "12.4.5.8" of "12.4.5.8~12.4.1-3".

    A version that once was too high goes on before the real one: "11.1.1+~10.3.5.147~12.4.1-2" is cuRAND's 10.3.5.147.
    """
    match = re.match(r"(?:\d+:)?(?:[\d.]+\+~)?(\d+(?:\.\d+)*)", debian)
    return match[1] if match else "0"
