"""What `megabuild install-pyg` shows: the environment, the plan, what became of it, as text and as JSON values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from megabuild.cli.root import display
from megabuild.cli.text import Signs, duration, picked, size, table, wrapped
from megabuild.extensions.install.deciding import Step
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

    def more(step: Step) -> Sequence[str]:
        return step.offered, f"for {' '.join(step.archs)}" if step.archs else ""

    return lines + _explained(steps, more)


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
                **_failure(step),
            }
            for step in steps
        ],
        "ok": not any(step.error for step in steps),
    }


def result_lines(steps: Sequence[Step], signs: Signs, wheel_dir: Path | None = None) -> list[str]:
    """Return the closing table, and below it why what is not as one would like it, and what wheels need elsewhere."""
    cells = [
        (
            step.request.extension.name,
            step.version or signs.dash,
            _FROM.get(step.how, signs.dash),
            duration(step.seconds),
            f"{signs.failed} failed"
            if step.error
            else f"{signs.kept if step.how == 'there' else signs.done} verified",
        )
        for step in steps
    ]
    lines = table(("extension", "version", "from", "time", "result"), cells, right=frozenset({3}))
    lines += _explained(steps)
    for step in steps:
        if wheel_dir and step.wheel:
            needs = f", needs besides PyTorch: {', '.join(step.needs)}" if step.needs else ""
            lines.append(f"{display(wheel_dir / step.wheel.name)}{needs}")
    return lines


def _explained(steps: Sequence[Step], more: Callable[[Step], Sequence[str]] = lambda _: ()) -> list[str]:
    """Return what there is to say of each extension below a table."""
    lines: list[str] = []
    for step in steps:
        failed = (step.error.message, step.error.remedy) if step.error else ()
        for text in dict.fromkeys(filter(None, (*step.notes, *more(step), *failed))):
            lines += wrapped(f"{step.request.extension.name}: {text}", first="  ", rest="    ")
    return lines


def document(environment: UserEnvironment, steps: Sequence[Step]) -> dict[str, Any]:
    """Return everything as JSON values."""
    return {
        "environment": _environment(environment),
        "extensions": [
            {
                "name": step.request.extension.name,
                "ok": not step.error,
                "version": step.version or None,
                "source": step.how or None,
                "wheel": str(step.wheel) if step.wheel else None,
                "needs": list(step.needs),
                **_failure(step),
                "exit_code": step.error.exit_code if step.error else 0,
                "seconds": round(step.seconds, 3),
            }
            for step in steps
        ],
        "ok": not any(step.error for step in steps),
    }


def _failure(step: Step) -> dict[str, Any]:
    return {
        "notes": list(step.notes),
        "error": step.error.message if step.error else None,
        "remedy": (step.error.remedy or None) if step.error else None,
    }


def _environment(environment: UserEnvironment) -> dict[str, Any]:
    return {
        "prefix": str(environment.prefix),
        "python": environment.version,
        **picked(environment, "platform torch_version cuda_version tag devices"),
    }
