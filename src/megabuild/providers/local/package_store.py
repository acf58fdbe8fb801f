"""Content-addressed store of locally built packages, and channels that link to them."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from groundwork.channel_folder import MADE_OF, listed_hashes, make_readable, package_keys
from groundwork.files import link, read_record, sha256, verified, write
from groundwork.keys import Key
from groundwork.progress import Notes, preparing
from megabuild.providers.command import each
from megabuild.providers.local.package import LocalPackage, build

_BUILDERS = 2  # few, because the engine compresses with several threads


_TEXTS = msgspec.json.Decoder(dict[str, str])


@dataclass(frozen=True, kw_only=True)
class ChannelKey(Key):
    """A local channel: its packages."""

    packages: Sequence[str]  #: their keys, sorted


class PackageStore:
    """Packages under `<folder>/store/<key>/`, channels under `<folder>/channels`.

    To write, the caller must hold `folder`'s lock.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._temporary = folder / "tmp"

    def clean(self) -> None:
        """Delete unfinished packages and channels."""
        shutil.rmtree(self._temporary, ignore_errors=True)

    def path(self, package: LocalPackage) -> Path:
        """Return the path of a package's file, which has a folder of its own."""
        return self._folder / "store" / package.key / package.id.file_name

    def missing(self, packages: Iterable[LocalPackage]) -> list[LocalPackage]:
        """Return the packages that are not in the store or damaged there, without duplicates."""
        unique = {package.key: package for package in packages}
        return [package for package in unique.values() if not self._sha256(package)]

    def ensure(self, packages: Iterable[LocalPackage], report: Notes, what: str = "packing") -> None:
        """Build the packages returned by :meth:`missing`; `what` names the step in the progress."""
        self.clean()  # leftovers of a killed run: the lock excludes other writers
        missing = self.missing(packages)
        for package in missing:
            if self.path(package).parent.exists():
                report(f"! {package.name} {package.version}: damaged in the cache, packing it again")
        if not missing:
            return
        with preparing(report, what, total=len(missing), unit="packages") as advance:
            for done, package in enumerate(each(self._build, missing, _BUILDERS), 1):
                report(f"packaged {package.name} {package.version} {package.build_string}")
                advance(done)

    def whole(self, packages: Sequence[LocalPackage]) -> Path | None:
        """Return the channel of exactly these packages, or None if it does not exist or is damaged.

        It has the store's files or copies of them, and an index of exactly these packages.
        """
        channel = self._folder / "channels" / _channel_name(packages)
        listed: dict[str, str] = {}
        try:
            for package in packages:
                path = channel / package.path
                sha256 = self._sha256(package)
                if not sha256 or not (path.samefile(self.path(package)) or verified(path, sha256)):
                    return None
                listed[package.path] = sha256
            is_whole = package_keys(channel) == _keys(packages) and listed_hashes(channel) == listed
        except OSError:
            return None
        if not is_whole:
            return None
        return channel

    def channel(self, packages: Sequence[LocalPackage], subdirs: Sequence[str]) -> Path:
        """Return the channel of exactly these packages, which must be in the store; create it atomically if needed."""
        existing = self.whole(packages)
        if existing is not None:
            return existing
        temporary = self._temporary / uuid.uuid4().hex
        sums: dict[str, str] = {}
        for package in packages:
            link(self.path(package), temporary / package.path)
            sums[package.path] = self._sha256(package)
        _write_index(temporary, packages, subdirs, sums)
        make_readable(temporary)
        channel = self._folder / "channels" / _channel_name(packages)
        _put(temporary, channel)
        return channel

    def _sha256(self, package: LocalPackage) -> str:
        """Return the hash of a package's file; empty if the file is missing or damaged."""
        path = self.path(package)
        record = read_record(path.with_name("record.json"), _TEXTS) or {}
        sha256 = record.get("sha256", "")
        if not verified(path, sha256):
            return ""
        return sha256

    def _build(self, package: LocalPackage) -> LocalPackage:
        work = self._temporary / uuid.uuid4().hex
        entry = work / "entry"
        entry.mkdir(parents=True)
        built = build(package, work)
        (entry / "record.json").write_text(json.dumps({"sha256": sha256(built)}))
        built.chmod(0o644)
        os.replace(built, entry / package.id.file_name)
        _put(entry, self.path(package).parent)
        return package


def _keys(packages: Iterable[LocalPackage]) -> dict[str, str]:
    return {package.path: package.key for package in packages}


def _channel_key(packages: Iterable[LocalPackage]) -> ChannelKey:
    return ChannelKey(packages=sorted(_keys(packages).values()))


def _channel_name(packages: Iterable[LocalPackage]) -> str:
    return _channel_key(packages).digest[:16]


def planned(folder: Path, packages: Sequence[LocalPackage], subdirs: Sequence[str]) -> Path:
    """Write an index without packages, for a solver, and return its channel."""
    channel = folder / "planned" / _channel_name(packages)
    _write_index(channel, packages, subdirs, {})
    return channel


def _write_index(
    channel: Path, packages: Iterable[LocalPackage], subdirs: Sequence[str], sums: Mapping[str, str]
) -> None:
    """Write the index of a channel with these packages; ``sums``: the sha256 of their files by path, if they exist."""
    for subdir in subdirs:
        listed: dict[str, dict[str, object]] = {}
        for package in packages:
            if package.subdir != subdir:
                continue
            name = package.id.file_name
            listed[name] = _index_entry(package)
            if package.path in sums:
                size = (channel / package.path).stat().st_size
                listed[name] |= {"sha256": sums[package.path], "size": size}
        document = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": listed}
        write(channel / subdir / "repodata.json", json.dumps(document))
    write(channel / MADE_OF, json.dumps(_keys(packages)))


def _index_entry(package: LocalPackage) -> dict[str, object]:
    """Return a package's metadata as repodata has it, without its file's size and hash."""
    entry: dict[str, object] = {
        "name": package.name,
        "version": package.version,
        "build": package.build_string,
        "build_number": package.build_number,
        "subdir": package.subdir,
        "depends": package.depends,
        "constrains": package.constrains,
        "run_exports": package.run_exports,
    }
    if package.noarch:
        entry["noarch"] = package.noarch
    if package.site_packages:
        entry["python_site_packages_path"] = package.site_packages
    return entry


def _put(folder: Path, final: Path) -> None:
    """Move a finished folder to `final`; an existing folder there is damaged, so it is replaced."""
    final.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(final, ignore_errors=True)
    os.replace(folder, final)
