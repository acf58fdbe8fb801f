"""conda-forge's compiler packages as activation scripts around the compilers that are there."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from megabuild.errors import ProviderError
from megabuild.providers.package import Package
from megabuild.providers.toolchain import Toolchain

#: Machine part of conda-forge's GNU triplets, by platform.
MACHINES = {"linux-64": "x86_64", "linux-aarch64": "aarch64", "linux-ppc64le": "powerpc64le"}

_COMMON = "-ftree-vectorize -fPIC -fstack-protector-strong -fno-plt -O2 -ffunction-sections -pipe"
_LDFLAGS = (
    "-Wl,-O2 -Wl,--sort-common -Wl,--as-needed -Wl,-z,relro -Wl,-z,now -Wl,--disable-new-dtags -Wl,--gc-sections "
    "-Wl,--allow-shlib-undefined -Wl,-rpath,$_MB_PREFIX/lib -Wl,-rpath-link,$_MB_PREFIX/lib -L$_MB_PREFIX/lib"
)
#: In a build, paths are mapped away as conda-forge's own scripts do; elsewhere there are no such variables.
_PROLOGUE = """\
if [ "${CONDA_BUILD:-0}" = 1 ]; then
  _MB_PREFIX=$PREFIX
  _MB_MAP=" -fdebug-prefix-map=$SRC_DIR=/usr/local/src/conda/$PKG_NAME-$PKG_VERSION"
  _MB_MAP="$_MB_MAP -fdebug-prefix-map=$PREFIX=/usr/local/src/conda-prefix"
else
  _MB_PREFIX=$CONDA_PREFIX
  _MB_MAP=
fi
"""
_SET = """\
if [ -n "${{{name}+x}}" ]; then export CONDA_BACKUP_{name}="${name}"; fi
export {name}="{value}"
"""
_RESTORE = """\
unset {name}
if [ -n "${{CONDA_BACKUP_{name}+x}}" ]; then
  export {name}="$CONDA_BACKUP_{name}"
  unset CONDA_BACKUP_{name}
