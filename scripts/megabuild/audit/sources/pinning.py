"""conda-forge's global pins and the migrations in progress, per platform, each value with its line."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from megabuild.audit import pinning_files
from megabuild.audit.facts import GlobalPin, Holds, Migration, Outcome, Where
from megabuild.audit.pinning_files import PinningFiles, from_local, from_network
from megabuild.audit.request import Request
from megabuild.audit.selected import Selected, Value, selected
from megabuild.errors import AuditError, MegabuildError

SOURCE = "pinning"
_CONFIG = "conda_build_config.yaml"
_PLATFORMS = ("linux-64", "linux-aarch64", "osx-64", "osx-arm64")
_MIGRATOR, _TIME = "__migrator", "migrator_ts"


def read(request: Request) -> Outcome:
    """Return the pins of the request's names and of every key of its configs, then the migrations of those.

    Keys of conda_build_config.yaml have underscores where names have hyphens; findings are called like the keys. A
    key with several values, such as those zipped with ``cuda_compiler_version``, has them all in one finding.
    """
    local = request.local.pinning
    try:
        files = from_local(local) if local is not None else from_network(request.services)
    except MegabuildError as error:
        return Outcome(source=SOURCE, trouble=error.message)
    platforms = tuple(sorted({config.platform for config in request.configs})) or _PLATFORMS
    wanted = {key_of(name) for name in request.names}
    wanted |= {key for config in request.configs for key in config.variant}
    facts: list[GlobalPin] = []
    troubles: list[str] = []
    for name, text in {_CONFIG: files.config, **files.migrations}.items():
        path = name if name == _CONFIG else f"migrations/{name}"
        try:
            found = selected(text, platforms, path)
        except AuditError as error:
            troubles.append(error.message)
            continue
        where = _where(files, local.name if local is not None and local.is_file() else path, path, found)
        migration = "" if name == _CONFIG else Path(name).stem
        for key, values in found.values.items():
            if key in wanted or not wanted:
                facts += _facts(key, values, found, platforms, where, migration)
    if local is not None and local.is_file():
        troubles.append(f"no migrations: {local.name} is a single file")
    return Outcome(source=SOURCE, facts=tuple(facts), trouble="; ".join(troubles))


def key_of(name: str) -> str:
    """Return the key under which a package is pinned: ``libcudnn_dev`` for ``libcudnn-dev``."""
    return name.replace("-", "_").replace(".", "_").lower()


def _facts(
    key: str,
    values: Mapping[str, tuple[Value, ...]],
    found: Selected,
    platforms: tuple[str, ...],
    where: Where,
    migration: str,
) -> list[GlobalPin]:
    """Return one fact for each set of values, with the platforms where it holds."""
    by_values: dict[tuple[str, ...], list[str]] = {}
    for platform in platforms:
        if platform in values:
            by_values.setdefault(tuple(value.text for value in values[platform]), []).append(platform)
    facts = []
    for texts, having in by_values.items():
        lines = tuple(value.line for value in values[having[0]])
        # without a commit the line may be another one by now
        url = f"{where.url}#L{lines[0]}" if where.commit else where.url
        fact = GlobalPin(
            name=key,
            value=", ".join(texts),
            values=texts,
            lines=lines,
            holds=Holds(platforms=tuple(having) if len(having) < len(platforms) else ()),
            where=msgspec.structs.replace(where, line=lines[0], url=url),
            zipped_with=found.zipped.get(key, {}).get(having[0], ()),
        )
        facts.append(_migrating(fact, migration, _migrator(found)) if migration else fact)
    return facts


def _migrating(fact: GlobalPin, migration: str, migrator: Mapping[str, object]) -> Migration:
    excluded = migrator.get("exclude", [])
    return Migration(
        **msgspec.structs.asdict(fact),
        migration=migration,
        paused=str(migrator.get("paused", "")).lower() in ("true", "yes", "on"),
        # the value is added to those there are, or replaces them
        operation=str(migrator.get("operation", "replace")),
        excludes=tuple(map(str, excluded)) if isinstance(excluded, list) else (),
    )


def _where(files: PinningFiles, file: str, path: str, found: Selected) -> Where:
    """Return where a document is; the line is added for each value."""
    return Where(
        file=f"{files.package}/{file}" if files.package else file,
        url=f"{pinning_files.REPOSITORY}/blob/{files.commit or 'main'}/recipe/{path}",
        commit=files.commit,
        date=_time(found.settings.get(_TIME)) or files.date,
        fetched=files.fetched,
    )


def _migrator(found: Selected) -> Mapping[str, object]:
    migrator = found.settings.get(_MIGRATOR)
    return migrator if isinstance(migrator, dict) else {}


def _time(stamp: object) -> str:
    """Return a Unix time as ISO 8601, or an empty string where it is none."""
    try:
        return datetime.fromtimestamp(float(str(stamp)), timezone.utc).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return ""
