"""Content-addressed store of built packages: a package is built once for each distinct set of inputs."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from megabuild.files import sha256, verified
from megabuild.providers import package as packaging
from megabuild.providers.package import Package
from megabuild.providers.parallel import each

_BUILDERS = 2  # the engine compresses with several threads of its own


@dataclass(frozen=True, kw_only=True)
class Record:
    """A package in the store: its identity, its file, and the hashes of inputs (`key`) and file (`sha256`)."""

    name: str
    version: str
    build: str
    subdir: str
    file_name: str
    sha256: str
    size: int
    key: str
    inputs: dict[str, str]


class Store:
    """Packages under `<folder>/store/<key>/`; the caller holds the lock of `folder`.

    Parameters
    ----------
    folder:
        The local channel's cache.
    """

    def __init__(self, folder: Path) -> None:
        self._store = folder / "store"
        self._temporary = folder / "tmp"
        self.clean()  # what a killed run left: the lock says that nobody is writing

    def clean(self) -> None:
        """Delete everything unfinished."""
        shutil.rmtree(self._temporary, ignore_errors=True)

    def path(self, record: Record) -> Path:
        """Where the package file of `record` lies."""
        return self._store / record.key / record.file_name

    def ensure(self, packages: Sequence[Package], report: Callable[[str], None]) -> tuple[Record, ...]:
        """Build what is missing and return the records of all `packages`, each once, in their order."""
        known = {package.key: self._known(package.key, report) for package in packages}
        missing = {package.key: package for package in packages if known[package.key] is None}
        for record in each(self._build, missing.values(), _BUILDERS):
            report(f"packaged {record.name} {record.version} {record.build}")
            known[record.key] = record
        return tuple(record for record in known.values() if record is not None)

    def _known(self, key: str, report: Callable[[str], None]) -> Record | None:
        try:
            record = Record(**json.loads((self._store / key / "record.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None
        if record.key == key and verified(self.path(record), record.sha256):
            return record
        report(f"! {record.name} {record.version} was damaged in the cache and is packaged again")
        return None

    def _build(self, package: Package) -> Record:
        work = self._temporary / uuid.uuid4().hex
        work.mkdir(parents=True)
        built = packaging.build(package, work)
        record = Record(
            name=package.name,
            version=package.version,
            build=package.build_string,
            subdir=package.subdir,
            file_name=built.name,
            sha256=sha256(built),
            size=built.stat().st_size,
            key=package.key,
            inputs=dict(package.inputs),
        )
        entry = work / "entry"
        entry.mkdir()
        built.chmod(0o644)
        os.replace(built, entry / built.name)
        (entry / "record.json").write_text(json.dumps(asdict(record), indent=1, sort_keys=True))
        final = self._store / package.key
        final.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(final, ignore_errors=True)  # damaged, or it would have been known
        os.replace(entry, final)
        return record
