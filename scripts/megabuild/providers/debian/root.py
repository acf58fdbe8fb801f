"""A private Debian root folder with PyTorch's build dependencies and its unpacked source."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from groundwork.errors import ProviderError
from groundwork.files import FileLock
from groundwork.progress import Notes, Preparing
from megabuild.providers.command import run
from megabuild.providers.debian import apt
from megabuild.providers.debian.foreign import PYTHONS, Foreign

_FORMAT = 1
#: Seconds. Minutes on a machine of its own; beside a compile on every core, and with CUDA, more than half an hour.
_TIMEOUT = 2 * 3600
#: What this machine needs: program to package.
_PROGRAMS = {"mmdebstrap": "mmdebstrap", "bwrap": "bubblewrap"}
SUITE = "trixie"
SOURCE = "pytorch"

#: Beyond the build dependencies: tools of the build scripts, the BLAS we link, and what interpreters of other
#: machines' making (pyenv, uv) load at run time.
_TOOLS = (
    "ca-certificates",
    "ccache",
    "cmake",
    "dpkg-dev",
    "git",
    "ninja-build",
    "patch",
    "patchelf",
    "python3",
)
_LIBRARIES = (
    "libopenblas-dev",
    "libbz2-1.0", "libcrypt1", "libdb5.3t64", "libexpat1", "libffi8", "libgdbm6t64", "libgdbm-compat4t64", "liblzma5",
    "libncursesw6", "libnsl2", "libreadline8t64", "libsqlite3-0", "libssl3t64", "libtirpc3t64", "libuuid1", "zlib1g",
)  # fmt: skip

#: For CUDA, from contrib and non-free: nvcc 12.4 with the newest g++ that it accepts, its libraries, and MAGMA.
_CUDA_COMPONENTS = ("contrib", "non-free")
_CUDA_PACKAGES = ("libcutlass-dev", "libmagma-dev", "nlohmann-json3-dev", "nvidia-cuda-toolkit-gcc")
#: Headers only: the package itself depends on a program that downloads cuDNN from its vendor.
_CUDA_UNPACKED = "libcudnn-frontend-dev"
_UNPACK = (
    "cd /tmp && apt-get download -o APT::Sandbox::User=root {0}"
    " && dpkg-deb --extract {0}_*.deb / && rm -f {0}_*.deb"
)

#: Where the source lies inside the root, and the command that puts it there; apt checks signatures and hashes.
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
    source: Path  #: PyTorch's unpacked source, Debian's patches applied.
    fingerprint: str  #: sha256 over the list of installed packages and the source's files.
    release: str  #: Debian's point release, such as "13.1".
    #: The architecture that it compiles for, if not the machine's.
    foreign: Foreign | None = None

    @property
    def libraries(self) -> Path:
        """Where the libraries of the system are that it compiles for."""
        triplet = self.foreign.triplet if self.foreign else f"{platform.machine()}-linux-gnu"
        return self.path / "usr" / "lib" / triplet


def make(
    cache: Path,
    report: Notes,
    *,
    cuda: bool = False,
    foreign: Foreign | None = None,
) -> DebianRoot:
    """Return the root, from the cache or made anew (one to three minutes and 2 GB; with CUDA five, and 8 GB).

    Contrib and non-free are enabled for CUDA alone. Nothing is installed on this machine.

    Raises ProviderError: A tool is missing, no mirror is configured or answers, or a package is gone.
    """
    lines, packages, entry = wanted(cache, cuda=cuda, foreign=foreign)
    if found := _read(entry, foreign):
        return found
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "lock"):
        if found := _read(entry, foreign):
            return found
        require(_PROGRAMS)
        for left in cache.glob("tmp-*"):
            _delete(left)
        temporary = cache / f"tmp-{uuid.uuid4().hex}"
        temporary.mkdir()
        temporary.chmod(0o755)
        try:
            how_long = " and CUDA (2 GB to download, about five minutes)" if cuda else " (about two minutes)"
            what = f"making a Debian {SUITE} root with {SOURCE}'s build dependencies{how_long}"
            report(Preparing(what=what))
            (temporary / "sources.list").write_text("\n".join(lines) + "\n")
            _debootstrap(temporary, packages, cuda=cuda, foreign=foreign)
            record = _describe(temporary / "root")
            report(Preparing(what=what, done=1, total=1))
            (temporary / "record.json").write_text(json.dumps(record, indent=1, sort_keys=True))
            _delete(entry)
            os.replace(temporary, entry)
        finally:
            _delete(temporary)
    if made := _read(entry, foreign):
        return made
    raise ProviderError(f"{entry} is incomplete", f"Delete {entry} and run again.")


def wanted(
    cache: Path, *, cuda: bool, foreign: Foreign | None = None
) -> tuple[list[str], tuple[str, ...], Path]:
    """Return lines of a sources.list, packages, and where the root of these lies."""
    lines = apt.debian_lines(SUITE, _CUDA_COMPONENTS if cuda else ())
    packages = (*_TOOLS, *_LIBRARIES, *(_CUDA_PACKAGES if cuda else ()))
    if foreign is not None:
        packages = (*_TOOLS, *foreign.tools, *foreign.qualified(_LIBRARIES), *foreign.libraries)
        others = sorted(
            {*PYTHONS.values()} - {SUITE}
        )  # for their Pythons alone: what this suite has is newer
        lines += [apt.debian_lines(suite)[0] for suite in others]
    question = [_FORMAT, SUITE, SOURCE, platform.machine(), packages, lines]
    return lines, packages, cache / hashlib.sha256(json.dumps(question).encode()).hexdigest()[:16]


def find(cache: Path, *, cuda: bool = False, foreign: Foreign | None = None) -> DebianRoot | None:
    """Return the root if it was made, else None; raises ProviderError where no mirror is configured."""
    return _read(wanted(cache, cuda=cuda, foreign=foreign)[2], foreign)


def install_command() -> str:
    """Return the command that installs what is missing on this machine, or an empty string."""
    return _command(_missing(_PROGRAMS))


def _missing(programs: Mapping[str, str]) -> list[str]:
    return sorted({package for program, package in programs.items() if shutil.which(program) is None})


def _command(missing: Sequence[str]) -> str:
    words = " ".join(["apt-get", "install", "--no-install-recommends", *missing])
    if not missing or os.geteuid() == 0:
        return words if missing else ""
    return f"sudo {words}" if shutil.which("sudo") else f"su -c '{words}'"


def require(programs: Mapping[str, str]) -> None:
    """Make sure that programs (each with its Debian package) are installed.

    Raises ProviderError: Something is missing; the remedy is the command that installs it.
    """
    if missing := _missing(programs):
        raise ProviderError(f"the debian provider needs {' and '.join(missing)}", f"Run: {_command(missing)}")


def enter(root: Path) -> list[str]:
    """Return words before a command that run it in `root`, read-only and without root's capabilities.

    Raises ProviderError: Bubblewrap is not installed.
    """
    if not shutil.which("bwrap"):
        raise ProviderError(f"cannot enter {root}", "Install bubblewrap: sudo apt-get install bubblewrap")
    return ["bwrap", "--ro-bind", str(root), "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
            "--die-with-parent", "--cap-drop", "ALL",
            "--setenv", "PATH", "/usr/bin:/bin:/usr/sbin:/sbin", "--chdir", "/"]  # fmt: skip


def _debootstrap(folder: Path, packages: Sequence[str], *, cuda: bool, foreign: Foreign | None) -> None:
    """Make ``root`` in a folder that holds the ``sources.list``."""
    hooks = [f"sh -c '{_FETCH}'"]
    hooks += [f"sh -c '{_UNPACK.format(_CUDA_UNPACKED)}'"] if cuda else []
    if foreign is None:
        hooks.insert(0, f"apt-get build-dep --yes --quiet --no-install-recommends {SOURCE}")
    else:  # its build dependencies name programs, too, of which only the machine's own can be installed
        hooks += [f"sh -c '{unpacking}'" for unpacking in foreign.unpack_pythons(f"/{SOURCE_FOLDER}")]
    is_root = os.geteuid() == 0
    # mounts in the root end with the process, however it ends
    alone = (
        ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        if is_root and shutil.which("unshare")
        else []
    )
    run(
        [
            *alone,
            "mmdebstrap",
            "--mode=root" if is_root else "--mode=unshare",
            "--variant=buildd",
            *([f"--architectures={foreign.native},{foreign.arch}"] if foreign else []),
            f"--include={','.join(packages)}",
            *(f"--aptopt={option}" for option in (*apt.options(), 'Acquire::Languages "none";')),
            *(f'--customize-hook=chroot "$1" {hook}' for hook in hooks),
            SUITE,
            str(folder / "root"),
            str(folder / "sources.list"),
        ],
        what="making the Debian root",
        remedy="Check the network and this machine's apt sources (apt-get update).",
        timeout=_TIMEOUT,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
        guarded=True,
        is_relevant=lambda line: line.startswith(("E:", "Err:", "W: Failed", "dpkg-source: error")),
    )


def _describe(root: Path) -> dict[str, str]:
    words = ["dpkg-query", f"--root={root}", "--show", "--showformat=${binary:Package} ${Version}\n"]
    listed = run(words, what="listing the packages of the Debian root")
    sums = (root / SOURCE_FOLDER / "SHA256SUMS").read_text()
    if not (root / SOURCE_FOLDER / "tree" / "setup.py").is_file():
        raise ProviderError(f"Debian's source package {SOURCE} has no setup.py", "Report this as a bug.")
    return {
        "fingerprint": hashlib.sha256((listed + sums).encode()).hexdigest(),
        "packages": listed,
        "sources": sums,
        "release": (root / "etc/debian_version").read_text().strip(),
    }


class _Record(msgspec.Struct):
    """The part of :func:`_describe` that is read back."""

    fingerprint: str
    release: str


_RECORDS = msgspec.json.Decoder(_Record)


def _read(entry: Path, foreign: Foreign | None = None) -> DebianRoot | None:
    try:
        record = _RECORDS.decode((entry / "record.json").read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    root = entry / "root"
    return DebianRoot(
        path=root,
        source=root / SOURCE_FOLDER / "tree",
        fingerprint=record.fingerprint,
        release=record.release,
        foreign=foreign,
    )


def _delete(folder: Path) -> None:
    """Delete a folder, but never through something mounted below it."""
    if not folder.exists():
        return
    below = [
        partition.mountpoint
        for partition in psutil.disk_partitions(all=True)
        if folder in Path(partition.mountpoint).parents
    ]
    if below:
        raise ProviderError(f"something is mounted below {folder}", f"Run: umount {' '.join(below)}")
    shutil.rmtree(folder)
