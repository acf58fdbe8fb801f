"""Package the GCC of this machine or a root folder under conda-forge's names, as activation scripts."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from groundwork.debian_packages import install_command
from groundwork.errors import ProviderError
from groundwork.files import sha256
from groundwork.machine import machine_platform
from megabuild.configs.platforms import Platforms
from megabuild.providers.command import run
from megabuild.providers.local.package import LocalPackage, alias

#: Machine part of conda-forge's GNU triplets, by platform.
MACHINES = {"linux-64": "x86_64", "linux-aarch64": "aarch64"}

_LIBSTDCXX = "libstdcxx"
_REMEDY = f"run: {install_command('g++')}"

#: Programs that activation exports, by variable.
_PROGRAMS = {
    "AR": "ar", "AS": "as", "LD": "ld", "NM": "nm", "OBJCOPY": "objcopy", "OBJDUMP": "objdump", "RANLIB": "ranlib",
    "READELF": "readelf", "SIZE": "size", "STRINGS": "strings", "STRIP": "strip", "ADDR2LINE": "addr2line",
    "GCC_AR": "gcc-ar", "GCC_NM": "gcc-nm", "GCC_RANLIB": "gcc-ranlib",
}  # fmt: skip

#: Beginnings of the names of parts and libraries.
_PART = "part:"
_LIB = "lib:"
#: One script for all facts, because entering a root folder is slow. Prints name=value lines.
_PROBE = """\
prefix=$1 suffix=$2; shift 2
for compiler in "${prefix}gcc$suffix" "${prefix}g++$suffix"; do
  command -v "$compiler" >/dev/null || { echo "missing=$compiler"; exit 0; }
done
cc=$(readlink -f "$(command -v "${prefix}gcc$suffix")")
cxx=$(readlink -f "$(command -v "${prefix}g++$suffix")")
version=$("$cc" -dumpfullversion)
cxx_version=$("$cxx" -dumpfullversion)
glibc=$(getconf GNU_LIBC_VERSION)
echo "cc=$cc"
echo "cxx=$cxx"
echo "version=$version"
echo "cxx_version=$cxx_version"
echo "glibc=$glibc"
echo "part:cc=$cc"
echo "part:cxx=$cxx"
for part in cc1 cc1plus as ld; do
  echo "part:$part=$(readlink -f "$(command -v "$("$cxx" -print-prog-name=$part)")")"
done
for library in libgcc=libgcc_s.so.1 libgomp=libgomp.so.1 libstdcxx=libstdc++.so.6; do
  echo "lib:${library%=*}=$(readlink -f "$("$cxx" -print-file-name="${library#*=}")")"
