"""A private Debian root folder with PyTorch's build dependencies and its unpacked source."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from megabuild.errors import ProviderError
from megabuild.providers.debian import apt_config

_FORMAT = 1
#: Minutes on a machine of its own; beside a compile on every core, and with CUDA, more than half an hour.
_PATIENCE = 2 * 3600
SUITE = "trixie"
SOURCE = "pytorch"

#: Beyond the build dependencies: tools of the build scripts, the BLAS we link, and what interpreters of other
#: machines' making (pyenv, uv) load at run time.
_PACKAGES = (
    "ca-certificates", "ccache", "cmake", "dpkg-dev", "git", "ninja-build", "patch", "patchelf", "python3",
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
_SOURCE_FOLDER = "usr/src/megabuild"
_FETCH = (
    f"mkdir -p /{_SOURCE_FOLDER} && cd /{_SOURCE_FOLDER}"
    f" && apt-get source --download-only -o APT::Sandbox::User=root {SOURCE}"
    f" && dpkg-source -x {SOURCE}_*.dsc tree && sha256sum {SOURCE}_* > SHA256SUMS && rm -f {SOURCE}_*.tar.*"
)


@dataclass(frozen=True, kw_only=True)
class DebianRoot:
    """A finished root.

    Parameters
    ----------
    path:
        The root folder.
    source:
        PyTorch's unpacked source, Debian's patches applied.
    fingerprint:
        sha256 over the list of installed packages and the source's files.
    release:
        Debian's point release, such as "13.1".
    """

    path: Path
    source: Path
    fingerprint: str
    release: str


def make(
    cache: Path, report: Callable[[str], None], ask: Callable[[str], bool], *, cuda: bool = False
) -> DebianRoot:
    """Return the root, from the cache or made anew (one to three minutes and 2 GB; with CUDA five, and 8 GB).

    Parameters
    ----------
    cache:
        Folder for roots, shared by all configs.
    report:
        Told what is being done, a line at a time.
    ask:
        Asked before something is installed on this machine.
    cuda:
        Whether Debian's CUDA toolkit belongs into it; contrib and non-free are enabled there alone.

    Raises
    ------
    ProviderError
        A tool is missing and may not be installed, no mirror is configured or answers, or a package is gone.
    """
    options = apt_config.options()
    lines = apt_config.debian_lines(SUITE, _CUDA_COMPONENTS if cuda else ())
    packages = (*_PACKAGES, *(_CUDA_PACKAGES if cuda else ()))
    hooks = [
        f"apt-get build-dep --yes --quiet --no-install-recommends {SOURCE}",
        f"sh -c '{_FETCH}'",
        *([f"sh -c '{_UNPACK.format(_CUDA_UNPACKED)}'"] if cuda else ()),
    ]
    question = [_FORMAT, SUITE, SOURCE, platform.machine(), packages, lines]
    entry = cache / hashlib.sha256(json.dumps(question).encode()).hexdigest()[:16]
    found = _read(entry)
    if found is not None:
        return found
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / "lock"):
        found = _read(entry)
        if found is not None:
            return found
        require({"mmdebstrap": "mmdebstrap", "bwrap": "bubblewrap"}, report, ask)
        for left in cache.glob("tmp-*"):
            _delete(left)
        temporary = cache / f"tmp-{uuid.uuid4().hex}"
        temporary.mkdir()
        temporary.chmod(0o755)
        try:
            report(
                f"making a Debian {SUITE} root with {SOURCE}'s build dependencies"
                + (" and CUDA (2 GB to download, about five minutes)" if cuda else " (about two minutes)")
            )
            _debootstrap(temporary / "root", packages, lines, options, hooks)
            record = _describe(temporary / "root")
            (temporary / "record.json").write_text(json.dumps(record, indent=1, sort_keys=True))
            _delete(entry)
            os.replace(temporary, entry)
        finally:
            _delete(temporary)
    made = _read(entry)
    if made is None:
        raise ProviderError(f"{entry} is incomplete", f"Delete {entry} and run again.")
    return made


def require(programs: dict[str, str], report: Callable[[str], None], ask: Callable[[str], bool]) -> None:
    """Make sure that programs are there, installing their Debian packages only after asking.

    Parameters
    ----------
    programs:
        Program to the Debian package that has it.

    Raises
    ------
    ProviderError
        Something is missing and was not installed; the remedy is the command.
    """
    missing = sorted({package for program, package in programs.items() if shutil.which(program) is None})
    if not missing:
        return
    command = [
        *(() if os.geteuid() == 0 else ("sudo",)),
        "apt-get",
        "install",
        "--no-install-recommends",
        *missing,
    ]
    shown = " ".join(command)
    if ask(
        f"{' and '.join(missing)} must be installed on this machine for the debian provider. Run: {shown} ?"
    ):
        report(shown)
        subprocess.run([*command, "--yes"], check=False, stdout=subprocess.DEVNULL)
    if any(shutil.which(program) is None for program in programs):
        raise ProviderError(f"the debian provider needs {' and '.join(missing)}", f"Run: {shown}")


def _debootstrap(
    root: Path, packages: Sequence[str], lines: Sequence[str], options: Sequence[str], hooks: Sequence[str]
) -> None:
    argv = [
        "mmdebstrap",
        "--mode=root" if os.geteuid() == 0 else "--mode=unshare",
        "--variant=buildd",
        f"--include={','.join(packages)}",
        *(f"--aptopt={option}" for option in (*options, 'Acquire::Languages "none";')),
        *(f'--customize-hook=chroot "$1" {hook}' for hook in hooks),
        SUITE,
        str(root),
        "-",
    ]
    process = subprocess.Popen(
        [*_dies_with_us(), *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
    )
    try:
        printed, _ = process.communicate("\n".join(lines) + "\n", timeout=_PATIENCE)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)
        if isinstance(error, subprocess.TimeoutExpired):
            raise ProviderError(
                f"making the Debian root took more than {_PATIENCE // 3600} hours", "Check the mirror."
            ) from error
        raise
    if process.returncode != 0:
        said = [line for line in printed.splitlines() if _tells_error(line)] or printed.splitlines()
        raise ProviderError(
            "making the Debian root failed:\n  " + "\n  ".join(said[-12:]),
            "Check the network and this machine's apt sources (apt-get update).",
        )


def _tells_error(line: str) -> bool:
    """Whether a line of mmdebstrap or apt tells what went wrong."""
    return line.startswith(("E:", "Err:", "W: Failed", "dpkg-source: error"))


def _dies_with_us() -> list[str]:
    """Words before a command that end it and all it starts when this process is killed."""
    words = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    if words and os.geteuid() == 0 and shutil.which("unshare"):
        words += ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    return words


def _describe(root: Path) -> dict[str, str]:
    listed = subprocess.run(
        ["dpkg-query", f"--root={root}", "--show", "--showformat=${binary:Package} ${Version}\n"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    sums = (root / _SOURCE_FOLDER / "SHA256SUMS").read_text()
    if not (root / _SOURCE_FOLDER / "tree" / "setup.py").is_file():
        raise ProviderError(f"Debian's source package {SOURCE} has no setup.py", "Report this as a bug.")
    return {
        "fingerprint": hashlib.sha256((listed + sums).encode()).hexdigest(),
        "packages": listed,
        "sources": sums,
        "release": (root / "etc/debian_version").read_text().strip(),
    }


def _read(entry: Path) -> DebianRoot | None:
    try:
        record = json.loads((entry / "record.json").read_text())
    except (OSError, ValueError):
        return None
    root = entry / "root"
    return DebianRoot(
        path=root,
        source=root / _SOURCE_FOLDER / "tree",
        fingerprint=record["fingerprint"],
        release=record["release"],
    )


def _delete(folder: Path) -> None:
    """Delete a folder, but never through something mounted below it."""
    if not folder.exists():
        return
    mounts = Path("/proc/self/mounts").read_text().splitlines() if Path("/proc/self/mounts").exists() else []
    below = [line.split()[1] for line in mounts if line.split()[1].startswith(f"{folder}/")]
    if below:
        raise ProviderError(f"something is mounted below {folder}", f"Run: umount {' '.join(below)}")
    shutil.rmtree(folder)
