"""The published channel of a config: verified packages, with the fingerprints of their inputs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from groundwork import channel_folder, files
from groundwork.channel import Channel
from groundwork.errors import IntegrityError, UsageError
from groundwork.names import package_name
from groundwork.network.channel_logins import separate_logins
from groundwork.text import Sign

if TYPE_CHECKING:
    from megabuild.engine.archive import Archive  # the progress of tools for any environment needs no engine

RECORDS = ".megabuild-packages.json"
#: Hint of the errors on a run without packages or records.
BUILD_FIRST = "build the config first, or pass its output folder with --output"
#: The end of a build string: the hash that rattler-build or conda-build made, if any, and the build number.
HASH_AND_NUMBER = re.compile(r"(?:h[0-9a-f]+)?_\d+$")
#: In a published channel: lists of further channels that its packages need, the latest run's list first.
_BESIDE = ".megabuild-channels.json"


@dataclass(frozen=True, kw_only=True)
class PublishedPackage:
    """A published package."""

    path: str  #: below the channel
    size: int
    sha256: str
    fingerprint: str  #: sha256 over the package's inputs
    seconds: float = 0.0  #: duration of its build script
    is_tested: bool = True  #: whether its own tests ran and passed
    #: file name of the package of PyTorch's own tests that a run had for it, and that has not passed; or empty
    awaits: str = ""
    modified: int = 0  #: mtime in nanoseconds: a plan does not hash a file with this mtime again


_PUBLISHED = msgspec.json.Decoder(dict[str, PublishedPackage])


@dataclass(frozen=True, kw_only=True)
class MissingTests:
    """The tests that published packages have not passed."""

    #: packages whose own tests never ran, since this machine could not run them
    untested: tuple[str, ...] = ()
    #: packages of PyTorch's own tests that failed, or never ended
    failed: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """Warnings for people; none if all tests have passed."""
        lines: list[str] = []
        if self.failed:
            lines.append(f"{Sign.warning} {FAILED_TESTS}: {labels(self.failed)}")
        if self.untested:
            lines.append(f"{Sign.warning} {UNTESTED}: {labels(self.untested)}")
        return lines


#: Begin warnings and errors.
FAILED_TESTS = "PyTorch's own tests failed or never ran"
UNTESTED = "never tested"


def labels(names: Iterable[str]) -> str:
    """Return packages for people, by file name."""
    return ", ".join(name.removesuffix(".conda") for name in names)


def find_missing_tests(channel: Path, names: Iterable[str]) -> MissingTests:
    """Return the tests that published packages have not passed; ``names`` are file names, also of other packages.

    Raises OSError, IntegrityError: The records cannot be read, or are damaged.
    """
    published = _read_records(channel)
    untested: list[str] = []
    failed: dict[str, None] = {}
    for name in names:
        record = published.get(name)
        if record is None:
            continue
        if not record.is_tested:
            untested.append(name)
        if record.awaits:
            failed[record.awaits] = None
    return MissingTests(untested=tuple(untested), failed=tuple(failed))


def current_names(channel: Path, planned: Iterable[str]) -> list[str]:
    """Return the file names of published packages, without builds that the ``planned`` or later ones replace.

    Builds of a package differ in version, hash and number only. If nothing else is in its build string, several may be
    for a Python each: then only a planned one replaces the others. Reads the records alone.

    Raises OSError: The records exist, but cannot be read.
    """
    published = records(channel)
    in_plan = published.keys() & set(planned)
    latest: dict[_Variant, str] = {}
    for name in sorted(published, key=lambda name: (name in in_plan, published[name].modified)):
        latest[_variant(name)] = name
    replaced = {variant for variant, name in latest.items() if variant.build or name in in_plan}
    current = {*in_plan, *latest.values()}
    return [name for name in published if name in current or _variant(name) not in replaced]


class _Variant(NamedTuple):
    name: str
    build: str  #: without hash and number


def _variant(file_name: str) -> _Variant:
    build = file_name.removesuffix(".conda").rpartition("-")[2]
    return _Variant(package_name(file_name), HASH_AND_NUMBER.sub("", build))


def records(channel: Path) -> dict[str, PublishedPackage]:
    """Return the published packages by file name, none if the records are damaged.

    Records of files outside the channel are ignored.

    Raises OSError: The records exist, but cannot be read.
    """
    try:
        return _read_records(channel)
    except IntegrityError:
        return {}


def _read_records(channel: Path) -> dict[str, PublishedPackage]:
    """Do as :func:`records`, but raise IntegrityError if the records are damaged."""
    path = channel / RECORDS
    try:
        published = _PUBLISHED.decode(files.read_text(path))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise IntegrityError(f"{path} is damaged", f"build {channel.name} again to replace it") from error
    inside = {}
    for name, record in published.items():
        if channel_folder.is_package(record.path) and record.path.endswith(f"/{name}"):
            inside[name] = record
    return inside


def channels_beside(channel: Path) -> list[tuple[Channel, ...]]:
    """Return the channels of :func:`needed_channels`; none if their record is damaged, which the next run replaces."""
    try:
        return needed_channels(channel)
    except IntegrityError:
        return []


def needed_channels(channel: Path) -> list[tuple[Channel, ...]]:
    """Return the lists recorded by :func:`note_channels`, the latest first, without lists of missing folders.

    Raises IntegrityError: The record is damaged.
    """
    return [channels for channels in _noted_channels(channel) if all(map(_exists, channels))]


def _noted_channels(channel: Path) -> list[tuple[Channel, ...]]:
    path = channel / _BESIDE
    try:
        lists = msgspec.json.decode(path.read_bytes(), type=list[list[str]])
        return [tuple(map(Channel.parse, addresses)) for addresses in lists]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (msgspec.MsgspecError, UnicodeDecodeError, UsageError) as error:
        raise IntegrityError(f"{path} is damaged", f"build {channel.name} again to replace it") from error


def _exists(channel: Channel) -> bool:
    """Return whether a channel is on a server, or its folder exists."""
    return channel.folder is None or channel.folder.is_dir()


def note_channels(channel: Path, beside: Sequence[Channel]) -> None:
    """Record the further channels that a published channel's packages were made with, in order of priority.

    Lists of former runs are kept: runs for other Pythons may have used other channels, also ones whose folders are
    missing at present, as those of a disk that is not mounted.
    """
    if not channel.is_dir():
        return
    lists: list[list[str]] = []
    try:
        noted = _noted_channels(channel)
    except IntegrityError:
        noted = []  # this record replaces it
    # earlier versions recorded credentials, too
    former = [separate_logins(channels).by_priority for channels in noted]
    for channels in (beside, *former):
        addresses = [item.address for item in channels]
        if addresses not in lists:
            lists.append(addresses)
    files.write(channel / _BESIDE, msgspec.json.encode(lists), mode=0o644)


def paths(channel: Path, names: Iterable[str]) -> list[Path]:
    """Return the paths of published packages, by file name."""
    published = records(channel)
    return [channel / published[name].path for name in names]


def write_sums(output: Path) -> Path:
    """Write the hashes of all undamaged packages below an output folder, for ``sha256sum --check``; return the path."""
    sums: dict[str, str] = {}  # by path
    for channel in (output / "packages").glob("*"):
        for record in records(channel).values():
            if is_published(channel, record, record.fingerprint):
                sums[f"packages/{channel.name}/{record.path}"] = record.sha256
    lines = [f"{sha256}  {path}\n" for path, sha256 in sorted(sums.items())]
    files.write(output / "SHA256SUMS", "".join(lines), mode=0o644)
    return output / "SHA256SUMS"


def is_published(channel: Path, record: PublishedPackage | None, fingerprint: str) -> bool:
    """Return whether a package exists, unchanged since it was published, and was made from the same inputs."""
    if record is None or record.fingerprint != fingerprint:
        return False
    # hashed only if its mtime has changed
    return files.intact(channel / record.path, digest=record.sha256, size=record.size, when=record.modified)


def check(path: Path) -> None:
    """Read a package file, and compare it with its record if it is in a published channel.

    The mtime is not enough: bit rot does not change it.

    Raises IntegrityError: The file is missing or differs from its record.
    """
    channel = path.absolute().parent.parent
    record = records(channel).get(path.name)
    if record and channel / record.path == path.absolute() and not _is_sound(channel, record):
        reason = "damaged since it was published" if path.exists() else "missing, although it was published"
        raise IntegrityError(f"{path}: {reason}", "run the build again to replace it")


def _is_sound(channel: Path, record: PublishedPackage) -> bool:
    """Return whether a file has the published content; reads all of it.

    Raises IntegrityError: The file exists, but cannot be read.
    """
    path = channel / record.path
    try:
        return path.stat().st_size == record.size and files.sha256(path) == record.sha256
    except FileNotFoundError:
        return False
    except OSError as error:
        raise IntegrityError(
            f"{path}: cannot be read: {error.strerror}",
            "check the disk, or delete the file and run the build again",
        ) from error


def repair(channel: Path, platform: str) -> list[str]:
    """Remove damaged packages from a channel, and repair its index; return a sentence for each repair.

    Reads every package: gigabytes in seconds, while building on a damaged one would cost hours. The caller holds the
    config's lock.
    """
    if not channel.is_dir():
        return []
    published = records(channel)
    problems = []
    for name in _drop_damaged(channel, published):
        problems.append(f"{name}: damaged since it was published, removed from the channel")
    # left by a killed run, or its record is lost: the index can only contain an undamaged file
    for path in list(channel_folder.package_files(channel)):
        if path.name not in published and _is_damaged(path):
            path.unlink()
            problems.append(f"{path.name}: damaged and without a record, removed from the channel")
    if not _is_indexed(channel, published):
        channel_folder.index(channel, platform)
        if not problems:
            problems.append(f"{channel}: its index was damaged and has been rebuilt")
    return problems


def _is_damaged(path: Path) -> bool:
    """Return whether a package file is damaged. Raises IntegrityError: This user may not read the file."""
    from megabuild.engine import archive  # imported late: reading records needs none of it

    try:
        archive.read(path)
    except IntegrityError as error:
        if isinstance(error.__cause__, PermissionError):
            raise
        return True
    return False


def _is_indexed(channel: Path, published: Mapping[str, PublishedPackage]) -> bool:
    """Return whether a channel's index names its published packages, and no missing file."""
    index = channel_folder.listed_hashes(channel)
    if index is None:
        return False
    paths = {path.relative_to(channel).as_posix() for path in channel_folder.package_files(channel)}
    if not index.keys() <= paths:
        return False
    return all(index.get(record.path) == record.sha256 for record in published.values())


