"""What a build leaves for others, as CFEP-03 asks: the hashes of all published packages, and a zip of its logs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

from groundwork import files
from megabuild.plan import published

SUMS = "SHA256SUMS"
#: Dates of files may be coarser than the clock.
_LEEWAY_SECONDS = 2.0


def write_sums(output: Path) -> Path:
    """Write the hashes of everything that is published below an output folder and whole, for ``sha256sum --check``."""
    lines = []
    for channel in sorted((output / "packages").glob("*")):
        for record in published.records(channel).values():
            if published.is_whole(channel, record):
                lines.append(f"{record.sha256}  packages/{channel.name}/{record.path}\n")
    files.write(output / SUMS, "".join(sorted(lines, key=lambda line: line[64:])), mode=0o644)
    return output / SUMS


def pack_logs(output: Path, runs: Iterable[str], since: float) -> Path | None:
    """Pack what runs have logged and recorded since a moment; None where nothing was done.

    Secrets are masked in all of it already. A run with nothing to do leaves its ``latest.log`` as it is.
    """
    with tempfile.TemporaryDirectory(dir=output, prefix=".logs-") as name:
        folder = Path(name)

        def add(path: Path, target: str) -> None:
            if path.is_file() and not path.is_symlink() and path.stat().st_mtime >= since - _LEEWAY_SECONDS:
                (folder / target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, folder / target)

        for run in runs:
            state = output / run
            latest = (state / "logs" / "latest.log").resolve()
            if latest.is_file() and latest.stat().st_mtime >= since - _LEEWAY_SECONDS:
                for path in (state / "run.json", *state.glob("logs/*.log"), *state.glob("pyg/*/logs/*.log")):
                    add(path, f"{run}/{path.name}")
        for path in output.glob("logs/crash-*.txt"):
            add(path, path.name)
        if not any(folder.iterdir()):
            return None
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        return Path(shutil.make_archive(str(output / f"logs-{stamp}"), "zip", folder))
