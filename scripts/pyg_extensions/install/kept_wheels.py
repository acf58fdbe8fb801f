"""Wheels that were compiled here: their names, their cache, and their dependencies."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cuda_code.elf_file import opened
from cuda_code.library_facts import read
from groundwork import files, glibc
from groundwork.errors import IntegrityError
from groundwork.wheel_file import why_broken, with_local_version
from pyg_extensions.install.user_environment import UserEnvironment

_FOLDER = "pyg-compiled"
#: Variables of a user's that make other code of the same source.
_VARIABLES = (
    "CC", "CXX", "CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "NVCC_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS",
)  # fmt: skip
#: What every Linux has: the libraries of the manylinux policies (PEP 600) that compiled code commonly needs.
_EVERYWHERE = re.compile(
    r"lib(?:c|m|dl|rt|pthread|util|nsl|gcc_s|stdc\+\+|z|resolv)\.so\.\d+|ld-linux-.*|linux-vdso\.so\.1"
)
_TORCH = re.compile(r"lib(?:torch|c10|caffe2|cud|cu[a-z]|nv|shm).*\.so.*")


@dataclass(frozen=True, kw_only=True)
class KeptWheels:
    """The wheels that were compiled for environments like this one."""

    cache: Path  #: the folder that configs share
    environment: UserEnvironment  #: whose PyTorch they are for

    def place(
        self, name: str, version: str, source: str, archs: Sequence[str], environ: Mapping[str, str]
    ) -> Path:
        """Return the folder of a wheel, by all of its inputs.

        ``source`` identifies the extension's sources: a hash, or a repository's release. Of the user's environment
        variables those for compilers count.
        """
        there = self.environment
        made_from = [
            there.torch_version, there.python, there.tag, there.platform, there.glibc, list(archs), source,
            {name: environ[name] for name in _VARIABLES if environ.get(name)},
        ]  # fmt: skip
        digest = hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:16]
        return self.cache / _FOLDER / f"{name}-{version}-{digest}"

    def find(self, place: Path) -> Path | None:
        """Return the wheel in a folder, if it exists and is intact."""
        return next((wheel for wheel in sorted(place.glob("*.whl")) if not why_broken(wheel)), None)

    def keep(self, wheel: Path, place: Path) -> Path:
        """Move a wheel into its folder atomically; its local version is what it was compiled for."""
        with files.scratch(place) as empty:
            named = with_local_version(wheel, self.local_version, empty)
            return named.replace(place / named.name)

    @property
    def local_version(self) -> str:
        """``pt213cu130``, ``pt213cpu``: as upstream names its wheels."""
        minor = self.environment.torch_minor.replace(".", "")
        return f"pt{minor}{self.environment.tag}"

    def needs(self, wheel: Path, folder: Path) -> tuple[str, ...]:
        """Return what a wheel needs that neither PyTorch nor every Linux has: ``libgomp.so.1``, ``glibc 2.34``.

        Paths of this machine in which its libraries look for others are named too. The libraries are unpacked in
        ``folder``.

        Raises IntegrityError: It has a copy of one of PyTorch's libraries, of which a process can have only one.
        """
        with zipfile.ZipFile(wheel) as archive:
            libraries = [Path(archive.extract(name, folder)) for name in archive.namelist() if ".so" in name]
        torchs = {path.name for path in self._of_torch()}
        copies = sorted({path.name for path in libraries} & torchs)
        needed: set[str] = set()
        places: set[str] = set()
        versions: set[tuple[int, ...]] = set()
        for library in libraries:
            facts = read(library, library.name)
            if facts is not None:
                needed |= {name for name in facts.needed if name not in torchs and not _TORCH.fullmatch(name)}
                places |= {path for path in facts.rpath if not path.startswith("$ORIGIN")}
                with opened(library) as elf:
                    versions |= {version for version in glibc.needed(elf) if version}
        if copies:
            raise IntegrityError(
                f"{wheel.name} has a copy of PyTorch's {copies[0]}", "correct the sources, or use others"
            )
        others = sorted(name for name in needed if not _EVERYWHERE.fullmatch(name))
        # inherited from a Python that was linked with an RPATH: reported, not an error
        others += [f"RPATH {path}" for path in sorted(places)]
        return (*others, *(f"glibc {'.'.join(map(str, newest))}" for newest in sorted(versions)[-1:]))

    def _of_torch(self) -> Iterator[Path]:
        yield from (self.environment.site / "torch" / "lib").glob("*.so*")
        yield from (self.environment.site / "nvidia").glob("**/*.so*")
