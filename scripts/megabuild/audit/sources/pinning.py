"""conda-forge's global pins and the migrations in progress, per platform, each with the line of its key."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from rattler_build import JinjaConfig, PlatformConfig, RattlerBuildError, VariantConfig

from megabuild.audit.facts import GlobalPin, Holds, Migration, Outcome, Where
from megabuild.audit.pinning_files import CONFIG, REPOSITORY, PinningFiles, from_local, from_network
from megabuild.audit.request import Request
from megabuild.errors import AuditError

SOURCE = "pinning"
_PLATFORMS = ("linux-64", "linux-aarch64", "osx-64", "osx-arm64")
#: conda-forge builds PyTorch with CUDA, and its pins for that are asked for by this variable.
_CUDA = re.compile(r"""os\.environ\.get\(\s*["']CF_CUDA_ENABLED["']\s*(,\s*["'][^"']*["']\s*)?\)""")
_KEY = re.compile(r"^(?=[A-Za-z_][\w.-]*\s*:)", re.MULTILINE)
_LIST = re.compile(r"(?P<key>[\w.-]+)\s*:\s*(\[|(#.*)?\n(\s*(#.*)?\n)*\s*-)")
_PAUSED = re.compile(r"^\s+paused:\s*(true|yes|on)\b", re.MULTILINE | re.IGNORECASE)


def read(request: Request) -> Outcome:
    """Return the pins of the request's names and of every key of its configs, then the migrations of those.

    Keys of conda_build_config.yaml have underscores where names have hyphens; facts are called like the keys. A key
    with several values, such as those zipped with ``cuda_compiler_version``, has them all in one fact.
    """
    local = request.local.pinning
    files = from_local(local) if local is not None else from_network(request.services)
    platforms = tuple(sorted({config.platform for config in request.configs})) or _PLATFORMS
    wanted = {re.sub("[-.]", "_", name).lower() for name in request.names}
    wanted |= {key for config in request.configs for key in config.variant}
    facts: list[GlobalPin] = []
    troubles: list[str] = []
    for name, text in {CONFIG: files.config, **files.migrations}.items():
        path = name if name == CONFIG else f"migrations/{name}"
        shown = local.name if local is not None and local.is_file() else path
        try:
            facts += (
                fact for fact in _facts(text, platforms, _where(files, shown, path)) if fact.name in wanted
            )
        except AuditError as error:
            troubles.append(error.message)
    if local is not None and local.is_file():
        troubles.append(f"no migrations: {local.name} is a single file")
    return Outcome(source=SOURCE, facts=tuple(facts), trouble="; ".join(troubles))


def _where(files: PinningFiles, file: str, path: str) -> Where:
    """Return where a document is; the line is added for each value."""
    return Where(
        file=f"{files.package}/{file}" if files.package else file,
        url=f"{REPOSITORY}/blob/{files.commit or 'main'}/recipe/{path}",
        commit=files.commit,
        fetched=files.fetched,
    )


def _facts(text: str, platforms: Sequence[str], where: Where) -> Iterator[GlobalPin]:
    """Yield one fact for each set of values of each key, with the platforms where it holds."""
    lists, lines = _lists(text)
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for platform in platforms:
        for key, values in _selected(lists, platform, where.file).items():
            found.setdefault((key, values), []).append(platform)
    for (key, values), having in sorted(found.items(), key=lambda item: lines.get(item[0][0], 0)):
        line = lines.get(key)
        # without a commit the line may be another one by now
        url = f"{where.url}#L{line}" if where.commit else where.url
        pin = GlobalPin(
            name=key,
            value=", ".join(values),
            values=values,
            holds=Holds(platforms=tuple(having) if len(having) < len(platforms) else ()),
            where=msgspec.structs.replace(where, line=line, url=url),
        )
        if "migrations/" in where.file:
            paused = _PAUSED.search(text) is not None
            pin = Migration(**msgspec.structs.asdict(pin), migration=Path(where.file).stem, paused=paused)
        yield pin


def _lists(text: str) -> tuple[str, Mapping[str, int]]:
    """Return the part of a file that the engine reads, lists of values, and the line of each key, counted from 1."""
    parts, lines, number = [], {}, 1
    for block in _KEY.split(text):
        if match := _LIST.match(block):
            parts.append(block)
            lines[match["key"]] = number
        number += block.count("\n")
    return _CUDA.sub('"True"', "".join(parts)), lines


def _selected(lists: str, platform: str, where: str) -> dict[str, tuple[str, ...]]:
    """Return the values that hold on a platform; selectors are the engine's business."""
    if not lists:
        raise AuditError(f"{where} holds no lists of values", "check the file named by --pinning")
    target = PlatformConfig(target_platform=platform, build_platform=platform, host_platform=platform)
    with tempfile.TemporaryDirectory(prefix="megabuild-audit-") as folder:
        path = Path(folder, CONFIG)
        path.write_text(lists, encoding="utf-8")
        try:
            config = VariantConfig.from_conda_build_config(path, JinjaConfig(target))
            return {key: tuple(map(str, config[key])) for key in config.keys() if config[key]}  # noqa: SIM118
        except (RattlerBuildError, OSError, ValueError, TypeError, RecursionError) as error:
            remedy = "check the file named by --pinning, or the network in between"
            raise AuditError(f"{where} cannot be understood: {error}", remedy) from error
