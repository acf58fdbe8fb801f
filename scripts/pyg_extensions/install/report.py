"""The output of an installation: environment, plan and results, as text and as documents."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu_tools.verify.built_for import other_accelerator
from groundwork.resources.jobs import Jobs
from groundwork.result import Result
from groundwork.text import UNICODE, display, duration, picked, size, table, wrapped
from groundwork.wording import counted
from pyg_extensions.install.installation import Installation
from pyg_extensions.install.user_environment import UserEnvironment

#: What other guides tell to set for a compile.
_UNUSED = ("TORCH_CUDA_ARCH_LIST", "FORCE_CUDA", "FORCE_ONLY_CUDA", "FORCE_ONLY_CPU")
_FROM = {"prebuilt": "wheel", "kept": "compiled earlier", "source": "source", "there": "was there"}


def environment_lines(
    environment: UserEnvironment, archs: Sequence[str], jobs: Jobs, environ: Mapping[str, str] = os.environ
) -> list[str]:
    """Return what was found, for people."""
    cuda = f"CUDA {environment.cuda_version}" if environment.cuda_version else "CPU"
    if other := other_accelerator(environment.torch_version):
        cuda = f"{other}: the extensions are for the CPU alone"
    lines = [
        f"{display(environment.prefix)}: Python {environment.python}, {environment.platform}",
        f"PyTorch {environment.torch_version}, {cuda}",
    ]
    if archs:
        gpus = "GPUs here: " + ", ".join(environment.devices) if environment.devices else "no GPU here"
        lines += wrapped(f"compiling for {' '.join(archs)} ({gpus})", rest="")
    if unused := [name for name in _UNUSED if environ.get(name)]:
        lines += wrapped(f"not used: {', '.join(unused)} (PyTorch and --arch-list decide)", rest="")
    return [*lines, f"{counted(jobs.count, 'compile job')} ({jobs.reason})"]


def plan_result(environment: UserEnvironment, found: Sequence[Installation]) -> Result:
    """Return what would be done."""
    rows = [
        {
            "name": one.name,
            "how": one.origin.how or None,
            "version": one.origin.version or None,
            "wheel": str(one.origin.wheel) if one.origin.wheel else _offered(one) or None,
            "size": one.origin.size,
            "archs": list(one.origin.archs),
            "cpu_seconds": _cpu_seconds(one),
            **_failure(one),
        }
        for one in found
    ]
    return _result("install-pyg-plan", environment, {"plan": rows}, _plan_lines(found), found)


def install_result(
    environment: UserEnvironment, found: Sequence[Installation], wheel_dir: Path | None = None
) -> Result:
    """Return what was done, and into which folder the wheels were copied."""
    rows = [
        {
            "name": one.name,
            "ok": not one.error,
            "version": one.origin.version or None,
            "source": one.origin.how or None,
            "wheel": str(one.origin.wheel) if one.origin.wheel else None,
            **_failure(one),
            "exit_code": one.error.exit_code if one.error else 0,
            "seconds": round(one.seconds, 3),
        }
        for one in found
    ]
    lines = _install_lines(found, wheel_dir)
    return _result("install-pyg", environment, {"extensions": rows}, lines, found)


def _result(
    name: str,
    environment: UserEnvironment,
    rows: dict[str, Any],
    lines: Sequence[str],
    found: Sequence[Installation],
) -> Result:
    about = {
        "prefix": str(environment.prefix),
        "python": environment.python,
        **picked(environment, "platform torch_version cuda_version tag devices"),
    }
    codes = [one.error.exit_code for one in found if one.error]
    return Result(
        format=name,
        document={"environment": about, **rows, "ok": not codes},
        lines=["", *lines],
        exit_code=codes[0] if codes else 0,
    )


def _plan_lines(found: Sequence[Installation]) -> list[str]:
    """Return what would be done, and below it why."""
    cells = [
        (
            one.name,
            one.origin.version or UNICODE.dash,
            f"{UNICODE.failed} nothing" if one.error else _FROM[one.origin.how].replace("source", "compile"),
            size(one.origin.size) if one.origin.size else UNICODE.dash,
            UNICODE.dash if seconds is None else f"about {max(1, round(seconds / 60))} min",
        )
        for one in found
        for seconds in [_cpu_seconds(one)]
    ]
    heads = ("extension", "version", "from", "size", "CPU time")

    def more(one: Installation) -> Sequence[str]:
        return _offered(one), f"for {' '.join(one.origin.archs)}" if one.origin.archs else ""

    return [*table(heads, cells, right=frozenset({3, 4})), *_explained(found, more)]


def _install_lines(found: Sequence[Installation], wheel_dir: Path | None = None) -> list[str]:
    """Return the table of results, with notes, and what copied wheels need elsewhere."""
    cells = [
        (
            one.name,
            one.origin.version or UNICODE.dash,
            _FROM.get(one.origin.how, UNICODE.dash),
            duration(one.seconds),
            f"{UNICODE.failed} failed"
            if one.error
            else f"{UNICODE.kept if one.origin.how == 'there' else UNICODE.done} verified",
        )
        for one in found
    ]
    lines = table(("extension", "version", "from", "time", "result"), cells, right=frozenset({3}))
    lines += _explained(found)
    for one in found:
        if wheel_dir and one.origin.wheel:
            lines.append(str(display(wheel_dir / one.origin.wheel.name)))
    return lines


def _explained(
    found: Sequence[Installation], more: Callable[[Installation], Sequence[str]] = lambda _: ()
) -> list[str]:
    """Return the notes on each extension below a table; what holds for several is said once."""
    names: dict[str, list[str]] = {}
    for one in found:
        failed = (one.error.message, one.error.remedy) if one.error else ()
        for text in dict.fromkeys(filter(None, (*one.notes, *more(one), *failed))):
            names.setdefault(text, []).append(one.name)
    return [
        line
        for text, those in names.items()
        for line in wrapped(f"{', '.join(those)}: {text}", first="  ", rest="    ")
    ]


def _offered(one: Installation) -> str:
    return one.origin.offered.name if one.origin.offered else ""


def _cpu_seconds(one: Installation) -> int | None:
    """Return the CPU time of compiling it, or None if it is not compiled."""
    compiled = one.origin.how == "source"
    return one.request.extension.cpu_seconds(len(one.origin.archs)) if compiled else None


def _failure(one: Installation) -> dict[str, Any]:
    return {
        "notes": list(one.notes),
        "error": one.error.message if one.error else None,
        "remedy": (one.error.remedy or None) if one.error else None,
    }
