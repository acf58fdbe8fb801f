"""What a requirement would install, by what indexes and the ends of wheels say: no wheel is fetched whole.

Of every package the newest version is taken that all requirements found so far allow, and again when another one is
found; versions are not tried one against the other, as pip does when two packages disagree.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from packaging.metadata import parse_email
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from megabuild.errors import ProviderError
from megabuild.network.client import Client, Patience
from megabuild.network.core_metadata import BROKEN, beside, inside, member
from megabuild.network.index import HEADERS, Configured, File, best_first, configured, local_path, offered
from megabuild.network.parts import Directory
from megabuild.sizes import tree
from megabuild.sizes.dependencies import Asked, followed
from megabuild.sizes.inside import unread
from megabuild.sizes.tree import Package, Sizes, largest_first

_PATIENCE = Patience(read=30.0, total=120.0)
_AT_ONCE = 8
_ROUNDS = 30  # torch needs five


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """A wheel and its requirements; for a package that has none, the reason."""

    file: File | None = None
    requires: tuple[str, ...] = ()
    trouble: str = ""

    def satisfies(self, asked: Sequence[Asked]) -> bool:
        """Say whether this is still the answer; a trouble is one in any case."""
        return self.file is None or self.file.version in _allowed(asked, [self.file])


class _Index:
    """The wheels that pip would find for a Python on this machine."""

    def __init__(self, where: Configured, client: Client, python: str) -> None:
        self._where, self._client, self._python = where, client, python
        # both are asked for again whenever a further requirement is found
        self._wheels = lru_cache(maxsize=None)(self._find_wheels)
        self._directory = lru_cache(maxsize=None)(self._find_directory)

    def choose(self, name: str, asked: Sequence[Asked]) -> _Chosen:
        """Return the newest wheel that fits everything asked of a package."""
        if any(one.requirement.url for one in asked):
            return _Chosen(trouble=f"{name} is asked for by its address, which is not looked at")
        try:
            files = self._wheels(name)
            allowed = _allowed(asked, files)
            for file in files:
                if file.version in allowed and (requires := self._requirements(file)) is not None:
                    return _Chosen(file=file, requires=requires)
        except ProviderError as error:
            return _Chosen(trouble=f"{name}: {error.message}")
        said = ", ".join(f"{one.requirement} ({one.by or 'asked for'})" for one in asked)
        return _Chosen(trouble=f"{name}: no index has a wheel for Python {self._python} here that is {said}")

    def measured(self, name: str, file: File) -> Package:
        """Return what a wheel installs, by its directory."""
        found = self._directory(file)
        members = {one.filename: one for one in found.members if not one.is_dir()}
        files = (
            tree.File(path=one.filename, parts=unread(one.filename, one.file_size))
            for one in members.values()
        )
        return Package(name=name, version=str(file.version), files=tuple(files), download=found.length)

    def _find_wheels(self, name: str) -> tuple[File, ...]:
        files, _ = offered(name, self._where, lambda url: self._client.get(url, headers=HEADERS))
        return tuple(best_first(files, self._python))

    def _find_directory(self, file: File) -> Directory:
        if urlsplit(file.url).scheme == "file":
            return _local(local_path(file.url))
        return inside(self._client, file)

    def _requirements(self, file: File) -> tuple[str, ...] | None:
        """Return a wheel's requirements, or None where it is not for this Python."""
        remote = urlsplit(file.url).scheme != "file"
        content = beside(self._client, file) if file.metadata and remote else self._directory(file).content
        raw, _ = parse_email(content)
        try:
            if not SpecifierSet(raw.get("requires_python", "")).contains(
                f"{self._python}.99", prereleases=True
            ):
                return None
        except InvalidSpecifier:  # pip does not mind either
            pass
        return tuple(raw.get("requires_dist", ()))


def requirement(text: str, python: str, client: Client | None = None) -> Sizes:
    """Measure what a requirement would install into an empty environment on this machine.

    Parameters
    ----------
    text:
        As pip takes it: ``torch==2.15.0``, ``onnxruntime-gpu``.
    python:
        The Python it is for, ``3.12``.
    client:
        The way to servers; None for one as pip is configured.

    Raises
    ------
    NetworkError
        No index answers.
    ProviderError
        No index has a wheel for it.
    """
    where = configured()
    client = client or Client(patience=_PATIENCE, certificates=where.certificates, proxy=where.proxy)
    index = _Index(where, client, python)
    chosen = {"": _Chosen(requires=(text,))}
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        for _ in range(_ROUNDS):
            required = followed([""], lambda name: chosen[name].requires if name in chosen else (), python)
            open_ones = [
                name
                for name, asked in required.items()
                if name not in chosen or not chosen[name].satisfies(asked)
            ]
            if not open_ones:
                break
            found = pool.map(index.choose, open_ones, [required[name] for name in open_ones])
            chosen.update(zip(open_ones, found, strict=True))
        first = next(iter(required), "")
        if chosen[first].file is None:
            trouble = chosen[first].trouble or f"{text} asks for nothing on this machine"
            raise ProviderError(trouble, "check name and version, --python, and what pip is configured with")
        packages, troubles = zip(
            *pool.map(lambda name: _measured(index, chosen[name], name), required), strict=True
        )
    return Sizes(
        subject=text,
        kind="requirement",
        packages=largest_first(
            replace(package, required_by=tuple(sorted({one.by for one in required[package.name] if one.by})))
            for package in packages
        ),
        fetched=client.fetched,
        remarks=tuple(filter(None, troubles)),
    )


def _measured(index: _Index, chosen: _Chosen, name: str) -> tuple[Package, str]:
    """Return a package, without files where that cannot be had, and why."""
    if chosen.file is None:
        return Package(name=name), chosen.trouble
    try:
        return index.measured(name, chosen.file), ""
    except ProviderError as error:
        return Package(name=name, version=str(chosen.file.version)), f"{name}: {error.message}"


def _allowed(asked: Sequence[Asked], files: Iterable[File]) -> set[Version]:
    """Return the versions that fit; those that their authors withdrew only where one is named."""
    specifiers = SpecifierSet()
    for one in asked:
        specifiers &= one.requirement.specifier
    named = any(one.operator in ("==", "===") for one in specifiers)
    return set(specifiers.filter({file.version for file in files if named or not file.yanked}))


def _local(path: Path) -> Directory:
    """Return the directory of a wheel on this machine."""
    try:
        with zipfile.ZipFile(path) as archive:
            members, content = tuple(archive.infolist()), archive.read(member(archive))
        return Directory(length=path.stat().st_size, members=members, content=content)
    except (OSError, *BROKEN) as error:
        raise ProviderError(f"{path} is no wheel, or a broken one: {error}", "check the wheel") from error
