"""conda-forge's global pins and the migrations in progress, per platform, each with the line of its key.

They come from the newest conda-forge-pinning package, or from a folder.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import structs
from rattler.package_streaming import PackageArchive

from groundwork import redact
from groundwork.errors import AuditError
from groundwork.files import read_text
from groundwork.keys import Key
from groundwork.network.client import channel_url, run_with_deadline
from pin_audit.facts import GlobalPin, Migration, Scope, SourceOutcome, Where, resolve_types
from pin_audit.meta_yaml import evaluate
from pin_audit.request import About, AuditRequest, Source
from pin_audit.services import Services
from pin_audit.sources.channel import CONDA_FORGE, newest

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
_LARGEST_FILE, _LARGEST_ARCHIVE = 4 << 20, 32 << 20  # bytes
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


def read(request: AuditRequest) -> SourceOutcome:
    """Return the pins of the request's names and of every key of its configs, then their migrations.

    Keys of conda_build_config.yaml have underscores where names have hyphens; facts are named after keys. One fact has
    all values of a key; but a key that is zipped with ``cuda_compiler_version`` gets one fact per CUDA version, also in
    a migration.
    """
    local = request.local_pinning
    files = _from_local(local) if local is not None else _from_network(request.services)
    platforms = tuple(sorted({config.platform for config in request.configs})) or _PLATFORMS
    wanted = {re.sub("[-.]", "_", name).lower() for name in request.names}
    wanted |= {key for config in request.configs for key in config.variant}
    facts: list[GlobalPin] = []
    troubles: list[str] = []
    zipped: set[str] = set()
    for name, text in {_CONFIG: files.config, **files.migrations}.items():
        path = name if name == _CONFIG else f"migrations/{name}"
        where = Where(
            file=f"{files.package}/{path}" if files.package else path,
            url=f"{_REPOSITORY}/blob/{files.commit or 'main'}/recipe/{path}",
            commit=files.commit,
            fetched=files.fetched,
        )
        try:
            facts += (fact for fact in _facts(text, platforms, where, zipped) if fact.name in wanted)
        except AuditError as error:
            troubles.append(error.message)
    return SourceOutcome(facts=tuple(facts), trouble="; ".join(troubles))


def _facts(text: str, platforms: Sequence[str], where: Where, zipped: set[str]) -> Iterator[GlobalPin]:
    """Yield one fact for each set of values of each key, with its platforms and CUDA versions.

    Adds the keys that are zipped with CUDA's to `zipped`.
    """
    lists, lines = _lists(text)
    found: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    migrates = "migrations/" in where.file
    if not lists:
        raise AuditError(f"{where.file}: no lists of values", _REMEDY_FOR_FILE)
    for platform in platforms:
        try:
            known, groups = evaluate(lists, platform)
        except AuditError as error:
            raise AuditError(f"{where.file}: cannot be parsed: {error.message}", _REMEDY_FOR_FILE) from error
        zipped |= {key for group in groups if _CUDA_KEY in group for key in group} - {_CUDA_KEY}
        for key, values in known.items():
            cuda = known.get(_CUDA_KEY, ()) if key in zipped else ()
            rows: dict[tuple[str, ...], tuple[str, ...]] = {}
            if len(cuda) == len(values) and (migrates or len(cuda) > 1):
                for value, version in zip(values, cuda, strict=True):
                    rows[(value,)] = (*rows.get((value,), ()), version)
            for part, versions in (rows or {values: ()}).items():
                found.setdefault((key, part, versions), []).append(platform)
    for (key, values, versions), having in sorted(found.items(), key=lambda item: lines.get(item[0][0], 0)):
        line = lines.get(key)
        holds = Scope(platforms=tuple(having) if len(having) < len(platforms) else (), cuda=versions)
        # without a commit, the key may have moved to another line
        url = f"{where.url}#L{line}" if where.commit else where.url
        place = structs.replace(where, line=line, url=url)
        pin = GlobalPin(name=key, value=", ".join(values), values=values, holds=holds, where=place)
        if migrates:
            paused = _PAUSED.search(text) is not None
            pin = Migration(**structs.asdict(pin), migration=Path(where.file).stem, paused=paused)
        yield pin


def _lists(text: str) -> tuple[str, Mapping[str, int]]:
    """Return the lists of values, which the engine can read, and the line of each key, counted from 1."""
    parts, lines, number = [], {}, 1
    for block in _KEY.split(text):
        if match := _LIST.match(block):
            parts.append(block)
            lines[match["key"]] = number
        number += block.count("\n")
    return _CUDA.sub('"True"', "".join(parts)), lines


def _from_local(path: Path) -> _Files:
    """Return the pins of a file or a folder; a file has no migrations. Raises AuditError if there are no pins."""
    try:
        if not path.is_dir():
            return _Files(config=read_text(path), migrations={})
        members = {
            name: read_text(file, errors="replace").encode()
            for file in path.rglob("*.y*ml")
            if _MEMBER.fullmatch(name := file.relative_to(path).as_posix())
        }
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
        url, packages = newest("noarch", (_PACKAGE,), services)
        if not packages:
            raise AuditError(f"{CONDA_FORGE} has no {_PACKAGE}", _REMEDY)
        name, expected = packages[0].file, packages[0].sha256
        content = services.client.get(f"{url}/noarch/{name}", limit=_LARGEST_ARCHIVE).body
        digest = hashlib.sha256(content).hexdigest()
        if expected not in ("", digest):
            raise AuditError(f"{name}: sha256 {digest[:12]}…, the channel lists {expected[:12]}…", _REMEDY)
        with tempfile.TemporaryDirectory(prefix="megabuild-audit-") as folder:
            path = Path(folder, Path(name).name)
            path.write_bytes(content)
            try:
                members, commit = run_with_deadline(services.remaining(), lambda: asyncio.run(_members(path)))
            except Exception as error:  # rattler's own types, and many others for broken archives
                raise AuditError(f"{name}: cannot be read: {error}", _REMEDY) from error
        files = structs.replace(_classified(members, name), commit=commit, package=name)
        return msgspec.json.encode(files)

    entry = services.cached(pinning_key(), services.max_age, make)
    return structs.replace(msgspec.json.decode(entry.data, type=_Files), fetched=entry.when)


async def _members(path: Path) -> tuple[dict[str, bytes], str]:
    archive = await PackageArchive.from_path(path)
    members: dict[str, bytes] = {}
    async for entry in archive.stream("pkg"):
        if entry.is_file and entry.size <= _LARGEST_FILE and _MEMBER.fullmatch(entry.name):
            members[entry.name] = await entry.read()
    about = msgspec.json.decode(await archive.read_file("info/about.json") or b"{}")
    commit = about.get("extra", {}).get("sha", "") if isinstance(about, dict) else ""
    return members, commit if re.fullmatch("[0-9a-f]{40}", str(commit)) else ""


def _classified(members: Mapping[str, bytes], where: str) -> _Files:
    texts: dict[str, str] = {}
    for name in sorted(members, key=lambda name: (name.count("/"), name)):
        match = _MEMBER.fullmatch(name)
        key = match["migration"] if match and match["migration"] else ""
        texts.setdefault(key, members[name].decode("utf-8", errors="replace"))
    if "" not in texts:
        raise AuditError(f"{where}: no {_CONFIG}", _REMEDY)
    return _Files(config=texts.pop(""), migrations=dict(sorted(texts.items())))


def _local_files(request: AuditRequest) -> Path | None:
    return request.local_pinning


SOURCES = {"pinning": Source(read=read, about=About.CHANNEL, local_files=_local_files)}
