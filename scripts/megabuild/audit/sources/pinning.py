"""conda-forge's global pins and the migrations in progress, per platform, each value with its line."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from megabuild.audit.conda.pinning_files import REPOSITORY, PinningFiles, from_local, from_network
from megabuild.audit.conda.selected import Selected, Value, selected
from megabuild.audit.model import Finding, Kind, Origin, Outcome
from megabuild.audit.request import Request
from megabuild.errors import AuditError

SOURCE = "pinning"
_CONFIG = "conda_build_config.yaml"
_PLATFORMS = ("linux-64", "linux-aarch64", "osx-64", "osx-arm64")
_MIGRATOR, _TIME = "__migrator", "migrator_ts"


def read(request: Request) -> Outcome:
    """Return the pins of the request's names and of every key of its configs, then the migrations of those.

    Keys of conda_build_config.yaml have underscores where names have hyphens; findings are called like the keys. A
    key with several values, such as those zipped with ``cuda_compiler_version``, has them all in one finding.
    """
    services, local = request.services, request.local.pinning
    web = services.web.separate()
    try:
        files = from_local(local) if local is not None else from_network(services, web)
    except AuditError as error:
        return Outcome(source=SOURCE, trouble=error.message, received=web.received)
    platforms = tuple(sorted({config.platform for config in request.configs})) or _PLATFORMS
    wanted = {key_of(name) for name in request.names}
    wanted |= {key for config in request.configs for key in config.variant}
    findings: list[Finding] = []
    troubles: list[str] = []
    documents = {
        _CONFIG: files.config,
        **{f"migrations/{name}": text for name, text in files.migrations.items()},
    }
    for name, text in documents.items():
        try:
            found = selected(text, platforms, name)
        except AuditError as error:
            troubles.append(error.message)
            continue
        migration = Path(name).stem if name != _CONFIG else ""
        file = local.name if local is not None and local.is_file() else name
        for key, values in found.values.items():
            if key in wanted or not wanted:
                findings += _findings(
                    key, values, found, platforms, _origin(files, file, name, found), migration
                )
    if local is not None and local.is_file():
        troubles.append(f"no migrations: {local.name} is a single file")
    return Outcome(
        source=SOURCE, findings=tuple(findings), trouble="; ".join(troubles), received=web.received
    )


def key_of(name: str) -> str:
    """Return the key under which a package is pinned: ``libcudnn_dev`` for ``libcudnn-dev``."""
    return name.replace("-", "_").replace(".", "_").lower()


def _findings(
    key: str,
    values: Mapping[str, tuple[Value, ...]],
    found: Selected,
    platforms: tuple[str, ...],
    origin: Origin,
    migration: str,
) -> list[Finding]:
    """Return one finding for each set of values, with the platforms where it holds."""
    by_values: dict[tuple[str, ...], list[str]] = {}
    for platform in platforms:
        if platform in values:
            by_values.setdefault(tuple(value.text for value in values[platform]), []).append(platform)
    result = []
    for texts, where in by_values.items():
        lines = [value.line for value in values[where[0]]]
        scope = [migration] if migration else []
        if migration and _paused(found):
            scope.append("paused")
        if len(where) < len(platforms):
            scope.append(", ".join(where))
        result.append(
            Finding(
                name=key,
                kind=Kind.MIGRATION if migration else Kind.GLOBAL_PIN,
                value=", ".join(texts),
                scope="; ".join(scope),
                origin=_at(origin, lines[0]),
                details={
                    "platforms": ", ".join(where),
                    "lines": ", ".join(map(str, lines)),
                    "zipped_with": ", ".join(found.zipped.get(key, {}).get(where[0], ())),
                    **(_about(migration, found) if migration else {}),
                },
            )
        )
    return result


def _origin(files: PinningFiles, file: str, name: str, found: Selected) -> Origin:
    """Return the origin of a document; the line is added for each value."""
    return Origin(
        file=f"{files.package}/{file}" if files.package else file,
        url=f"{REPOSITORY}/blob/{files.commit or 'main'}/recipe/{name}",
        commit=files.commit,
        date=_time(found.settings.get(_TIME)) or files.date,
        fetched=files.fetched,
    )


def _at(origin: Origin, line: int) -> Origin:
    return Origin(
        file=origin.file,
        line=line,
        # without a commit the line may be another one by now
        url=f"{origin.url}#L{line}" if origin.commit else origin.url,
        commit=origin.commit,
        date=origin.date,
        fetched=origin.fetched,
    )


def _about(migration: str, found: Selected) -> dict[str, str]:
    migrator = _migrator(found)
    excluded = migrator.get("exclude", [])
    return {
        "migration": migration,
        "paused": "yes" if _paused(found) else "no",
        # the value is added to those there are, or replaces them
        "operation": str(migrator.get("operation", "replace")),
        "excludes": ", ".join(map(str, excluded)) if isinstance(excluded, list) else "",
    }


def _migrator(found: Selected) -> Mapping[str, object]:
    migrator = found.settings.get(_MIGRATOR)
    return migrator if isinstance(migrator, dict) else {}


def _paused(found: Selected) -> bool:
    return str(_migrator(found).get("paused", "")).lower() in ("true", "yes", "on")


def _time(stamp: object) -> str:
    """Return a Unix time as ISO 8601, or an empty string where it is none."""
    try:
        return datetime.fromtimestamp(float(str(stamp)), timezone.utc).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return ""
