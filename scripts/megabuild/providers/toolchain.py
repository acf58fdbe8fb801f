"""The GCC of this machine, or of a root folder: versions, programs, run-time libraries, and a digest of them all."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from megabuild.errors import ProviderError
from megabuild.files import sha256
from megabuild.providers.command import run

_REMEDY = "Install the compilers: sudo apt-get install g++ make"

#: Programs that activation exports, by variable.
_PROGRAMS = {
    "AR": "ar", "AS": "as", "LD": "ld", "NM": "nm", "OBJCOPY": "objcopy", "OBJDUMP": "objdump", "RANLIB": "ranlib",
    "READELF": "readelf", "SIZE": "size", "STRINGS": "strings", "STRIP": "strip", "ADDR2LINE": "addr2line",
    "GCC_AR": "gcc-ar", "GCC_NM": "gcc-nm", "GCC_RANLIB": "gcc-ranlib",
}  # fmt: skip

#: Asked in one go, because entering a root folder has a price. Prints name=value lines.
_QUESTION = """\
cc=$(readlink -f "$(command -v gcc)")
cxx=$(readlink -f "$(command -v g++)")
echo "cc=$cc"
echo "cxx=$cxx"
echo "version=$("$cc" -dumpfullversion)"
echo "cxx_version=$("$cxx" -dumpfullversion)"
echo "glibc=$(getconf GNU_LIBC_VERSION)"
echo "part:cc=$cc"
echo "part:cxx=$cxx"
for part in cc1 cc1plus as ld; do
  echo "part:$part=$(readlink -f "$(command -v "$("$cxx" -print-prog-name=$part)")")"
done
for library in libgcc_s.so.1 libstdc++.so.6 libgomp.so.1; do
  echo "lib:$library=$(readlink -f "$("$cxx" -print-file-name=$library)")"
done
for program in "$@"; do echo "program:$program=$(command -v "$program" || :)"; done
"""


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """A working GCC.

    Parameters
    ----------
    cc, cxx:
        The compilers as seen inside `root`, links resolved, so that switching alternatives cannot go unnoticed.
    version:
        Such as "14.2.0".
    glibc:
        Such as "2.41".
    programs:
        Variable name to program, such as AR to /usr/bin/ar.
    libraries:
        Conda package name to library files, as seen from outside `root`.
    digest:
        sha256 over compilers, assembler, linker and libraries.
    """

    cc: str
    cxx: str
    version: str
    glibc: str
    programs: Mapping[str, str]
    libraries: Mapping[str, tuple[Path, ...]]
    digest: str

    @property
    def major(self) -> str:
        """The first number of the version, as variants ask for it."""
        return self.version.split(".")[0]


def probe(*, root: Path = Path("/"), enter: Sequence[str] = ()) -> Toolchain:
    """Ask gcc and g++ what they are.

    Parameters
    ----------
    root:
        Folder in which the paths that the compilers name are found.
    enter:
        Words before a command that run it inside `root`.

    Raises
    ------
    ProviderError
        gcc or g++ is missing, does not run, or the two are of different versions.
    """

    printed = run(
        [*enter, "sh", "-eu", "-c", _QUESTION, "sh", *_PROGRAMS.values()],
        what="looking for the system's compilers",
        remedy=_REMEDY,
    )
    answer = dict(line.partition("=")[::2] for line in printed.splitlines())
    if answer["version"] != answer["cxx_version"]:
        raise ProviderError(
            f"{answer['cc']} is {answer['version']}, but {answer['cxx']} is {answer['cxx_version']}",
            "Install one version of both.",
        )
    files = {
        name: root / path.lstrip("/") for name, path in answer.items() if name.startswith(("part:", "lib:"))
    }
    for path in files.values():
        if not path.is_file():
            raise ProviderError(f"the compiler names a file that is missing: {path}", _REMEDY)
    digest = hashlib.sha256(
        "\n".join(sha256(files[name]) for name in sorted(files)).encode()
    ).hexdigest()
    return Toolchain(
        cc=answer["cc"],
        cxx=answer["cxx"],
        version=answer["version"],
        glibc=answer["glibc"].split()[-1],
        programs={
            name: answer[f"program:{program}"]
            for name, program in _PROGRAMS.items()
            if answer[f"program:{program}"]
        },
        libraries={
            "libgcc": (files["lib:libgcc_s.so.1"],),
            "libstdcxx": (files["lib:libstdc++.so.6"],),
            "libgomp": (files["lib:libgomp.so.1"],),
        },
        digest=digest,
    )
