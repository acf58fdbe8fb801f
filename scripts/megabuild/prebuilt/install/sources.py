"""The sources of an extension, unpacked: from a folder of archives, through pip, or from upstream's repository."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from megabuild.errors import IntegrityError, ProviderError
from megabuild.prebuilt.extensions import Extension
from megabuild.prebuilt.install.pip import Pip, last_words

_CLONE_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class Wish:
    """Which sources.

    Parameters
    ----------
    extension:
        Whose.
    version:
        ``2.1.2``.
    sha256:
        Of the sdist, or an empty string where it is not known.
    folder:
        A folder with archives (``torch_scatter-2.1.2.tar.gz``) and checkouts (``pyg-lib/``), or None.
    """

    extension: Extension
    version: str
    sha256: str
    folder: Path | None


def obtain(wish: Wish, pip: Pip, work: Path, environ: Mapping[str, str]) -> Path:
    """Return the folder with setup.py.

    Parameters
    ----------
    pip:
        Asked for what the folder does not have.
    work:
        An empty folder to download and unpack in.
    environ:
        For pip, which runs setup.py in order to read the name of what it downloaded.

    Raises
    ------
    ProviderError
        The sources cannot be had.
    IntegrityError
        An archive is not the one that the matrix names.
    """
    if wish.folder is not None:
        for archive in _archives(wish, wish.folder):
            return _unpacked(_checked(archive, wish), work)
        for name in (wish.extension.conda, wish.extension.name):
            if (wish.folder / name / "setup.py").is_file():
                return Path(shutil.copytree(wish.folder / name, work / "checkout", symlinks=True))
    if wish.extension.repository:
        return _cloned(wish, work / "checkout")
    name = wish.extension.name
    pip.run(
        "download",
        *("--no-deps", "--no-build-isolation", "--no-binary", name, "--dest", str(work)),
        f"{name}=={wish.version}",
        what=f"no sources of {name} {wish.version}",
        environ=environ,
    )
    for archive in _archives(wish, work):
        return _unpacked(_checked(archive, wish), work)
    raise ProviderError(
        f"pip downloaded no {name}-{wish.version}.tar.gz", "name a folder with it: --sdists FOLDER"
    )


def _archives(wish: Wish, folder: Path) -> list[Path]:
    names = {wish.extension.name, wish.extension.name.replace("_", "-")}
    paths = [folder / f"{name}-{wish.version}.tar.gz" for name in sorted(names, reverse=True)]
    return [path for path in paths if path.is_file()]


def _checked(archive: Path, wish: Wish) -> Path:
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if wish.sha256 and found != wish.sha256:
        raise IntegrityError(
            f"{archive.name}: sha256 is {found[:12]}…, conda_build_config.yaml says {wish.sha256[:12]}…",
            "get the archive again",
        )
    return archive


def _unpacked(archive: Path, work: Path) -> Path:
    target = work / "unpacked"
    try:
        with tarfile.open(archive) as tar:
            if hasattr(tarfile, "data_filter"):  # Python 3.10 has it from its twelfth micro version on
                tar.extractall(target, filter="data")
            else:
                tar.extractall(target)
    except (OSError, tarfile.TarError, EOFError) as error:
        raise IntegrityError(
            f"{archive.name} cannot be unpacked ({error})", "get the archive again"
        ) from error
    found = sorted(target.glob("*/setup.py"))
    if not found:
        raise IntegrityError(f"{archive.name} has no setup.py", "get the archive again")
    return found[0].parent


def _cloned(wish: Wish, target: Path) -> Path:
    """Clone upstream's repository with its submodules; there is no sdist of it."""
    what = f"no sources of {wish.extension.name} {wish.version}"
    remedy = f"put a checkout with its submodules into a folder as {wish.extension.conda}/ and name it: --sdists FOLDER"
    git = shutil.which("git")
    if git is None:
        raise ProviderError(f"{what}: git is not installed", remedy)
    argv = [
        git,
        "-c",
        "advice.detachedHead=false",
        "clone",
        "--quiet",
        "--depth",
        "1",
        "--branch",
        wish.version,
    ]
    argv += ["--recurse-submodules", "--shallow-submodules", wish.extension.repository, str(target)]
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_CLONE_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ProviderError(f"{what}: no end after {_CLONE_SECONDS:.0f} s", remedy) from error
    if done.returncode != 0:
        said = last_words(done.stderr.replace("fatal: ", "error: "))
        raise ProviderError(f"{what}: {said.removeprefix('error: ')}", remedy)
    return target
