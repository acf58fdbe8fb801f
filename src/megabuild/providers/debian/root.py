"""A private Debian root folder with PyTorch's build dependencies and its unpacked source."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from groundwork import debian_packages
from groundwork.errors import ProviderError
from groundwork.files import FileLock, read_record
from groundwork.keys import Key
from groundwork.progress import Notes, preparing
from megabuild.providers.command import run
from megabuild.providers.debian import apt
from megabuild.providers.debian.foreign import PYTHONS, PYTHONS_FOLDER, UNPACKED, Foreign

_FORMAT = 1
#: Seconds. Takes minutes on an idle machine, but with CUDA and during a compile on every core over half an hour.
_TIMEOUT = 2 * 3600
#: Programs that this machine needs, with their Debian packages.
_PROGRAMS = {"mmdebstrap": "mmdebstrap", "bwrap": "bubblewrap"}
SUITE = "trixie"
SOURCE = "pytorch"

#: In addition to the build dependencies: tools of the build scripts, the BLAS to link, and libraries that interpreters
#: built elsewhere (pyenv, uv) load at run time.
_TOOLS = (
    "ca-certificates", "ccache", "cmake", "dpkg-dev", "git", "ninja-build", "patch", "patchelf", "python3",
)  # fmt: skip
_BLAS = ("libopenblas-dev",)
_RUN_TIME = (
    "libbz2-1.0", "libcrypt1", "libdb5.3t64", "libexpat1", "libffi8", "libgdbm6t64", "libgdbm-compat4t64", "liblzma5",
    "libncursesw6", "libnsl2", "libreadline8t64", "libsqlite3-0", "libssl3t64", "libtirpc3t64", "libuuid1", "zlib1g",
)  # fmt: skip

#: For CUDA, from contrib and non-free: nvcc 12.4 with the newest g++ that it accepts, its libraries, and MAGMA.
_CUDA_COMPONENTS = ("contrib", "non-free")
_CUDA_PACKAGES = ("libcutlass-dev", "libmagma-dev", "nlohmann-json3-dev", "nvidia-cuda-toolkit-gcc")
#: Unpacks the headers only: installing the package would pull in a program that downloads cuDNN from NVIDIA.
_UNPACK_CUDNN = (
    "cd /tmp && apt-get download -o APT::Sandbox::User=root libcudnn-frontend-dev"
    f" && mkdir -p /{PYTHONS_FOLDER} && ls libcudnn-frontend-dev_*.deb >> /{UNPACKED}"
    " && dpkg-deb --extract libcudnn-frontend-dev_*.deb / && rm -f libcudnn-frontend-dev_*.deb"
)

#: Folder of the source inside the root, and the command that fills it; apt checks signatures and hashes.
SOURCE_FOLDER = "usr/src/megabuild"
_FETCH = (
    f"mkdir -p /{SOURCE_FOLDER} && cd /{SOURCE_FOLDER}"
    f" && apt-get source --download-only -o APT::Sandbox::User=root {SOURCE}"
    f" && dpkg-source -x {SOURCE}_*.dsc tree && sha256sum {SOURCE}_* > SHA256SUMS && rm -f {SOURCE}_*.tar.*"
)


@dataclass(frozen=True, kw_only=True)
class DebianRoot:
    """A finished root."""

    path: Path  #: The root folder.
    fingerprint: str  #: sha256 over the list of installed packages and the source's files.
    release: str  #: Debian's point release, such as "13.1".
    foreign: Foreign | None = None  #: the processor that it compiles for, if not this machine's

    @property
    def source(self) -> Path:
        """PyTorch's unpacked source, Debian's patches applied."""
        return self.path / SOURCE_FOLDER / "tree"

    @property
    def libraries(self) -> Path:
        """Folder of the root's system libraries."""
        triplet = f"{platform.machine()}-linux-gnu"
        if self.foreign is not None:
            triplet = self.foreign.triplet
        return self.path / "usr" / "lib" / triplet


@dataclass(frozen=True, kw_only=True)
class RootInputs(Key):
    """Everything that a root is made from; the packages' versions are those of its day."""

    format: int
    suite: str
    source: str  #: the source package whose build dependencies it has
    machine: str  #: the processor, and everything else of the one that it compiles for
    packages: Sequence[str]
    mirrors: Sequence[str]  #: lines of sources.list

    def folder(self, cache: Path) -> Path:
        """Return the root's folder in the cache."""
        return cache / self.digest[:16]


