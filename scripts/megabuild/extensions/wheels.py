"""Prebuilt or compile, for one extension and Python: a wheel that fits and holds what it should, or why none does."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import shutil
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from email import message_from_string
from pathlib import Path
from urllib.parse import urlsplit

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from megabuild import files
from megabuild.errors import IntegrityError, ProviderError
from megabuild.extension_table import Extension
from megabuild.extensions.pyg_index import Fit, Index, Target, fitting
from megabuild.network import redact
from megabuild.network.client import Client, Patience
from megabuild.network.index import File, local_path

_FOLDER = "pyg-wheels"
_PATIENCE = Patience(read=20.0, total=900.0)  # with kernels for many GPUs they have some tens of megabytes
_UNLISTED = ("RECORD", "RECORD.jws", "RECORD.p7s")  # a record cannot hold its own hash


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A wheel, or why there is none."""

    wheel: Path | None  #: the verified wheel in the cache, or None: compile
    reason: str  #: for the plan: the wheel's name, or why there is none
    version: str = ""  #: the wheel's version with its local part, or an empty string


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a wheel's libraries must be; the question to whoever looks inside."""

    extension: Extension  #: which one
    target: Target  #: PyTorch, accelerator, Python
    #: CUDA archs that must be covered, as in ``TORCH_CUDA_ARCH_LIST``; empty where any will do
    archs: tuple[str, ...] = ()
    #: they must be there themselves; otherwise it is enough that such a GPU can run what is there
    exact_archs: bool = False
    #: the environment with the PyTorch that the wheel is to work with, where there is one already
    beside: Path | None = None


#: Looks inside a wheel: an empty string for one that is what was wanted, else what it is instead.
Judge = Callable[[Path, Wanted], str]


def choose(
    wanted: Wanted,
    version: str,
    *,
    index: Index,
    cache: Path,
    report: Callable[[str], None],
    judge: Judge,
) -> Choice:
    """Look for a wheel that fits, fetch it and look inside.

    Parameters
    ----------
    wanted:
        What it must be.
    version:
        Only this version, or an empty string for the newest.
    index:
        Where to look.
    cache:
        The folder that configs share; wheels lie in ``pyg-wheels`` below it.
    report:
        Takes a sentence for everything that takes time.
    judge:
        Looks inside the wheel.

    Returns
    -------
    A choice in any case: an index that does not answer, a broken file or a wheel that fails is a reason to compile.
    """
    fit = offers(wanted, version, index)
    problem = fit.reason
    for wheel in fit.wheels:
        try:
            path = _had(wheel, cache, report)
        except (ProviderError, IntegrityError) as error:
            problem = problem or error.message
            continue
        report(f"looking into {wheel.name}")
        found = judge(path, wanted)
        if not found:
            return Choice(wheel=path, version=str(wheel.version), reason=wheel.name)
        problem = problem or f"the wheel {found}"
    return Choice(wheel=None, reason=problem)


def offers(wanted: Wanted, version: str, index: Index) -> Fit:
    """Return the wheels that fit by their names, the best first; as for :func:`choose`, but nothing is fetched."""
    target = wanted.target
    try:
        offered = index.wheels(target.torch_version, target.tag)
    except ProviderError as error:
        return Fit(wheels=(), reason=error.message)
    if not offered:
        return Fit(wheels=(), reason=f"the index has no page for torch {target.torch_minor} {target.tag}")
    return fitting(wanted.extension.name, offered, target, version or None)


def _had(wheel: File, cache: Path, report: Callable[[str], None]) -> Path:
    """Return a whole copy of the wheel in the cache, from there if it is in it."""
    key = hashlib.sha256(f"{wheel.url}#{wheel.sha256 or None}".encode()).hexdigest()[:16]
    path = cache / _FOLDER / key / wheel.name
    if wheel.sha256 and path.is_file() and files.sha256(path) == wheel.sha256:
        return path
    # Without a hash an index may change a file under the same name; a local folder costs nothing to read again.
    kept = not wheel.sha256 and not wheel.url.startswith("file:") and path.is_file()
    if not kept or why_broken(path):
        report(f"fetching {wheel.name}")
        fetch(wheel.url, path, wheel.sha256)
    broken = why_broken(path)
    if broken:
        path.unlink()
        raise IntegrityError(f"the wheel is damaged: {broken}", "the index or a proxy in between is at fault")
    return path


def fetch(address: str, target: Path, sha256: str) -> Path:
    """Copy a file to ``target``, where it appears complete and with the right hash or not at all.

    Parameters
    ----------
    address:
        ``http:``, ``https:`` or ``file:``.
    target:
        The file to make; its folder may be missing.
    sha256:
        The hash it must have, in hex; empty where none is known.

    Raises
    ------
    ProviderError
        No answer, no such file, or the connection broke three times.
    IntegrityError
        The file has another hash.
    """
    try:
        with files.scratch(target.parent) as empty:
            partial = empty / target.name
            if urlsplit(address).scheme == "file":
                shutil.copyfile(local_path(address), partial)
            else:
                Client(patience=_PATIENCE).save(address, partial)
            found = files.sha256(partial)
            if sha256 and found != sha256:
                raise IntegrityError(
                    f"{target.name}: sha256 is {found[:12]}…, the index says {sha256[:12]}…",
                    "the index or a proxy in between is at fault",
                )
            partial.replace(target)
    except OSError as error:
        raise ProviderError(
            f"cannot copy {redact.address(address)}: {error.strerror or error}",
            "check the folder's permissions and the disk",
        ) from error
    return target


def why_broken(path: Path) -> str:
    """Return what is wrong with a wheel file, or an empty string for one that is whole.

    Indexes need not give hashes; every wheel carries those of its files (the binary distribution format's RECORD).
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _unlike_its_record(archive, path.name)
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        return f"the archive cannot be read ({error})"
    except (UnicodeError, ValueError, KeyError) as error:
        return f"its metadata cannot be read ({error})"


def _unlike_its_record(archive: zipfile.ZipFile, file_name: str) -> str:
    names = archive.namelist()
    records = [name for name in names if name.count("/") == 1 and name.endswith(".dist-info/RECORD")]
    if len(records) != 1:
        return "it has no RECORD of its files"
    folder = records[0].rpartition("/")[0]
    text = archive.read(records[0]).decode()
    listed = {row[0]: row[1] for row in csv.reader(io.StringIO(text)) if len(row) >= 2}
    exempt = {f"{folder}/{name}" for name in _UNLISTED}
    for name in names:
        if name.endswith("/") or name in exempt:
            continue
        kind, _, wanted = listed.get(name, "").partition("=")
        if kind not in ("sha256", "sha384", "sha512"):
            return f"its RECORD has no hash of {name}"
        found = hashlib.new(kind, archive.read(name)).digest()
        if base64.urlsafe_b64encode(found).rstrip(b"=").decode() != wanted:
            return f"{name} is not what its RECORD says"
    lost = [name for name in listed if name not in names]
    if lost:
        return f"{lost[0]} is missing from it"
    head = message_from_string(archive.read(f"{folder}/METADATA").decode())
    project, version, _, _ = parse_wheel_filename(file_name)
    try:
        same = canonicalize_name(head["Name"] or "") == project and Version(head["Version"] or "") == version
    except InvalidVersion:
        same = False
    return "" if same else f"inside it calls itself {head['Name']} {head['Version']}"