fi
"""


def names(platform: str) -> tuple[str, ...]:
    """Names of the packages that `packages` makes for a platform."""
    return (
        f"gcc_{platform}", f"gxx_{platform}", f"binutils_{platform}", f"sysroot_{platform}",
        "libgcc", "libstdcxx", "libgomp", "c-compiler", "cxx-compiler",
    )  # fmt: skip


def packages(toolchain: Toolchain, platform: str) -> list[Package]:
    """Describe compilers, binutils, sysroot and the compilers' run-time libraries.

    Raises
    ------
    ProviderError
        A platform for which conda-forge's names are not known here.
    """
    if platform not in MACHINES:
        raise ProviderError(f"the local channel has no compilers for {platform}", "Use a config for Linux.")
    version = toolchain.version
    inputs = {"compiler": toolchain.digest}
    libgcc, libstdcxx = f"libgcc >={toolchain.major}", f"libstdcxx >={toolchain.major}"

    def activation(
        kind: str, variables: Mapping[str, str], depends: Sequence[str], strong: Sequence[str] = ()
    ) -> Package:
        name = f"{kind}_{platform}"
        activate, deactivate = scripts(variables)
        return Package(
            name=name,
            version=version,
            build="h{hash}_0",
            platform=platform,
            depends=tuple(depends),
            run_exports={"strong": tuple(strong)} if strong else {},
            inputs={**inputs, "activate": activate, "deactivate": deactivate},
            fill=partial(write_scripts, name, activate, deactivate),
            summary=f"Activates the system's GCC {version}",
        )

    exact = f"gcc_{platform} {version}.*"
    made = [
        activation("binutils", dict(toolchain.programs), ()),
        activation(
            "gcc",
            _c_variables(toolchain, platform),
            (f"binutils_{platform}", f"sysroot_{platform}", libgcc),
            (libgcc,),
        ),
        activation("gxx", _cxx_variables(toolchain), (exact, libstdcxx), (libstdcxx, libgcc)),
        Package(
            name=f"sysroot_{platform}",
            version=toolchain.glibc,
            build="h{hash}_0",
            platform=platform,
            noarch="generic",
            run_exports={"strong": (f"__glibc >={toolchain.glibc},<3.0.a0",)},
            fill=_nothing,
            summary=f"The system's own glibc {toolchain.glibc}",
        ),
    ]
    for name, depends in (("c-compiler", exact), ("cxx-compiler", f"gxx_{platform} {version}.*")):
        made.append(
            Package(
                name=name,
                version=version,
                build="h{hash}_0",
                platform=platform,
                depends=(depends,),
                fill=_nothing,
                summary=f"The system's GCC {version}",
            )
        )
    for name, files in toolchain.libraries.items():
        made.append(
            Package(
                name=name,
                version=version,
                build="h{hash}_0",
                platform=platform,
                depends=(f"__glibc >={toolchain.glibc}", *((libgcc,) if name == "libstdcxx" else ())),
                inputs=inputs,
                fill=partial(_copy_libraries, files),
                summary=f"Run-time library of the system's GCC {version}",
            )
        )
    return made


def _c_variables(toolchain: Toolchain, platform: str) -> dict[str, str]:
    triplet = f"{MACHINES[platform]}-conda-linux-gnu"
    return {
        "HOST": triplet,
        "BUILD": triplet,
        "CONDA_TOOLCHAIN_HOST": triplet,
        "CONDA_TOOLCHAIN_BUILD": triplet,
        "CC": toolchain.cc,
        "GCC": toolchain.cc,
        "CC_FOR_BUILD": toolchain.cc,
        "CPPFLAGS": "-DNDEBUG -D_FORTIFY_SOURCE=2 -O2 -isystem $_MB_PREFIX/include",
        "CFLAGS": f"{_COMMON} -isystem $_MB_PREFIX/include$_MB_MAP",
        "LDFLAGS": _LDFLAGS,
        "CMAKE_PREFIX_PATH": "$_MB_PREFIX",
        "CMAKE_ARGS": "-DCMAKE_INSTALL_PREFIX=$_MB_PREFIX -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_BUILD_TYPE=Release "
        + " ".join(
            f"-DCMAKE_{name}={toolchain.programs[name]}"
            for name in ("AR", "RANLIB")
            if name in toolchain.programs
        ),
    }


def _cxx_variables(toolchain: Toolchain) -> dict[str, str]:
    return {
        "CXX": toolchain.cxx,
        "GXX": toolchain.cxx,
        "CXX_FOR_BUILD": toolchain.cxx,
        "CXXFLAGS": f"-fvisibility-inlines-hidden -fmessage-length=0 {_COMMON} -isystem $_MB_PREFIX/include$_MB_MAP",
    }


def scripts(variables: Mapping[str, str]) -> tuple[str, str]:
    """Write the shell scripts that set variables on activation and restore them on deactivation."""
    body = "".join(_SET.format(name=name, value=value) for name, value in variables.items())
    restore = "".join(_RESTORE.format(name=name) for name in variables)
    return _PROLOGUE + body + "unset _MB_PREFIX _MB_MAP\n", restore


def write_scripts(name: str, activate: str, deactivate: str, prefix: Path) -> None:
    """Put a package's scripts where activation looks for them, run in the order of their names."""
    for kind, text in (("activate", activate), ("deactivate", deactivate)):
        folder = prefix / "etc" / "conda" / f"{kind}.d"
        folder.mkdir(parents=True)
        (folder / f"{kind}-{name}.sh").write_text(text)


def _copy_libraries(files: Sequence[Path], prefix: Path) -> None:
    (prefix / "lib").mkdir()
    for path in files:
        soname = path.name
        target = prefix / "lib" / soname
        shutil.copy2(path, target)
        # libstdc++.so.6.0.30 is asked for as libstdc++.so.6
        parts = soname.split(".so.")
        short = f"{parts[0]}.so.{parts[1].split('.')[0]}"
        if short != soname:
            (prefix / "lib" / short).symlink_to(soname)


def _nothing(_: Path) -> None:
    """A package of metadata only."""
