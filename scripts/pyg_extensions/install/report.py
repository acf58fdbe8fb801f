"""The output of an installation: environment, plan and results, as text and as documents."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu_tools.verify.build_target import other_accelerator
from groundwork.jobs import Jobs
from groundwork.result import Result
from groundwork.text import UNICODE, counted, display, duration, picked, table, wrapped
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


def plan_result(environment: UserEnvironment, planned: Sequence[Installation]) -> Result:
    """Return what would be done, and below it why."""
    rows, cells = [], []
    for installation in planned:
        origin, extension = installation.origin, installation.request.extension
        seconds = extension.cpu_seconds(len(origin.archs)) if origin.how == "source" else None
        wheel = str(origin.wheel) if origin.wheel else origin.offered.name if origin.offered else None
        rows.append(
            {
                **_row(installation, wheel),
                "how": origin.how or None,
                "archs": list(origin.archs),
                "cpu_seconds": seconds,
            }
        )
        source = (
            f"{UNICODE.failed} nothing"
            if installation.error
            else _FROM[origin.how].replace("source", "compile")
        )
        time = UNICODE.dash if seconds is None else f"about {max(1, round(seconds / 60))} min"
        cells.append((installation.name, origin.version or UNICODE.dash, source, time))
    lines = table(("extension", "version", "from", "CPU time"), cells, right=frozenset({3}))
    lines += _explained(planned, archs=True)
    return _result("install-pyg", environment, {"plan": rows}, lines, planned)


def install_result(
    environment: UserEnvironment, ended: Sequence[Installation], wheel_dir: Path | None = None
) -> Result:
    """Return what was done, and below it why, and where the wheels were copied to."""
    rows, cells = [], []
    for installation in ended:
        origin = installation.origin
        rows.append(
            {
                **_row(installation, str(origin.wheel) if origin.wheel else None),
                "ok": not installation.error,
                "source": origin.how or None,
                "exit_code": installation.error.exit_code if installation.error else 0,
                "seconds": round(installation.seconds, 3),
            }
        )
        result = f"{UNICODE.kept if origin.how == 'there' else UNICODE.done} verified"
        result = f"{UNICODE.failed} failed" if installation.error else result
        source = _FROM.get(origin.how, UNICODE.dash)
        cells.append(
            (
                installation.name,
                origin.version or UNICODE.dash,
                source,
                duration(installation.seconds),
                result,
            )
        )
    lines = table(("extension", "version", "from", "time", "result"), cells, right=frozenset({3}))
    lines += _explained(ended)
    wheels = [installation.origin.wheel for installation in ended if installation.origin.wheel]
    lines += [str(display(wheel_dir / wheel.name)) for wheel in wheels if wheel_dir]
    return _result("install-pyg", environment, {"extensions": rows}, lines, ended)


def _row(installation: Installation, wheel: str | None) -> dict[str, Any]:
    return {
        "name": installation.name,
        "version": installation.origin.version or None,
        "wheel": wheel,
        "notes": list(installation.notes),
        "error": installation.error.message if installation.error else None,
        "remedy": (installation.error.remedy or None) if installation.error else None,
    }


def _result(
    name: str,
    environment: UserEnvironment,
    rows: dict[str, Any],
    lines: Sequence[str],
    installations: Sequence[Installation],
) -> Result:
    about = {
        "prefix": str(environment.prefix),
        "python": environment.python,
        **picked(environment, "platform torch_version cuda_version tag devices"),
    }
    codes = [installation.error.exit_code for installation in installations if installation.error]
    return Result(
        format=name,
        document={"environment": about, **rows, "ok": not codes},
        lines=["", *lines],
        exit_code=codes[0] if codes else 0,
    )


def _explained(installations: Sequence[Installation], *, archs: bool = False) -> list[str]:
    """Return the notes on each extension below a table; what holds for several is said once."""
    names: dict[str, list[str]] = {}
    for installation in installations:
        texts = list(installation.notes)
        if archs:
            texts += [installation.origin.offered.name] if installation.origin.offered else []
            texts += [f"for {' '.join(installation.origin.archs)}"] if installation.origin.archs else []
        texts += [installation.error.message, installation.error.remedy] if installation.error else []
        for text in dict.fromkeys(filter(None, texts)):
            names.setdefault(text, []).append(installation.name)
    return [
        line
        for text, those in names.items()
        for line in wrapped(f"{', '.join(those)}: {text}", first="  ", rest="    ")
    ]
