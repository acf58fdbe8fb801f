"""Channels that have exactly the packages of a record, for rattler-build, which solves the environments again itself.

The index of a channel on a server is written without packages: its ``base_url`` (CEP 15) is the server's address, from
which rattler-build downloads them. Packages of a channel in a folder are linked. A channel made of this machine's
programs never changes, so it is used as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from groundwork import channel_folder, files
from groundwork.channel import Channel
from groundwork.errors import IntegrityError, ProviderError
from groundwork.keys import Key
from groundwork.network.channel_logins import Channels
from groundwork.text import counted
from megabuild.configs.platforms import Platforms
from megabuild.plan import environment_record, solving
from megabuild.plan.environment_record import EnvironmentRecord, RecordedChannel, RecordedPackage
from megabuild.providers.environment import Environment

#: Below the cache: indexes without packages, which ``clean`` knows.
_INDEXES = "channel/planned"
#: Below the cache: channels made on this machine.
_CHANNELS = "channel/channels"
#: Packages that an error names.
_MOST_NAMES = 6


class VanishedError(ProviderError):
    """Packages of recorded environments are no longer available."""


@dataclass(frozen=True, kw_only=True)
class KeptIndex(Key):
    """A channel of recorded packages."""

    address: str  #: the channel that they come from
    documents: Mapping[str, Any]  #: the indexes by subdir


@dataclass(frozen=True, kw_only=True)
class KeptPlace:
    """The folders and the platforms of kept channels."""

    cache: Path
    unpacked: Path  #: rattler-build's packages of the config, unpacked
    platforms: Platforms


def keep_channels(record: EnvironmentRecord, given: Environment, place: KeptPlace) -> tuple[Channel, ...]:
    """Return channels with the recorded packages in place of the ``given`` ones; writes only to the cache.

    Raises VanishedError: A package is no longer in its channel, nor, for one on a server, in rattler-build's cache; the
        message names it.
    Raises ProviderError: The channels are others, or programs of this machine have changed.
    Raises ChannelError: A channel refuses, does not answer, or has an unreadable index.
    """
    if len(record.channels) != len(given.channels):
        raise ProviderError(_other_channels(record, given))
    on_servers = _listed_on_servers(record, given, place.platforms)
    kept = []
    for recorded, channel, listed in zip(record.channels, given.channels, on_servers, strict=True):
        packages = [package for package in record.packages if package.channel == recorded.address]
        if _is_made_here(channel):
            kept.append(_made_here(recorded, packages, given, place))
        elif channel.folder is not None:
            kept.append(_linked(channel, channel.folder, packages, place))
        else:
            _check_available(packages, listed, channel, place)
            kept.append(_indexed(recorded, channel, packages, place))
    return tuple(kept)


def _other_channels(record: EnvironmentRecord, given: Environment) -> str:
    before = ", ".join(channel.address for channel in record.channels)
    now = ", ".join(channel.address for channel in given.channels) or "none yet"
    return f"the channels are others: {now}; before: {before}"


def _listed_on_servers(
    record: EnvironmentRecord, given: Environment, platforms: Platforms
) -> Sequence[frozenset[tuple[str, str]]]:
    """Return file names and hashes in the channels on servers; nothing for those in folders."""
    if all(channel.folder is not None for channel in given.channels):
        return [frozenset()] * len(given.channels)
    names = sorted({package.name for package in record.packages})
    channels = Channels(by_priority=given.channels, logins=given.logins)
    return solving.list_packages(names, channels, platforms)


def _is_made_here(channel: Channel) -> bool:
    """Return whether a channel was made on this machine: such a channel is named by its content."""
    return channel.folder is not None and bool(channel_folder.package_keys(channel.folder))


def _made_here(
    recorded: RecordedChannel, packages: Iterable[RecordedPackage], given: Environment, place: KeptPlace
) -> Channel:
    former = Path(recorded.folder or "")
    moved = place.cache / _CHANNELS / former.name  # the cache may have been moved
    folder = former if former.is_dir() else moved
    changed = sorted(given.programs - channel_folder.package_keys(folder).keys())
    gone = []
    for package in packages:
        file = folder / package.subdir / package.file_name
        if not file.is_file():
            gone.append(package)
    if gone:
        raise _vanished(gone, recorded.address)
    if changed:
        names = _some([Path(name).stem for name in changed])
        raise ProviderError(f"programs of this machine have changed, which no channel keeps: {names}")
    return Channel.of_folder(folder, this_machine=recorded.this_machine)


def _linked(channel: Channel, source: Path, packages: Sequence[RecordedPackage], place: KeptPlace) -> Channel:
    """Return a channel with links to packages of a folder."""
    index = KeptIndex(address=channel.address, documents=_documents(packages, place.platforms))
    folder = _write(index, place)
    gone = []
    for package in packages:
        target = folder / package.subdir / package.file_name
        original = source / package.subdir / package.file_name
        if target.is_file():
            continue
        if original.is_file() and files.sha256(original) == package.sha256:
            files.link(original, target)
        else:  # rattler-build reads run_exports from the files of a folder, not from its cache
            gone.append(package)
    if gone:
        raise _vanished(gone, channel.address)
    return replace(channel, folder=folder)


def _check_available(
    packages: Iterable[RecordedPackage],
    listed: frozenset[tuple[str, str]],
    channel: Channel,
    place: KeptPlace,
) -> None:
    gone = []
    for package in packages:
        is_listed = (package.file_name, package.sha256) in listed
        if not is_listed and not _is_unpacked(package, place):
            gone.append(package)
    if gone:
        raise _vanished(gone, channel.address)


def _is_unpacked(package: RecordedPackage, place: KeptPlace) -> bool:
    """Return whether rattler-build has the package in its cache, whose folders have no platform in their names."""
    name = f"{package.name}-{package.version}-{package.build}"
    try:
        index = json.loads((place.unpacked / "pkgs" / name / "info" / "index.json").read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(index, dict) and index.get("subdir", package.subdir) == package.subdir


def _vanished(gone: Sequence[RecordedPackage], address: str) -> VanishedError:
    names = _some([package.label for package in gone])
    return VanishedError(f"{counted(len(gone), 'package')} vanished from {address}: {names}")


def _some(names: Sequence[str]) -> str:
    """Return the first names for an error, and the number of further ones."""
    text = ", ".join(names[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return f"{text} and {more} more" if more > 0 else text


def _indexed(
    recorded: RecordedChannel, channel: Channel, packages: Sequence[RecordedPackage], place: KeptPlace
) -> Channel:
    """Return a channel on a server, whose index has these packages only."""
    documents = _documents(packages, place.platforms)
    for package in packages:
        base = package.url.removesuffix(package.file_name)
        if base.startswith(recorded.address):  # the server may have another address now
            base = channel.address + base.removeprefix(recorded.address)
        info = documents[package.subdir]["info"]
        if info.setdefault("base_url", base) != base:
            raise _damaged(f"{package.url}: not with the other packages of {recorded.address}")
    index = KeptIndex(address=channel.address, documents=documents)
    return replace(channel, folder=_write(index, place))


def _damaged(message: str) -> IntegrityError:
    return IntegrityError(message, f"delete {environment_record.NAME} in the config's folder, then run again")


def _documents(packages: Iterable[RecordedPackage], platforms: Platforms) -> dict[str, dict[str, Any]]:
    """Return the index of each subdir; raises IntegrityError for a package of another platform."""
    documents: dict[str, dict[str, Any]] = {}
    for subdir in platforms.subdirs:
        documents[subdir] = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": {}}
    for package in packages:
        if package.subdir not in documents:
            raise _damaged(f"{package.url}: not a package for {platforms.target}")
        kind = "packages.conda" if package.file_name.endswith(".conda") else "packages"
        documents[package.subdir][kind][package.file_name] = dict(package.entry)
    return documents


def _write(index: KeptIndex, place: KeptPlace) -> Path:
    """Write an index, and return its channel's folder, which has the key as its name."""
    folder = place.cache / _INDEXES / index.digest[:16]
    for subdir, document in index.documents.items():
        content = json.dumps({**document, "repodata_version": 2})
        path = folder / subdir / "repodata.json"
        if files.read_untrusted(path) != content.encode():
            files.write(path, content)
    return folder