done
for program in "$@"; do echo "program:$program=$(command -v "$prefix$program" || :)"; done
"""

_COMMON = "-ftree-vectorize -fPIC -fstack-protector-strong -fno-plt -O2 -ffunction-sections -pipe"
_LDFLAGS = (
    "-Wl,-O2 -Wl,--sort-common -Wl,--as-needed -Wl,-z,relro -Wl,-z,now -Wl,--disable-new-dtags -Wl,--gc-sections "
    "-Wl,--allow-shlib-undefined -Wl,-rpath,$_MB_PREFIX/lib -Wl,-rpath-link,$_MB_PREFIX/lib -L$_MB_PREFIX/lib"
)
#: A build maps its paths out of the debug information, as with conda-forge's scripts. Elsewhere SRC_DIR is not set.
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


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """A working GCC."""

    #: Paths inside the root, with links resolved, so that a switch of Debian's alternatives changes them.
    cc: str
    cxx: str
    version: str  #: Such as "14.2.0".
    glibc: str  #: Such as "2.41".
    programs: Mapping[str, str]  #: Variable name to program, such as AR to /usr/bin/ar.
    libraries: Mapping[str, Path]  #: Conda package name to library file, with its path outside the root.
    digest: str  #: sha256 over compilers, assembler, linker and libraries.
    #: Of a cross compiler, whose programs have it before their names: ``aarch64-linux-gnu``; empty for a native one.
    triplet: str = ""

    @property
    def major(self) -> str:
        """Major version, as variants use it."""
        return self.version.split(".")[0]


def probe(
    *, root: Path = Path("/"), enter: Sequence[str] = (), suffix: str = "", triplet: str = ""
) -> Toolchain:
    """Query gcc and g++; ``enter`` is the beginning of a command line that runs the rest in ``root``.

    ``suffix`` belongs to the programs' names: ``-15``; ``triplet`` to those of a cross compiler.

    Raises ProviderError: gcc or g++ is missing or does not run, or their versions differ.
    """
    prefix = f"{triplet}-" if triplet else ""
    printed = run(
        [*enter, "sh", "-eu", "-c", _PROBE, "sh", prefix, suffix, *_PROGRAMS.values()],
        what="looking for gcc and g++",
        remedy=_REMEDY,
    )
    answer = _parse(printed)
    if "missing" in answer:
        raise ProviderError(f"{answer['missing']}: not installed", _REMEDY)
    if answer["version"] != answer["cxx_version"]:
        raise ProviderError(
            f"gcc {answer['version']} and g++ {answer['cxx_version']}: versions differ",
            "install the same version of gcc and g++",
        )
    files: dict[str, Path] = {}
    libraries: dict[str, Path] = {}
    for name, path in answer.items():
        if not name.startswith((_PART, _LIB)):
            continue
        files[name] = root / path.lstrip("/")
        if name.startswith(_LIB):
            libraries[name.removeprefix(_LIB)] = files[name]
    missing = [name.partition(":")[2] for name, path in files.items() if not path.is_file()]
    if missing:
        raise ProviderError(f"{answer['cxx']}: parts are missing: {', '.join(missing)}", _REMEDY)
    sums = "\n".join(sha256(files[name]) for name in sorted(files))
    return Toolchain(
        cc=answer["cc"],
        cxx=answer["cxx"],
        version=answer["version"],
        glibc=answer["glibc"].split()[-1],
        programs=_programs(answer),
        libraries=libraries,
        digest=hashlib.sha256(sums.encode()).hexdigest(),
        triplet=triplet,
    )


def _parse(printed: str) -> dict[str, str]:
    """Return the facts that the script printed, by name."""
    facts: dict[str, str] = {}
    for line in printed.splitlines():
        name, _, value = line.partition("=")
        facts[name] = value
    return facts


def _programs(answer: Mapping[str, str]) -> dict[str, str]:
    programs: dict[str, str] = {}
    for variable, tool in _PROGRAMS.items():
        path = answer[f"program:{tool}"]
        if path:
            programs[variable] = path
    return programs


def packages(toolchain: Toolchain, platform: str) -> list[LocalPackage]:
    """Describe compilers, binutils, sysroot and run-time libraries; ``platform`` is one of ``MACHINES``."""
    return [*activations(toolchain, platform, toolchain), *run_time_libraries(toolchain, platform)]


def cross_packages(cross: Toolchain, native: Toolchain, platforms: Platforms) -> list[LocalPackage]:
    """Describe the packages of a cross compiler for both platforms, and the native compiler's run-time libraries.

    Those for the target are of tests, whose environments are for the target only: the cross compiler runs there, too.
    """
    described = run_time_libraries(native, platforms.build)
    described += run_time_libraries(cross, platforms.target)
    for platform in (platforms.build, platforms.target):
        for package in activations(cross, platforms.target, native):
            described.append(replace(package, platform=platform))
    return described


def activations(toolchain: Toolchain, platform: str, native: Toolchain) -> list[LocalPackage]:
    """Describe compilers for ``platform``, binutils and sysroot; ``native`` compiles programs that a build runs."""
    version = toolchain.version
    glibc = toolchain.glibc
    libgcc = f"libgcc >={toolchain.major}"
    libstdcxx = f"{_LIBSTDCXX} >={toolchain.major}"
    sysroot = LocalPackage(
        name=f"sysroot_{platform}",
        version=glibc,
        platform=platform,
        noarch="generic",
        run_exports={"strong": (f"__glibc >={glibc},<3.0.a0",)},
        summary=f"The system's own glibc {glibc}",
    )
    inputs = {"compiler": toolchain.digest}
    if native != toolchain:
        inputs["native compiler"] = native.digest
    activated = partial(
        LocalPackage,
        version=version,
        platform=platform,
        inputs=inputs,
        summary=f"Activates the system's GCC {version}",
    )
    binutils = activated(name=f"binutils_{platform}")
    gcc = activated(
        name=f"gcc_{platform}",
        depends=(binutils.name, sysroot.name, libgcc),
        run_exports={"strong": (libgcc,)},
    )
    gxx = activated(
        name=f"gxx_{platform}",
        depends=(f"{gcc.name} {version}.*", libstdcxx),
        run_exports={"strong": (libstdcxx, libgcc)},
    )
    return [
        sysroot,
        activating(binutils, toolchain.programs),
        activating(gcc, _c_variables(toolchain, platform, native)),
        activating(gxx, _cxx_variables(toolchain, native)),
        alias("c-compiler", gcc.name, version, platform),
        alias("cxx-compiler", gxx.name, version, platform),
    ]


def run_time_libraries(toolchain: Toolchain, platform: str) -> list[LocalPackage]:
    """Describe the libraries that compiled programs load, for a ``platform``."""
    version = toolchain.version
    glibc = toolchain.glibc
    described: list[LocalPackage] = []
    for name, path in toolchain.libraries.items():
        depends = [f"__glibc >={glibc}"]
        if name == _LIBSTDCXX:
            depends.append(f"libgcc >={toolchain.major}")
        library = LocalPackage(
            name=name,
            version=version,
            platform=platform,
            inputs={"compiler": toolchain.digest},
            depends=tuple(depends),
            fill=partial(_copy_library, path),
            summary=f"Run-time library of the system's GCC {version}",
        )
        described.append(library)
    return described


def nvcc(
    version: str, cuda: str, platform: str, variables: Mapping[str, str], needs: Sequence[str], root: str
) -> LocalPackage:
    """Describe the compiler package of nvcc ``version``, whose host compiler is the environment's g++.

    ``needs``: its dependencies besides g++; ``root``: fingerprint of the Debian root that nvcc is in, or empty.
    """
    next_major = int(cuda.split(".")[0]) + 1
    compiler = LocalPackage(
        name=f"cuda-nvcc_{platform}",
        version=version,
        platform=platform,
        depends=(*needs, f"cuda-version {cuda}.*", f"gxx_{platform}"),
        run_exports={"strong": (f"cuda-version >={cuda},<{next_major}",)},
        inputs={"root": root},
        summary=f"Activates nvcc {version}",
    )
    # "~" sorts the script after the C++ compiler's, which sets CXX
    return activating(compiler, variables, order="~")


def _c_variables(toolchain: Toolchain, platform: str, native: Toolchain) -> dict[str, str]:
    triplet = f"{MACHINES[platform]}-conda-linux-gnu"
    build_triplet = triplet
    cmake = [
        "-DCMAKE_INSTALL_PREFIX=$_MB_PREFIX", "-DCMAKE_INSTALL_LIBDIR=lib", "-DCMAKE_BUILD_TYPE=Release",
    ]  # fmt: skip
    for name in ("AR", "RANLIB"):
        if name in toolchain.programs:
            cmake.append(f"-DCMAKE_{name}={toolchain.programs[name]}")
    if toolchain.triplet:
        cmake += ["-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={MACHINES[platform]}"]
        build_triplet = f"{MACHINES[machine_platform()]}-conda-linux-gnu"
    return {
        "HOST": triplet,
        "BUILD": build_triplet,
        "CONDA_TOOLCHAIN_HOST": triplet,
        "CONDA_TOOLCHAIN_BUILD": build_triplet,
        "CC": toolchain.cc,
        "GCC": toolchain.cc,
        "CC_FOR_BUILD": native.cc,
        "CPPFLAGS": "-DNDEBUG -D_FORTIFY_SOURCE=2 -O2 -isystem $_MB_PREFIX/include",
        "CFLAGS": f"{_COMMON} -isystem $_MB_PREFIX/include$_MB_MAP",
        "LDFLAGS": _LDFLAGS,
        "CMAKE_PREFIX_PATH": "$_MB_PREFIX",
        "CMAKE_ARGS": " ".join(cmake),
    }


def _cxx_variables(toolchain: Toolchain, native: Toolchain) -> dict[str, str]:
    return {
        "CXX": toolchain.cxx,
        "GXX": toolchain.cxx,
        "CXX_FOR_BUILD": native.cxx,
        "CXXFLAGS": f"-fvisibility-inlines-hidden -fmessage-length=0 {_COMMON} -isystem $_MB_PREFIX/include$_MB_MAP",
    }


def activating(package: LocalPackage, variables: Mapping[str, str], order: str = "") -> LocalPackage:
    """Return the package with scripts that set variables on activation and restore them on deactivation.

    Values may contain other variables, and ``$_MB_PREFIX`` for the environment's folder. A shell runs the scripts of an
    environment in alphabetical order of ``order`` and the package's name.
    """
    activate = _PROLOGUE
    deactivate = ""
    for name, value in variables.items():
        activate += _SET.format(name=name, value=value)
        deactivate += _RESTORE.format(name=name)
    activate += "unset _MB_PREFIX _MB_MAP\n"
    scripts = {"activate": activate, "deactivate": deactivate}
    fill = partial(_write_scripts, scripts, f"{order}{package.name}")
    return replace(package, inputs={**package.inputs, **scripts}, fill=fill)


def _write_scripts(scripts: Mapping[str, str], name: str, prefix: Path) -> None:
    for kind, text in scripts.items():
        folder = prefix / "etc" / "conda" / f"{kind}.d"
        folder.mkdir(parents=True)
        (folder / f"{kind}-{name}.sh").write_text(text)


def _copy_library(path: Path, prefix: Path) -> None:
    (prefix / "lib").mkdir()
    shutil.copy2(path, prefix / "lib" / path.name)
    # programs load libstdc++.so.6.0.30 as libstdc++.so.6
    name, _, version = path.name.partition(".so.")
    short = f"{name}.so.{version.split('.')[0]}"
    if short != path.name:
        (prefix / "lib" / short).symlink_to(path.name)
