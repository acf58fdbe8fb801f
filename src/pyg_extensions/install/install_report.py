"""The output of an installation: environment, plan and results, as text and as documents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from groundwork.exhaustive import assert_never
from groundwork.jobs import Jobs
from groundwork.result import Result
from groundwork.text import Sign, counted, display, duration, table, to_dict
from pyg_extensions.install.compile_wheel import OWN_VARIABLES
from pyg_extensions.install.installation import Installation, Origin
from pyg_extensions.install.user_environment import UserEnvironment


def environment_lines(environment: UserEnvironment, archs: Sequence[str], jobs: Jobs) -> list[str]:
    """Return a summary of the environment, the GPUs, the compile jobs and pip's settings as lines of text."""
    cuda = "CPU"
    if environment.cuda_version:
        cuda = f"CUDA {environment.cuda_version}"
    lines = [
        f"{display(environment.prefix)}: Python {environment.python}, {environment.platform}",
        f"PyTorch {environment.torch_version}, {cuda}",
    ]
    if archs:
        gpus = "no GPU on this machine"
        if environment.devices:
            gpus = f"GPUs: {', '.join(environment.devices)}"
        lines.append(f"compiling for {' '.join(archs)} ({gpus})")
    lines.append(f"{counted(jobs.count, 'compile job')} ({jobs.reason})")
    variables = [name for name in OWN_VARIABLES if os.environ.get(name)]
    if variables:
        lines.append(f"{Sign.warning} variables without effect here: {', '.join(variables)}; use --arch-list")
    settings = environment.pip_settings().ignored()
    if settings:
        lines.append(f"{Sign.warning} pip's settings without effect here: {', '.join(settings)}")
    return lines


def install_result(
    environment: UserEnvironment,
    archs: Sequence[str],
    installations: Sequence[Installation],
    *,
    only_plan: bool,
) -> Result:
    """Return a table and a document of the planned or finished installations, with the notes on them.

    ``archs``: as for :func:`environment_lines`, which shows them.
    """
    codes = [item.error.exit_code for item in installations if item.error]
    about = {
        "prefix": str(environment.prefix),
        **to_dict(environment, "python platform torch_version cuda_version tag devices"),
    }
    rows = [_document(item, only_plan=only_plan) for item in installations]
    return Result(
        format="install-pyg",
        format_version=2,
        document={"environment": about, "planned": only_plan, "extensions": rows, "ok": not codes},
        lines=[
            "",
            *_table(installations, only_plan=only_plan),
            *_explained(installations, archs, only_plan=only_plan),
        ],
        exit_code=codes[0] if codes else 0,
    )


def _document(item: Installation, *, only_plan: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": item.name,
        "version": item.version or None,
        "how": None,
        "wheel": item.offered or None,
        "archs": [],
        "cpu_seconds": None,
        "seconds": round(item.seconds, 3),
        "notes": list(item.notes),
        "error": None,
        "remedy": None,
        "exit_code": 0,
    }
    if item.origin is not None:
        document["how"] = item.origin.value
    if item.wheel is not None:
        document["wheel"] = str(item.wheel)
    if item.origin is Origin.SOURCE:
        document["archs"] = list(item.archs)
    if only_plan:
        document["cpu_seconds"] = _cpu_seconds(item)
    if item.error is not None:
        document["error"] = item.error.message
        document["remedy"] = item.error.remedy or None
        document["exit_code"] = item.error.exit_code
    return document


def _cpu_seconds(item: Installation) -> int | None:
    """Return the CPU seconds of compiling an extension, or None if it is not compiled."""
    if item.origin is not Origin.SOURCE:
        return None
    return item.extension.cpu_seconds(len(item.archs))


def _table(installations: Sequence[Installation], *, only_plan: bool) -> list[str]:
    heads = ("extension", "version", "from", "time", "result")
    if only_plan:
        heads = ("extension", "version", "from", "CPU time", "")
    cells = []
    for item in installations:
        time = duration(item.seconds)
        result = f"{Sign.done} verified"
        if only_plan:
            time = _estimate(item)
            result = ""
        if item.error:
            result = f"{Sign.failed} failed"
        cells.append((item.name, item.version or Sign.dash, _from(item.origin), time, result))
    return table(heads, cells, right=frozenset({3}))


def _estimate(item: Installation) -> str:
    seconds = _cpu_seconds(item)
    if not seconds:
        return Sign.dash
    return f"about {max(1, round(seconds / 60))} min"


def _from(origin: Origin | None) -> str:
    """Return the words for an origin in the table."""
    match origin:
        case None:
            return Sign.dash
        case Origin.INSTALLED:
            return "installed"
        case Origin.PREBUILT:
            return "wheel"
        case Origin.KEPT:
            return "compiled earlier"
        case Origin.SOURCE:
            return "source"
        case never:
            return assert_never(never)


def _explained(installations: Sequence[Installation], archs: Sequence[str], *, only_plan: bool) -> list[str]:
    """Return the notes on the extensions; a note on several of them appears once, after all their names."""
    names: dict[str, list[str]] = {}
    for item in installations:
        for text in dict.fromkeys(_notes(item, archs, only_plan=only_plan)):
            names.setdefault(text, []).append(item.name)
    lines: list[str] = []
    for text, extensions in names.items():
        first, *rest = text.splitlines()
        lines.append(f"  {', '.join(extensions)}: {first}")
        lines += [f"    {line}" for line in rest]
    return lines


def _notes(item: Installation, archs: Sequence[str], *, only_plan: bool) -> list[str]:
    notes = list(item.notes)
    if only_plan:
        notes.append(item.offered)
        # the environment's lines name the architectures that an extension usually has
        if item.origin is Origin.SOURCE and item.archs != tuple(archs):
            notes.append(f"for {' '.join(item.archs)}")
    if item.error:
        notes += [item.error.message, item.error.remedy]
    return [note for note in notes if note]
