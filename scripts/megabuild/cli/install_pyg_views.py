"""What `megabuild install-pyg` shows: the environment, the plan, what became of it, as text and as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from megabuild.cli.root import display
from megabuild.cli.text import Signs, duration, picked, size, table, wrapped
from megabuild.extensions.install.deciding import Step
from megabuild.extensions.install.installer import Row
from megabuild.extensions.install.user_environment import UserEnvironment
from megabuild.resources.jobs import Jobs
from megabuild.wording import counted

_FROM = {"prebuilt": "wheel", "kept": "compiled earlier", "source": "source", "there": "was there"}


def environment_lines(environment: UserEnvironment, archs: Sequence[str], jobs: Jobs) -> list[str]:
    """Return what was found, for people."""
    cuda = f"CUDA {environment.cuda_version}" if environment.cuda_version else "CPU"
    lines = [
        f"{display(environment.prefix)}: Python {environment.version}, {environment.platform}",
        f"PyTorch {environment.torch_version}, {cuda}",
    ]
    if archs:
        gpus = "GPUs here: " + ", ".join(environment.devices) if environment.devices else "no GPU here"
        lines += wrapped(f"compiling for {' '.join(archs)} ({gpus})", rest="")
    return [*lines, f"{counted(jobs.count, 'compile job')} ({jobs.reason})"]


def plan_lines(steps: Sequence[Step], signs: Signs) -> list[str]:
    """Return what would be done, and below it why."""
    cells = [
        (
            step.request.extension.name,
            step.version or signs.dash,
            f"{signs.failed} nothing" if step.error else _FROM[step.how].replace("source", "compile"),
            size(step.size) if step.size else signs.dash,
            _minutes(step) if step.how == "source" else signs.dash,
        )
        for step in steps
    ]
    heads = ("extension", "version", "from", "size", "CPU time")
    lines = table(heads, cells, right=frozenset({3, 4}))
    for step in steps:
        texts = [*step.notes, step.offered, f"for {' '.join(step.archs)}" if step.archs else ""]
        texts += [step.error.message, step.error.remedy] if step.error else []
        for text in dict.fromkeys(filter(None, texts)):
            lines += wrapped(f"{step.request.extension.name}: {text}", first="  ", rest="    ")
    return lines


def _minutes(step: Step) -> str:
    seconds = step.request.extension.cpu_seconds(len(step.archs))
    return f"about {max(1, round(seconds / 60))} min"


def plan_document(environment: UserEnvironment, steps: Sequence[Step]) -> dict[str, Any]:
    """Return what would be done as JSON values."""
    return {
        "environment": _environment(environment),
        "plan": [
            {
                "name": step.request.extension.name,
                "how": step.how or None,
                "version": step.version or None,
                "wheel": str(step.wheel) if step.wheel else step.offered or None,
                "size": step.size,
                "archs": list(step.archs),
                "cpu_seconds": step.request.extension.cpu_seconds(len(step.archs))
                if step.how == "source"
                else None,
                "notes": list(step.notes),
                "error": step.error.message if step.error else None,
                "remedy": step.error.remedy if step.error else None,
            }
            for step in steps
        ],
        "ok": not any(step.error for step in steps),
    }


def result_lines(rows: Sequence[Row], signs: Signs, wheel_dir: Path | None = None) -> list[str]:
    """Return the closing table, and below it why what is not as one would like it, and what wheels need elsewhere."""
    cells = [
        (
            row.extension,
            row.version or signs.dash,
            _FROM.get(row.source, signs.dash),
            duration(row.seconds),
            f"{signs.failed} failed"
            if not row.ok
            else f"{signs.kept if row.source == 'there' else signs.done} verified",
        )
        for row in rows
    ]
    lines = table(("extension", "version", "from", "time", "result"), cells, right=frozenset({3}))
    for row in rows:
        for text in dict.fromkeys((*row.notes, row.error, row.remedy)):
            lines += wrapped(f"{row.extension}: {text}", first="  ", rest="    ") if text else []
    for row in rows:
        if wheel_dir and row.wheel:
            needs = f", needs besides PyTorch: {', '.join(row.needs)}" if row.needs else ""
            lines.append(f"{display(wheel_dir / row.wheel.name)}{needs}")
    return lines


def document(environment: UserEnvironment, rows: Sequence[Row]) -> dict[str, Any]:
    """Return everything as JSON values."""
    return {
        "environment": _environment(environment),
        "extensions": [
            {
                "name": row.extension,
                "ok": row.ok,
                "version": row.version or None,
                "source": row.source or None,
                "wheel": str(row.wheel) if row.wheel else None,
                "needs": list(row.needs),
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


def _environment(environment: UserEnvironment) -> dict[str, Any]:
    return {
        "prefix": str(environment.prefix),
        "python": environment.version,
        **picked(environment, "platform torch_version cuda_version tag devices"),
    }
