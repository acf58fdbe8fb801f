"""An extension's sources on this machine: an archive from the indexes that pip is configured for, or a clone."""

from __future__ import annotations

import hashlib
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from packaging.version import Version

from groundwork import files
from groundwork.errors import IntegrityError, ProviderError
from groundwork.network.index import HEADERS, Configured, configured, offered
from groundwork.program import run
from pyg_extensions.table import Extension, ExtensionRelease
from pyg_extensions.wheels import check_sha256, fetch

_CLONE_SECONDS = 600.0


def download(wanted: Sequence[ExtensionRelease], cache: Path, where: Configured | None = None) -> Path:
    """Return a folder in the program's cache with archives, those that it lacks fetched from the indexes that pip uses.

    ``pip download`` itself would run setup.py, which wants PyTorch, only to be told the name that it asked for.

    Raises
    ------
    ProviderError
        No index answers, or none has such an archive; nothing half-written stays behind.
    IntegrityError
        An archive is not the one that the matrix names.
    """
    folder = cache / "sdists"

    for one in wanted:
        path = folder / one.archive
        if not path.is_file() or files.sha256(path) != one.sha256:
            where = where or configured()
            fetch(_address(one, where), path, one.sha256, where)
    return folder


def _address(wanted: ExtensionRelease, where: Configured) -> str:
    found, _ = offered(wanted.name, where, lambda url: where.client().get(url, headers=HEADERS))
    for file in found:
        if not file.tags and file.version == Version(wanted.version) and file.name.endswith(".tar.gz"):
            return file.url
    raise ProviderError(f"pip's index has no {wanted.archive}", "check pip's configuration (pip config list)")


def identity(extension: Extension, wanted: ExtensionRelease, folder: Path | None) -> str:
    """Return what tells the sources that :func:`unpacked` would take from others, without fetching them."""
    if folder:
        if archive := wanted.within(folder):
            return files.sha256(archive)
        if checkout := extension.checkout_within(folder):
            digest = hashlib.sha256()
            for path in sorted(checkout.rglob("*")):
                inside = path.relative_to(checkout)
                if path.is_file() and inside.parts[0] not in (".git", "build", "dist"):
                    digest.update(f"{inside}\0{files.sha256(path)}\0".encode())
            return digest.hexdigest()
    return wanted.sha256 or f"{extension.repository} {wanted.version}"


def unpacked(
    extension: Extension, wanted: ExtensionRelease, work: Path, *, folder: Path | None, cache: Path
) -> Path:
    """Return a folder in ``work``, which is empty, with a setup.py ready to be run.

    An archive or a checkout in the user's folder comes first, where there is such a folder; then pip's indexes, or a
    clone of what has no archives.

    Raises
    ------
    ProviderError
        The sources are not available.
    IntegrityError
        An archive is not the one that the matrix names.
    """
    archive = wanted.within(folder) if folder else None
    if folder and archive is None and (checkout := extension.checkout_within(folder)):
        return _copied(checkout, work / "checkout")
    what = f"no sources of {extension.name} {wanted.version}"
    if archive is None and not extension.has_sdist:
        return _cloned(extension, wanted.version, work / "checkout", what)
    try:
        archive = archive or download([wanted], cache) / wanted.archive
    except ProviderError as error:
        raise ProviderError(
            f"{what}: {error.message}", f"{error.remedy}, or name a folder with it: --pyg-sources FOLDER"
        ) from error
    check_sha256(archive, wanted.sha256)
    files.unpack(archive, work / "unpacked")
    found = sorted((work / "unpacked").glob("*/setup.py"))
    if not found:
        raise IntegrityError(f"{archive.name} has no setup.py", "download the archive again")
    return found[0].parent


def _copied(checkout: Path, target: Path) -> Path:
    """Copy a checkout, which may lie on a disk that is read-only: the copy is to be written to."""
    shutil.copytree(checkout, target, symlinks=True, copy_function=shutil.copy)
    for path in [target, *target.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
    return target


def _cloned(extension: Extension, version: str, target: Path, what: str) -> Path:
    """Clone upstream's repository with its submodules; there is no archive of it."""
    where = f"put a checkout with its submodules into a folder as {extension.conda}/"
    remedy = f"{where} and name it: --pyg-sources FOLDER"
    git = shutil.which("git")
    if git is None:
        raise ProviderError(f"{what}: git is not installed", remedy)
    argv = [git, "-c", "advice.detachedHead=false", "clone", "--quiet", "--depth", "1", "--branch", version]
    argv += ["--recurse-submodules", "--shallow-submodules", extension.git, str(target)]
    done = run(argv, timeout=_CLONE_SECONDS)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith(("fatal: ", "error: "))]
        last = (said or done.stderr.splitlines() or ["git gave no reason"])[-1]
        raise ProviderError(f"{what}: {last.removeprefix('fatal: ')}", remedy)
    return target
