"""What a run leaves for others, whatever became of it: a list of all artifacts with hashes, and a zip of logs.

CFEP-03 asks whoever builds outside of conda-forge's CI for the logs; who copies packages compares the hashes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from groundwork import files, log_archive
from groundwork.redact import Mask
from groundwork.result import Result
from megabuild.plan import published

NAME = "manifest.json"
#: Dates of files may be coarser than the clock.
_LEEWAY_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Left:
    """What was left."""

    manifest: Path
    logs: Path | None  #: None where there was nothing to pack


def leave(
    output: Path, plans: Mapping[str, Mapping[str, object]], since: float, mask: Mask, *, logs: bool
) -> Left:
    """Write ``manifest.json`` for everything that is published below an output folder, and pack what was logged.

    ``plans`` are those of the runs, by their names; ``since`` is when the first began, in seconds since 1970. Without
    ``logs`` theirs are not packed.
    """
    stamp = datetime.now(timezone.utc)
    members = dict(_logged(output, plans, since)) if logs else {}
    archive = output / f"logs-{stamp.strftime('%Y%m%dT%H%M%SZ')}.zip" if members else None
    if archive is not None:
        log_archive.pack(members, archive, mask)
    document = {
        "made": stamp.isoformat(timespec="seconds"),
        "artifacts": [row for folder in _channels(output) for row in _artifacts(output, folder)],
        "log_archive": archive.name if archive else None,
    }
    manifest = output / NAME
    result = Result(format="manifest", document=document)
    files.write(manifest, json.dumps(result.to_json(), indent=1) + "\n", mode=0o644)
    return Left(manifest=manifest, logs=archive)


def _channels(output: Path) -> list[Path]:
    folder = output / "packages"
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def _artifacts(output: Path, channel: Path) -> Iterator[dict[str, object]]:
    """Give a row for every published package that is whole."""
    for file_name, record in sorted(published.records(channel).items()):
        if not published.is_whole(channel, record):
            continue
        name, version, build_string = file_name.removesuffix(".conda").rsplit("-", 2)
        yield {
            "path": (channel / record.path).relative_to(output).as_posix(),
            "size": record.size,
            "sha256": record.sha256,
            "config": channel.name,
            "name": name,
            "version": version,
            "build_string": build_string,
            "subdir": record.path.partition("/")[0],
        }


def _logged(
    output: Path, plans: Mapping[str, Mapping[str, object]], since: float
) -> Iterator[tuple[str, Path | str]]:
    """Give what belongs into the zip, by its name in there: of every run its plan, its record, and what it logged."""
    for name, plan in plans.items():
        state = output / name
        yield f"{name}/plan.json", json.dumps(plan, indent=1)
        for path in (
            state / "run.json",
            *sorted(state.glob("logs/*.log")),
            *sorted(state.glob("pyg/*/logs/*.log")),
        ):
            if _is_file(path) and path.stat().st_mtime >= since - _LEEWAY_SECONDS:
                yield f"{name}/{path.name}", path
    for path in sorted(output.glob("logs/crash-*.txt")):
        if _is_file(path) and path.stat().st_mtime >= since - _LEEWAY_SECONDS:
            yield path.name, path


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
