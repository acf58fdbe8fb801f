"""conda-forge's global pins and the migrations in progress, per platform, each with the line of its key.

They come from the newest conda-forge-pinning package, or from a folder.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import structs
from rattler.package_streaming import PackageArchive

from groundwork import redact
from groundwork.errors import AuditError
from groundwork.files import everything_below, read_text
from groundwork.keys import Key
from groundwork.network.client import channel_url, run_with_deadline
from megabuild.configs.platforms import Platforms
from pin_audit.facts import GlobalPin, Migration, Scope, SourceOutcome, Where, resolve_types
from pin_audit.meta_yaml import VariantValues, evaluate
from pin_audit.request import About, AuditRequest, Source
from pin_audit.services import Services
from pin_audit.sources.channel import CONDA_FORGE, NewestPackage, newest

_CUDA_KEY = "cuda_compiler_version"
_PLATFORMS = ("linux-64", "linux-aarch64", "osx-64", "osx-arm64")
#: Replaced by ``"True"``: the variable selects the pins for CUDA, and conda-forge builds PyTorch with CUDA.
_CUDA = re.compile(r"""os\.environ\.get\(\s*["']CF_CUDA_ENABLED["']\s*(,\s*["'][^"']*["']\s*)?\)""")
_KEY = re.compile(r"^(?=[A-Za-z_][\w.-]*\s*:)", re.MULTILINE)
_LIST = re.compile(r"(?P<key>[\w.-]+)\s*:\s*(\[|(#.*)?\n(\s*(#.*)?\n)*\s*-)")
_PAUSED = re.compile(r"^\s+paused:\s*(true|yes|on)\b", re.MULTILINE | re.IGNORECASE)
_REPOSITORY = "https://github.com/conda-forge/conda-forge-pinning-feedstock"
_CONFIG = "conda_build_config.yaml"
_PACKAGE = "conda-forge-pinning"
_LARGEST_FILE = 4 << 20  # bytes
_LARGEST_ARCHIVE = 32 << 20  # bytes
#: The files' paths in the package, in the repository, in a checkout of it, or in one folder.
_MEMBER = re.compile(
    r"(?:.*/)?(?:[\w.-]*(?P<config>conda_build_config\.yaml)"
    r"|(?:conda-forge-)?migrations/(?P<migration>[^/]+\.ya?ml))"
)
_REMEDY = "pass --pinning FOLDER, with conda_build_config.yaml and migrations/"
_REMEDY_FOR_FILE = "check the file passed with --pinning"


@resolve_types
class _Files(msgspec.Struct, frozen=True, kw_only=True):
    """The texts of the pins and, by file name, of the migrations in progress, with their origin."""

    config: str
    migrations: Mapping[str, str]
    commit: str = ""  #: of the repository, if known
    fetched: str = ""  #: time of the download, ISO 8601
    package: str = ""  #: the package's file name

    def place(self, name: str) -> Where:
        """Return the location of a file: in the package, and on the repository's web page."""
        path = name if name == _CONFIG else f"migrations/{name}"
        return Where(
            file=f"{self.package}/{path}" if self.package else path,
            url=f"{_REPOSITORY}/blob/{self.commit or 'main'}/recipe/{path}",
            commit=self.commit,
            fetched=self.fetched,
        )


def read(request: AuditRequest) -> SourceOutcome:
    """Return the pins of the request's names and of every key of its configs, then their migrations.

    Keys of conda_build_config.yaml have underscores where names have hyphens; facts are named after keys. One fact has
    all values of a key; but a key that is zipped with ``cuda_compiler_version`` gets one fact per CUDA version, also in
    a migration.
    """
    files = _read_files(request)
    platforms = tuple(sorted({config.platform for config in request.configs})) or _PLATFORMS
    wanted = _wanted_keys(request)
    facts: list[GlobalPin] = []
    troubles: list[str] = []
    zipped: set[str] = set()
    for name, text in {_CONFIG: files.config, **files.migrations}.items():
        try:
            found = _facts(text, platforms, files.place(name), zipped)
        except AuditError as error:
            troubles.append(error.message)
        else:
            facts += [fact for fact in found if fact.name in wanted]
    return SourceOutcome(facts=tuple(facts), trouble="; ".join(troubles))


def _read_files(request: AuditRequest) -> _Files:
    if request.local_pinning is not None:
        return _from_local(request.local_pinning)
    return _from_network(request.services)


def _wanted_keys(request: AuditRequest) -> set[str]:
    wanted = {re.sub("[-.]", "_", name).lower() for name in request.names}
    for config in request.configs:
        wanted.update(config.variant)
    return wanted


@dataclass(frozen=True)
class Pinned:
    """Values of a key, and the CUDA versions for which they hold; none: all."""

    key: str
    values: tuple[str, ...]
    cuda: tuple[str, ...] = ()


def _facts(text: str, platforms: Sequence[str], where: Where, zipped: set[str]) -> list[GlobalPin]:
    """Return one fact for each set of values of each key, with its platforms and CUDA versions.

    Adds the keys that are zipped with CUDA's to `zipped`. Raises AuditError if the text cannot be parsed.
    """
    lists, lines = _lists(text)
    if not lists:
        raise AuditError(f"{where.file}: no lists of values", _REMEDY_FOR_FILE)
    migrates = _is_migration(where)
    platforms_of: dict[Pinned, list[str]] = {}
    for platform in platforms:
        try:
            known = evaluate(lists, Platforms.native(platform))
        except AuditError as error:
            raise AuditError(f"{where.file}: cannot be parsed: {error.message}", _REMEDY_FOR_FILE) from error
        zipped |= _zipped_with_cuda(known)
        for key in known.values:
            for pinned in _by_cuda(key, known, zipped, migrates=migrates):
                platforms_of.setdefault(pinned, []).append(platform)
    facts = []
    for pinned in sorted(platforms_of, key=lambda pinned: lines.get(pinned.key, 0)):
        having = tuple(platforms_of[pinned])
        scope = Scope(platforms=having if len(having) < len(platforms) else (), cuda=pinned.cuda)
        fact = _fact(pinned, scope, where, lines.get(pinned.key))
        facts.append(_migration(fact, text) if migrates else fact)
    return facts


def _fact(pinned: Pinned, scope: Scope, where: Where, line: int | None) -> GlobalPin:
    if where.commit:  # without a commit, the key may have moved to another line
        where = structs.replace(where, url=f"{where.url}#L{line}")
    return GlobalPin(
        name=pinned.key,
        value=", ".join(pinned.values),
        values=pinned.values,
        holds=scope,
        where=structs.replace(where, line=line),
    )


def _zipped_with_cuda(known: VariantValues) -> set[str]:
    """Return the keys that have one value for each value of CUDA's."""
    zipped: set[str] = set()
    for group in known.zip_keys:
        if _CUDA_KEY in group:
            zipped.update(group)
    return zipped - {_CUDA_KEY}


def _by_cuda(key: str, known: VariantValues, zipped: Collection[str], *, migrates: bool) -> list[Pinned]:
    """Return a key's values: one set, or one per value if the key is zipped with CUDA's versions."""
    values = known.values[key]
    cuda = known.values.get(_CUDA_KEY, ()) if key in zipped else ()
    if len(cuda) != len(values) or (len(cuda) == 1 and not migrates):
        return [Pinned(key, values)]
    versions: dict[str, tuple[str, ...]] = {}
    for value, version in zip(values, cuda, strict=True):
        versions[value] = (*versions.get(value, ()), version)
    return [Pinned(key, (value,), of_value) for value, of_value in versions.items()]


def _is_migration(where: Where) -> bool:
    return "migrations/" in where.file


def _migration(pin: GlobalPin, text: str) -> Migration:
    """Return the pin of a migration, whose file has the `text`."""
    return Migration(
        **structs.asdict(pin),
        migration=Path(pin.where.file).stem,
        paused=_PAUSED.search(text) is not None,
    )


def _lists(text: str) -> tuple[str, Mapping[str, int]]:
    """Return the lists of values, which the engine can read, and the line of each key, counted from 1."""
    parts = []
    lines: dict[str, int] = {}
    number = 1
    for block in _KEY.split(text):
        match = _LIST.match(block)
        if match is not None:
            parts.append(block)
            lines[match["key"]] = number
        number += block.count("\n")
    return _CUDA.sub('"True"', "".join(parts)), lines


def _from_local(path: Path) -> _Files:
    """Return the pins of a file or a folder; a file has no migrations. Raises AuditError if there are no pins."""
    members: dict[str, bytes] = {}
    try:
        if not path.is_dir():
            return _Files(config=read_text(path), migrations={})
        for file in everything_below(path):
            name = file.relative_to(path).as_posix()
            if _MEMBER.fullmatch(name):
                members[name] = read_text(file, errors="replace").encode()
    except (OSError, UnicodeError) as error:
        raise AuditError(f"{path}: cannot be read: {error}", _REMEDY) from error
    return _classified(members, str(path))


@dataclass(frozen=True, kw_only=True)
class PinningPackage(Key):
    """The cached pins of the newest package."""

    channel: str  #: address without credentials
    name: str


def pinning_key() -> PinningPackage:
    """Return the key of the cached pins."""
    return PinningPackage(channel=redact.address(channel_url(CONDA_FORGE)), name=_PACKAGE)


def _from_network(services: Services) -> _Files:
    """Return the pins of the newest package in the channel, through the cache."""

    def make() -> bytes:
        packages = newest("noarch", (_PACKAGE,), services)
        if not packages:
            raise AuditError(f"{CONDA_FORGE} has no {_PACKAGE}", _REMEDY)
        return msgspec.json.encode(_download(packages[0], services))

    entry = services.cached(pinning_key(), services.max_age, make)
    return structs.replace(msgspec.json.decode(entry.data, type=_Files), fetched=entry.when)


def _download(package: NewestPackage, services: Services) -> _Files:
    name = package.file
    url = f"{channel_url(CONDA_FORGE)}/noarch/{name}"
    content = services.client.get(url, limit=_LARGEST_ARCHIVE).body
    digest = hashlib.sha256(content).hexdigest()
    if package.sha256 not in ("", digest):
        reason = f"{name}: sha256 {digest[:12]}…, the channel lists {package.sha256[:12]}…"
        raise AuditError(reason, _REMEDY)
    with tempfile.TemporaryDirectory(prefix="megabuild-audit-") as folder:
        path = Path(folder, Path(name).name)
        path.write_bytes(content)
        try:
            return run_with_deadline(services.remaining(), lambda: asyncio.run(_files_in(path, name)))
        except AuditError:
            raise
        except Exception as error:  # rattler's own types, and many others for broken archives
            raise AuditError(f"{name}: cannot be read: {error}", _REMEDY) from error


async def _files_in(path: Path, name: str) -> _Files:
    """Read the pins, migrations and commit in a package's archive."""
    archive = await PackageArchive.from_path(path)
    members: dict[str, bytes] = {}
    async for entry in archive.stream("pkg"):
        if entry.is_file and entry.size <= _LARGEST_FILE and _MEMBER.fullmatch(entry.name):
            members[entry.name] = await entry.read()
    about = msgspec.json.decode(await archive.read_file("info/about.json") or b"{}")
    return structs.replace(_classified(members, name), commit=_commit(about), package=name)


def _commit(about: object) -> str:
    """Return the commit in an ``about.json``; empty if there is none."""
    extra = about.get("extra", {}) if isinstance(about, dict) else {}
    commit = str(extra.get("sha", ""))
    return commit if re.fullmatch("[0-9a-f]{40}", commit) else ""


def _classified(members: Mapping[str, bytes], where: str) -> _Files:
    config = None
    migrations: dict[str, str] = {}
    for name in sorted(members, key=lambda name: (name.count("/"), name)):
        match = _MEMBER.fullmatch(name)
        text = members[name].decode("utf-8", errors="replace")
        if match and match["migration"]:
            migrations.setdefault(match["migration"], text)
        elif config is None:
            config = text
    if config is None:
        raise AuditError(f"{where}: no {_CONFIG}", _REMEDY)
    return _Files(config=config, migrations=dict(sorted(migrations.items())))


def _local_files(request: AuditRequest) -> Path | None:
    return request.local_pinning


SOURCES = {"pinning": Source(read=read, about=About.CHANNEL, local_files=_local_files)}
