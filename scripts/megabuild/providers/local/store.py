"""Content-addressed store of built packages, each built once for its inputs, and channels linked together from it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from groundwork.channel_folder import make_readable
from groundwork.files import link, sha256, verified, write
from groundwork.names import PackageId
from groundwork.progress import Notes, Preparing
from megabuild.providers.command import each, run
from megabuild.providers.local.package import LocalPackage, build

#: In a local channel: each package's key, the sha256 of its inputs, by file name.
MADE_OF = "made-of.json"
_INDEX = """\
import asyncio, os, sys
from rattler.index import index_fs
asyncio.run(index_fs(sys.argv[1], force=True, write_zst=False, write_shards=False))
os._exit(0)  # its native threads may abort an interpreter that is torn down
"""
_INDEX_SECONDS = 1800.0
_BUILDERS = 2  # the engine compresses with several threads of its own


@dataclass(frozen=True)
class StoredPackage:
    """A package in the store: its identity, its file, and the hashes of inputs (`key`) and file (`sha256`)."""

    name: str
    version: str
    build: str
    subdir: str
    file_name: str
    sha256: str
    key: str

    @property
    def id(self) -> PackageId:
        return PackageId(self.name, self.version, self.build)

    @classmethod
    def of(cls, package: LocalPackage, sha256: str = "") -> StoredPackage:
        """Return the record of a package; without a hash, of one that is not built."""
        return cls(*package.id, package.subdir, package.id.file_name, sha256, package.key)


_STORED = msgspec.json.Decoder(StoredPackage)


class Store:
    """Packages under `<folder>/store/<key>/`, channels under `<folder>/channels`.

    The caller holds `folder`'s lock, or writes nothing.
    """

    def __init__(self, folder: Path, *, writing: bool = True) -> None:
        self._folder = folder
        self._temporary = folder / "tmp"
        if writing:
            self.clean()  # what a killed run left: holding the lock, nobody else is writing

    def clean(self) -> None:
        """Delete everything unfinished."""
        shutil.rmtree(self._temporary, ignore_errors=True)

    def path(self, record: StoredPackage) -> Path:
        """Return the path of the package file of `record`."""
        return self._entry(record.key) / record.file_name

    def ensure(
        self, packages: Iterable[LocalPackage], report: Notes, what: str = "packing"
    ) -> tuple[StoredPackage, ...]:
        """Build what is missing and return the records of all `packages`, each once, in their order."""
        records = {package.key: self._read(package, report) for package in packages}
        missing = {package.key: package for package in packages if records[package.key] is None}
        if missing:
            report(Preparing(what=what, total=len(missing), unit="packages"))
        for done, record in enumerate(each(self._build, missing.values(), _BUILDERS), 1):
            report(f"packaged {record.name} {record.version} {record.build}")
            report(Preparing(what=what, done=done, total=len(missing), unit="packages"))
            records[record.key] = record
        return tuple(record for record in records.values() if record is not None)

    def missing(self, packages: Iterable[LocalPackage]) -> list[LocalPackage]:
        """Return the packages that are still to be built, damaged ones among them, each once."""
        unique = {package.key: package for package in packages}
        return [package for package in unique.values() if self._read(package) is None]

    def whole(self, packages: Iterable[LocalPackage]) -> tuple[Path, tuple[StoredPackage, ...]] | None:
        """Return the channel of exactly these packages and its records, where nothing of it is left to be made."""
        stored = {package.key: self._read(package) for package in packages}
        records = tuple(record for record in stored.values() if record is not None)
        channel, made_of = self._describe_channel(records)
        return (
            (channel, records)
            if None not in stored.values() and self._is_whole(channel, records, made_of)
            else None
        )

    def channel(
        self, records: Sequence[StoredPackage], platform: str, report: Notes = lambda _: None
    ) -> Path:
        """Return the channel of exactly these records, created atomically if it does not exist yet."""
        channel, made_of = self._describe_channel(records)
        if self._is_whole(channel, records, made_of):
            return channel
        temporary = self._temporary / uuid.uuid4().hex
        for subdir in (platform, "noarch"):
            (temporary / subdir).mkdir(parents=True)
        for record in records:
            link(self.path(record), temporary / record.subdir / record.file_name)
        what = "indexing the local channel"
        report(Preparing(what=what))
        # in a process of its own: the hundred megabytes that it takes would stay with this one
        argv = [sys.executable, "-I", "-c", _INDEX, str(temporary)]
        run(argv, what=what, timeout=_INDEX_SECONDS, guarded=True)
        shutil.rmtree(temporary / ".tmp", ignore_errors=True)  # in which rattler writes what it then renames
        make_readable(temporary)
        report(Preparing(what=what, done=1, total=1))
        (temporary / MADE_OF).write_text(made_of)
        _put(temporary, channel)
        return channel

    def _describe_channel(self, records: Sequence[StoredPackage]) -> tuple[Path, str]:
        """Return the path of the channel of some packages, and its :data:`MADE_OF`."""
        keys = hashlib.sha256("\n".join(sorted(record.key for record in records)).encode()).hexdigest()
        name = hashlib.sha256(f"{keys} {MADE_OF}".encode()).hexdigest()[:16]
        made_of = json.dumps({record.file_name: record.key for record in records}, indent=1, sort_keys=True)
        return self._folder / "channels" / name, made_of

    def _is_whole(self, channel: Path, records: Sequence[StoredPackage], made_of: str) -> bool:
        """Whether a channel exists, its files are the store's or copies of them, and its index lists exactly these."""
        try:
            for record in records:
                path = channel / record.subdir / record.file_name
                if not path.samefile(self.path(record)) and not verified(path, record.sha256):
                    return False
            listed = indexed(channel)
            return (channel / MADE_OF).read_text() == made_of and listed == {
                record.file_name: record.sha256 for record in records
            }
        except (OSError, ValueError):
            return False

    def _entry(self, key: str) -> Path:
        return self._folder / "store" / key

    def _read(self, package: LocalPackage, report: Notes = lambda _: None) -> StoredPackage | None:
        try:
            record = _STORED.decode((self._entry(package.key) / "record.json").read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None
        if record.key == package.key and verified(self.path(record), record.sha256):
            return record
        report(f"! {record.name} {record.version} was damaged in the cache and is packaged again")
        return None

    def _build(self, package: LocalPackage) -> StoredPackage:
        work = self._temporary / uuid.uuid4().hex
        entry = work / "entry"
        entry.mkdir(parents=True)
        built = build(package, work)
        record = StoredPackage.of(package, sha256(built))
        built.chmod(0o644)
        os.replace(built, entry / record.file_name)
        (entry / "record.json").write_text(json.dumps(asdict(record), indent=1, sort_keys=True))
        _put(entry, self._entry(package.key))
        return record


def planned(
    folder: Path, packages: Iterable[LocalPackage], platform: str
) -> tuple[Path, tuple[StoredPackage, ...]]:
    """Return a channel with an index only, for a solver, and the records of its packages, which need not exist."""
    unique = {package.key: package for package in packages}
    records = {key: StoredPackage.of(package) for key, package in unique.items()}
    channel = folder / "planned" / hashlib.sha256("\n".join(sorted(records)).encode()).hexdigest()[:16]
    for subdir in (platform, "noarch"):
        listed = {
            records[key].file_name: {
                "name": package.name,
                "version": package.version,
                "build": records[key].build,
                "build_number": package.build_number,
                "subdir": subdir,
                "depends": package.depends,
                "constrains": package.constrains,
                **({"noarch": package.noarch} if package.noarch else {}),
            }
            for key, package in unique.items()
            if package.subdir == subdir
        }
        document = {"info": {"subdir": subdir}, "packages": {}, "packages.conda": listed}
        write(channel / subdir / "repodata.json", json.dumps(document))
    write(channel / MADE_OF, json.dumps({record.file_name: key for key, record in records.items()}))
    return channel, tuple(records.values())


def _put(folder: Path, final: Path) -> None:
    """Move a finished folder into place; an existing one is damaged, or it would not have been made again."""
    final.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(final, ignore_errors=True)
    os.replace(folder, final)


def indexed(channel: Path) -> dict[str, str] | None:
    """Return the files of a channel's index with their sha256, or None if a part of it cannot be read."""
    listed: dict[str, str] = {}
    for subdir in channel.iterdir():
        if subdir.is_dir() and not subdir.name.startswith("."):
            try:
                packages = json.loads((subdir / "repodata.json").read_text())["packages.conda"]
                listed |= {name: str(entry["sha256"]) for name, entry in packages.items()}
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                return None
    return listed


def made_of(channel: Path) -> dict[str, str]:
    """Return the keys of a local channel's packages by file name; empty for other channels.

    Packages made from the same inputs on two machines, or two days, differ in their time stamps.
    """
    try:
        return msgspec.json.decode((channel / MADE_OF).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError):
        return {}
