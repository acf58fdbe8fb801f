"""An extension's sources, ready to be compiled: unpacked from an archive, copied from a checkout, or cloned."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from megabuild import files
from megabuild.errors import IntegrityError, ProviderError
from megabuild.extensions.sdist import Sdist
from megabuild.extensions.table import Extension

_CLONE_SECONDS = 600.0


def obtain(
    extension: Extension,
    wanted: Sdist,
    work: Path,
    *,
    folder: Path | None,
    download: Callable[[Sequence[Sdist]], Path],
) -> Path:
    """Return the folder with setup.py.

    Parameters
    ----------
    extension:
        Whose sources.
    wanted:
        Its archive; of one that has none, the name and version.
    work:
        An empty folder to unpack in.
    folder:
        The user's folder of sources, looked at first, or None.
    download:
        Gets archives into a folder.

    Raises
    ------
    ProviderError
        The sources cannot be had.
    IntegrityError
        An archive is not the one that the matrix names.
    """
    if folder is not None:
        archive = wanted.within(folder)
        if archive is not None:
            return _unpacked(archive, wanted, work)
        plain = [folder / extension.conda, folder / extension.name]
        checkout = next((path for path in plain if (path / "setup.py").is_file()), None)
        if checkout is not None:
            return Path(shutil.copytree(checkout, work / "checkout", symlinks=True))
    what = f"no sources of {extension.name} {wanted.version}"
    if not extension.has_sdist:
        return _cloned(extension, wanted.version, work / "checkout", what)
    try:
        found = download([wanted])
    except ProviderError as error:
        raise ProviderError(
            f"{what}: {error.message}", f"{error.remedy}, or name a folder with it: --pyg-sources FOLDER"
        ) from error
    return _unpacked(found / wanted.file_name, wanted, work)


def _unpacked(archive: Path, wanted: Sdist, work: Path) -> Path:
    wanted.check(archive)
    target = work / "unpacked"
    files.unpack(archive, target)
    found = sorted(target.glob("*/setup.py"))
    if not found:
        raise IntegrityError(f"{archive.name} has no setup.py", "get the archive again")
    return found[0].parent


def _cloned(extension: Extension, version: str, target: Path, what: str) -> Path:
    """Clone upstream's repository with its submodules; there is no archive of it."""
    where = f"put a checkout with its submodules into a folder as {extension.conda}/"
    remedy = f"{where} and name it: --pyg-sources FOLDER"
    git = shutil.which("git")
    if git is None:
        raise ProviderError(f"{what}: git is not installed", remedy)
    argv = [git, "-c", "advice.detachedHead=false", "clone", "--quiet", "--depth", "1", "--branch", version]
    argv += ["--recurse-submodules", "--shallow-submodules", f"{extension.repository}.git", str(target)]
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
        said = [line for line in done.stderr.splitlines() if line.startswith(("fatal: ", "error: "))]
        last = (said or done.stderr.splitlines() or ["git said nothing"])[-1]
        raise ProviderError(f"{what}: {last.removeprefix('fatal: ')}", remedy)
    return target
