"""Fetch an extension's sources: an archive from pip's configured indexes, or a git clone."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from packaging.version import Version

from cuda_code.judge import empty
from groundwork import archives, files
from groundwork.errors import IntegrityError, MegabuildError, OutOfSpaceError, ProviderError
from groundwork.machine import filled_disk
from groundwork.network.index import Configured, File, configured, offered
from groundwork.process import run
from pyg_extensions.find_wheel import check_sha256, fetch
from pyg_extensions.table import Extension, ExtensionRelease

_CLONE_SECONDS = 600.0
_ASK_SECONDS = 30.0
_BUILT = ("build", "dist")  # folders of a checkout that a build by hand leaves
_NOT_SOURCES = (".git", *_BUILT)
_LARGEST = 64 << 20  # bytes; the archives have at most 0.2 MB


def download(
    wanted: Sequence[ExtensionRelease], cache: Path, indexes: Callable[[], Configured] = configured
) -> Path:
    """Fetch the missing archives from pip's indexes into the cache, each completely or not at all; return their folder.

    ``pip download`` would run setup.py, which imports PyTorch, to learn a name that is known already.

    Raises ProviderError: No index answers, or no index has the archive.
    Raises IntegrityError: An archive's hash differs from the matrix's.
    """
    folder = cache / "sdists"
    for release in wanted:
        path = folder / release.archive
        if not path.is_file() or files.sha256(path) != release.sha256:
            _fetch_archive(release, path, indexes())
    return folder


def _fetch_archive(wanted: ExtensionRelease, path: Path, where: Configured) -> None:
    """Fetch an archive from the first index that has it; raises the error of the first one that lists it."""
    failure: MegabuildError | None = None
    for address in _addresses(wanted, where):
        try:
            fetch(address, path, wanted.sha256, where, limit=_LARGEST)
        except (ProviderError, IntegrityError) as error:
            failure = failure or error
        else:
            return
    if failure is not None:
        raise failure


def _addresses(wanted: ExtensionRelease, where: Configured) -> list[str]:
    """Return the addresses at which indexes have an archive, the best first."""
    listed, troubles = offered(wanted.name, where, where.client().page)
    candidates: list[File] = []
    for file in listed:
        if not file.tags and file.version == Version(wanted.version) and file.name.endswith(".tar.gz"):
            candidates.append(file)
    if not candidates:
        problem = f"pip's index has no {wanted.archive}"
        raise ProviderError("; ".join([problem, *troubles]), "check pip's indexes: pip config list")
    # an earlier index may have another archive of this name
    found: list[str] = []
    for sha256 in (wanted.sha256, ""):
        found += [file.url for file in candidates if file.sha256 == sha256]
    return list(dict.fromkeys(found)) or [candidates[0].url]  # the last one's hash is in the error


def source_identity(extension: Extension, wanted: ExtensionRelease, folder: Path | None) -> str:
    """Return an identifier of the sources that :func:`unpack_sources` would use, without fetching them."""
    if folder and (archive := wanted.within(folder)):
        return files.sha256(archive)
    if folder and (checkout := extension.checkout_within(folder)):
        return _hash_checkout(checkout)
    return wanted.sha256 or f"{extension.repository} {wanted.version}"


def _hash_checkout(checkout: Path) -> str:
    digest = hashlib.sha256()
    for path in files.below(checkout):
        inside = path.relative_to(checkout)
        if path.is_file() and inside.parts[0] not in _NOT_SOURCES:
            digest.update(f"{inside}\0{files.sha256(path)}\0".encode())
    return digest.hexdigest()


def unpack_sources(
    extension: Extension,
    wanted: ExtensionRelease,
    work: Path,
    *,
    folder: Path | None,
    cache: Path,
    indexes: Callable[[], Configured] = configured,
    only_try: bool = False,
) -> Path:
    """Put the sources into the empty folder ``work`` and return the folder with their setup.py.

    An archive or a checkout in the user's ``folder`` comes first, then pip's ``indexes``. An extension without archives
    is cloned; with ``only_try``, its repository is only asked for the version's tag.
    """
    archive = wanted.within(folder) if folder else None
    if folder and archive is None and (checkout := extension.checkout_within(folder)):
        return _copy_checkout(checkout, work / "checkout")
    lacking = f"{extension.name} {wanted.version}: no sources"
    if archive is None and not extension.has_sdist:
        return _clone(extension, wanted.version, work / "checkout", lacking, only_try=only_try)
    if archive is None:
        try:
            archive = download([wanted], cache, indexes) / wanted.archive
        except ProviderError as error:
            remedy = f"{error.remedy}, or pass a folder with the archive: --pyg-sources DIR"
            raise ProviderError(f"{lacking}: {error.message}", remedy) from error
    check_sha256(archive, wanted.sha256)
    return _unpack_archive(archive, extension, work / "unpacked")


def _unpack_archive(archive: Path, extension: Extension, target: Path) -> Path:
    """Unpack an archive and return the folder with its setup.py."""
    archives.unpack(archive, target)
    is_sdist = any(target.glob("*/PKG-INFO"))
    if is_sdist and not any(target.rglob("*.cpp")):
        fault = empty(extension.name)
        raise IntegrityError(f"{archive.name}: {fault.reason}", fault.remedy)
    setups = sorted(target.glob("*/setup.py"))
    if not setups:
        raise IntegrityError(f"{archive.name}: no setup.py", "download the archive again")
    return setups[0].parent


def _copy_checkout(checkout: Path, target: Path) -> Path:
    """Copy a checkout and make the copy writable: the checkout may be on a read-only disk.

    The files of an earlier build are left out: setuptools would pack them in place of sources that it takes for older.
    """

    def left_out(folder: str, names: Sequence[str]) -> list[str]:
        return [name for name in names if name in _BUILT and Path(folder) == checkout]

    shutil.copytree(checkout, target, symlinks=True, ignore=left_out, copy_function=shutil.copy)
    for path in [target, *target.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
    return target


def _clone(extension: Extension, version: str, target: Path, lacking: str, *, only_try: bool) -> Path:
    if only_try:
        words = ["ls-remote", "--exit-code", extension.git, f"refs/tags/{version}"]
        timeout = _ASK_SECONDS
    else:
        words = ["clone", "--quiet", "--depth", "1", "--branch", version]
        words += ["--recurse-submodules", "--shallow-submodules", extension.git, str(target)]
        timeout = _CLONE_SECONDS
    remedy = f"put a checkout with its submodules into DIR/{extension.conda} and pass --pyg-sources DIR"
    git = shutil.which("git")
    if git is None:
        raise ProviderError(f"{lacking}: git is not installed", f"install git, or {remedy}")
    environ = {**os.environ, "LC_ALL": "C.UTF-8", "GIT_TERMINAL_PROMPT": "0"}
    done = run([git, "-c", "advice.detachedHead=false", *words], timeout=timeout, environ=environ)
    if done.returncode != 0:
        if not only_try and filled_disk(target.parent, done.stderr):
            raise OutOfSpaceError(
                f"{lacking}: the disk is full ({target.parent})", "free some space and start again"
            )
        causes = ["git failed, or took too long"]
        causes += re.findall(r"^(?:fatal|error): (.*)", done.stderr, re.MULTILINE)
        raise ProviderError(f"{lacking}: {causes[-1]}", remedy)
    return target