def _drop_damaged(channel: Path, published: dict[str, PublishedPackage]) -> list[str]:
    """Read all packages that have a record; remove the damaged ones, and return their names."""
    damaged = [name for name, record in published.items() if not _is_sound(channel, record)]
    _drop(channel, published, damaged)
    return damaged


def _drop(channel: Path, published: dict[str, PublishedPackage], names: Iterable[str]) -> None:
    """Remove packages that have a record, first from the records; the index is written later."""
    removed = [published.pop(name) for name in names if name in published]
    if removed:
        _write(channel, published)
    for record in removed:
        (channel / record.path).unlink(missing_ok=True)


def publish(
    channel: Path,
    archives: Sequence[Archive],
    *,
    platform: str,
    fingerprints: Mapping[str, str],
    seconds: Mapping[str, float],
    is_tested: bool = True,
    awaited: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, PublishedPackage]:
    """Move verified packages into the channel and index it; return all published packages by file name.

    The order is files (by rename), index, records: a package with a record can be installed. Earlier packages are read
    again, so that the index names no damaged one. Moving, not linking: no build can write to a published inode.
    ``fingerprints`` and ``seconds`` are by file name, and so are the packages of PyTorch's own tests that are
    ``awaited``. Such a package that is published with ``is_tested`` has passed; one that has passed with former content
    is removed.

    Raises IntegrityError: An earlier package was damaged meanwhile; the others are published.
    """
    published = records(channel)
    names = {package.path.name for package in archives}
    damaged = [name for name in _drop_damaged(channel, published) if name not in names]
    _drop(channel, published, {awaited[name] for name in names if name in awaited} - names)
    for package in archives:
        name = package.path.name
        target = channel / package.path.parent.name / name
        published.pop(name, None)
        _write(channel, published)  # a killed run must not leave the former record next to the new file
        files.move(package.path, target)
        files.sync(target)  # a power cut must not take a package that a run has reported
        published[name] = PublishedPackage(
            path=f"{package.path.parent.name}/{name}",
            size=target.stat().st_size,
            sha256=files.sha256(target),
            modified=target.stat().st_mtime_ns,
            fingerprint=fingerprints[name],
            seconds=round(seconds.get(name, 0.0), 1),
            is_tested=is_tested,
            awaits=awaited.get(name, ""),
        )
    if is_tested:
        for name, record in published.items():
            if record.awaits in names:
                published[name] = replace(record, awaits="")
    channel_folder.index(channel, platform)
    channel.parent.chmod(0o755)
    _write(channel, published)
    if damaged:
        raise IntegrityError(
            f"{', '.join(sorted(damaged))}: damaged since it was published, removed from the channel",
            "check the disk, then run the build again to replace the package",
        )
    return published


def await_tests(channel: Path, awaited: Mapping[str, str]) -> None:
    """Record the packages of PyTorch's own tests that published packages have not passed, by file name."""
    published = records(channel)
    known = published.keys() & awaited.keys()
    for name in known:
        published[name] = replace(published[name], awaits=awaited[name])
    if known:
        _write(channel, published)


def _write(channel: Path, published: Mapping[str, PublishedPackage]) -> None:
    files.write(channel / RECORDS, msgspec.json.format(msgspec.json.encode(published), indent=1), mode=0o644)