#: A root's ``record.json``: the fingerprint and release of :class:`DebianRoot`.
_RECORDS = msgspec.json.Decoder(dict[str, str])


def make(cache: Path, report: Notes, *, cuda: bool = False, foreign: Foreign | None = None) -> DebianRoot:
    """Return the root from the cache, or make it: 1 to 3 minutes and 2 GB, with CUDA 5 minutes and 8 GB.

    Only with CUDA are contrib and non-free enabled. Nothing is installed on this machine.

    Raises ProviderError: A program is missing, no mirror is configured or answers, or the mirror lacks a package.
    """
    inputs = root_inputs(cuda=cuda, foreign=foreign)
    entry = inputs.folder(cache)
    root = _read(entry, foreign)
    if root is not None:
        return root
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "lock"):
        root = _read(entry, foreign)  # another process may have made it
        if root is not None:
            return root
        command = install_command()
        if command:
            programs = " and ".join(_PROGRAMS)
            raise ProviderError(f"Debian configs need {programs}: not all are installed", f"run: {command}")
        for left in cache.glob("tmp-*"):
            _delete(left)
        temporary = cache / f"tmp-{uuid.uuid4().hex}"
        temporary.mkdir()
        temporary.chmod(0o755)
        try:
            how_long = " (about 2 minutes)"
            if cuda:
                how_long = " and CUDA (2 GB to download, about 5 minutes)"
            what = f"making a Debian {SUITE} root with {SOURCE}'s build dependencies{how_long}"
            with preparing(report, what):
                (temporary / "sources.list").write_text("\n".join(inputs.mirrors) + "\n")
                _debootstrap(temporary, inputs.packages, cuda=cuda, foreign=foreign)
                record = _describe(temporary / "root")
            (temporary / "record.json").write_text(json.dumps(record))
            os.sync()  # a power cut must not leave a complete root with empty files
            _delete(entry)
            os.replace(temporary, entry)
        finally:
            _delete(temporary)
    return _of_record(entry, record, foreign)


def remake_hint(entry: Path) -> str:
    """Return the remedy for a broken root, whose folder in the cache is `entry`."""
    return f"run: rm -r {shlex.quote(str(entry))}, unless findmnt lists mounts in it; then run again"


def find(cache: Path, *, cuda: bool = False, foreign: Foreign | None = None) -> DebianRoot | None:
    """Return the root from the cache, or None.

    Raises ProviderError: No mirror is configured.
    """
    return _read(root_inputs(cuda=cuda, foreign=foreign).folder(cache), foreign)


def root_inputs(*, cuda: bool, foreign: Foreign | None = None) -> RootInputs:
    """Return the inputs of a root on this machine, which compiles for a ``foreign`` processor or for its own.

    Raises ProviderError: No mirror is configured.
    """
    packages: tuple[str, ...] = (*_TOOLS, *_BLAS, *_RUN_TIME)
    components: tuple[str, ...] = ()
    machine = platform.machine()
    if cuda:
        packages += _CUDA_PACKAGES
        components = _CUDA_COMPONENTS
    mirrors = apt.debian_lines(SUITE, components)
    if foreign is not None:
        of_this_machine = (*_TOOLS, *_RUN_TIME, *foreign.tools)
        packages = (*of_this_machine, *foreign.qualified((*_BLAS, *_RUN_TIME)), *foreign.libraries)
        machine = foreign.description
        for suite in _suites_of_pythons():
            mirrors += apt.debian_lines(suite)[:1]
    return RootInputs(
        format=_FORMAT,
        suite=SUITE,
        source=SOURCE,
        machine=machine,
        packages=packages,
        mirrors=mirrors,
    )


def _suites_of_pythons() -> list[str]:
    """Return the other releases of Debian that only Pythons are taken from."""
    return sorted({*PYTHONS.values()} - {SUITE})


def install_command() -> str:
    """Return the command that installs the programs missing on this machine, or an empty string."""
    missing = [package for program, package in _PROGRAMS.items() if shutil.which(program) is None]
    if not missing:
        return ""
    return debian_packages.install_command(*sorted(missing), options="--no-install-recommends")


