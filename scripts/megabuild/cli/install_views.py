"""What install-pyg shows: the environment before, one table after; both fit 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from megabuild.cli.root import display
from megabuild.cli.text import Signs, duration, table
from megabuild.extensions.install.rows import Row
from megabuild.extensions.install.user_environment import Environment
from megabuild.resources.jobs import Jobs

_WIDTH = 80
_FROM = {"prebuilt": "wheel", "source": "source", "there": "was there"}


def environment_lines(environment: Environment, archs: Sequence[str], jobs: Jobs) -> list[str]:
    """Return what was found, for people."""
    cuda = f"CUDA {environment.cuda_version}" if environment.cuda_version else "CPU"
    lines = [
        f"{display(environment.prefix)}: Python {environment.version}, {environment.platform}",
        f"PyTorch {environment.torch_version}, {cuda}",
    ]
    if archs:
        gpus = "GPUs here: " + ", ".join(environment.devices) if environment.devices else "no GPU here"
        lines += textwrap.wrap(f"compiling for {' '.join(archs)} ({gpus})", _WIDTH)
    return [*lines, f"{jobs.count} compile jobs ({jobs.reason})"]


def result_lines(rows: Sequence[Row], signs: Signs) -> list[str]:
    """Return the closing table, and below it why what is not as one would like it."""
    cells = [
        (
            row.extension,
            row.version or signs.dash,
            _FROM.get(row.source, signs.dash),
            duration(row.seconds),
            f"{signs.kept if row.source == 'there' else signs.done} verified"
            if row.ok
            else f"{signs.failed} failed",
        )
        for row in rows
    ]
    lines = table(("extension", "version", "from", "time", "result"), cells, right=frozenset({3}))
    for row in rows:
        for text in [
            *row.notes,
            *([row.error] if row.error and row.error not in row.notes else []),
            row.remedy,
        ]:
            if text:
                lines += textwrap.wrap(
                    f"{row.extension}: {text}",
                    _WIDTH,
                    initial_indent="  ",
                    subsequent_indent="    ",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
    return lines


def document(environment: Environment, rows: Sequence[Row]) -> dict[str, Any]:
    """Return everything as JSON values."""
    return {
        "environment": {
            "prefix": str(environment.prefix),
            "python": environment.version,
            "platform": environment.platform,
            "torch_version": environment.torch_version,
            "cuda_version": environment.cuda_version,
            "tag": environment.tag,
            "devices": list(environment.devices),
        },
        "extensions": [
            {
                "name": row.extension,
                "ok": row.ok,
                "version": row.version or None,
                "source": row.source or None,
                "notes": list(row.notes),
                "error": row.error or None,
                "remedy": row.remedy or None,
                "exit_code": row.exit_code,
                "seconds": round(row.seconds, 3),
            }
            for row in rows
        ],
        "ok": all(row.ok for row in rows),
    }