def enter(root: Path) -> list[str]:
    """Return the arguments before a command that run it in `root`, read-only and without capabilities."""
    return ["bwrap", "--ro-bind", str(root), "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
            "--die-with-parent", "--cap-drop", "ALL",
            "--setenv", "PATH", "/usr/bin:/bin:/usr/sbin:/sbin", "--chdir", "/"]  # fmt: skip


def _debootstrap(folder: Path, packages: Sequence[str], *, cuda: bool, foreign: Foreign | None) -> None:
    command = ["mmdebstrap", "--mode=unshare"]
    if os.geteuid() == 0:
        # mounts in the root disappear with the process, even if it is killed
        alone = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        command = [*alone, "mmdebstrap", "--mode=root"]
    command += ["--variant=buildd", f"--include={','.join(packages)}"]
    if foreign is not None:
        command.append(f"--architectures={foreign.native},{foreign.arch}")
        for suite in _suites_of_pythons():
            # else apt takes a package from there that this release has for no processor, or only for this machine's
            pin = f"Package: *\\nPin: release n={suite}\\nPin-Priority: -1\\n"
            command.append(f"--setup-hook=printf '{pin}' >\"$1/etc/apt/preferences.d/{suite}\"")
    for option in (*apt.options(), 'Acquire::Languages "none";'):
        command.append(f"--aptopt={option}")
    hooks = [f"sh -c '{_FETCH}'"]
    if foreign is None:
        hooks.insert(0, f"apt-get build-dep --yes --quiet --no-install-recommends {SOURCE}")
    else:  # the build dependencies name programs, too: the other processor's could not be installed next to these
        hooks += [
            f"sh -c '{unpacking}'" for unpacking in (*foreign.unpack_pythons(), foreign.unpack_headers())
        ]
    if cuda:
        hooks.append(f"sh -c '{_UNPACK_CUDNN}'")
    for hook in hooks:
        command.append(f'--customize-hook=chroot "$1" {hook}')
    command += [SUITE, str(folder / "root"), str(folder / "sources.list")]
    run(
        command,
        what="making the Debian root",
        remedy="check the network and this machine's apt sources (sudo apt-get update)",
        timeout=_TIMEOUT,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
        guarded=True,
        writes=folder,
        relevant="E:|Err:|W: Failed|dpkg-source: error",
    )


def _describe(root: Path) -> dict[str, str]:
    words = ["dpkg-query", f"--root={root}", "--show", "--showformat=${binary:Package} ${Version}\n"]
    packages = run(words, what="listing the Debian root's packages")
    sources = (root / SOURCE_FOLDER / "SHA256SUMS").read_text()
    release = (root / "etc/debian_version").read_text().strip()
    unpacked = ""
    if (root / UNPACKED).is_file():
        unpacked = (root / UNPACKED).read_text()
    fingerprint = hashlib.sha256((packages + sources + unpacked).encode()).hexdigest()
    return {"fingerprint": fingerprint, "release": release}


def _read(entry: Path, foreign: Foreign | None) -> DebianRoot | None:
    """Return the root in a folder of the cache; None if it is unfinished, or if a user deleted it."""
    record = read_record(entry / "record.json", _RECORDS) or {}
    has_root = (entry / "root").is_dir()
    if not has_root or not {"fingerprint", "release"} <= record.keys():
        return None
    return _of_record(entry, record, foreign)


def _of_record(entry: Path, record: Mapping[str, str], foreign: Foreign | None) -> DebianRoot:
    return DebianRoot(
        path=entry / "root",
        fingerprint=record["fingerprint"],
        release=record["release"],
        foreign=foreign,
    )


def _delete(folder: Path) -> None:
    """Delete a folder; raise ProviderError if anything is mounted below it."""
    below: list[str] = []
    for partition in psutil.disk_partitions(all=True):
        if folder in Path(partition.mountpoint).parents:
            below.append(partition.mountpoint)
    if below:
        raise ProviderError(
            f"{folder}: cannot be deleted with mounts in it", f"run: umount {shlex.join(below)}"
        )
    if folder.exists():
        shutil.rmtree(folder)
