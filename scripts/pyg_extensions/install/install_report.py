"""The output of an installation: environment, plan and results, as text and as documents."""

from __future__ import annotations

import os
from collections.abc import Sequence

from groundwork.jobs import Jobs
from groundwork.result import Result
from groundwork.text import Sign, counted, display, duration, table, to_dict
from pyg_extensions.install.compile_wheel import OWN_VARIABLES
from pyg_extensions.install.installation import Installation
from pyg_extensions.install.user_environment import UserEnvironment

_FROM = {"prebuilt": "wheel", "kept": "compiled earlier", "source": "source", "there": "installed"}


def environment_lines(environment: UserEnvironment, archs: Sequence[str], jobs: Jobs) -> list[str]:
    """Return a summary of the environment, the GPUs, the compile jobs and pip's settings as lines of text."""
    cuda = f"CUDA {environment.cuda_version}" if environment.cuda_version else "CPU"
    lines = [
        f"{display(environment.prefix)}: Python {environment.python}, {environment.platform}",
        f"PyTorch {environment.torch_version}, {cuda}",
    ]
    if archs:
        gpus = "GPUs: " + ", ".join(environment.devices) if environment.devices else "no GPU on this machine"
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
    rows, cells = [], []
    for item in installations:
        compiles, error = item.how == "source", item.error
        seconds = item.extension.cpu_seconds(len(item.archs)) if only_plan and compiles else None
        wheel = str(item.wheel) if item.wheel else item.offered or None
        rows.append(
            {
                "name": item.name,
                "version": item.version or None,
                "how": item.how or None,
                "wheel": wheel,
                "archs": list(item.archs) if compiles else [],
                "cpu_seconds": seconds,
                "seconds": round(item.seconds, 3),
                "notes": list(item.notes),
                "error": error.message if error else None,
                "remedy": (error.remedy or None) if error else None,
                "exit_code": error.exit_code if error else 0,
            }
        )
        time, result = duration(item.seconds), f"{Sign.done} verified"
        if only_plan:
            time, result = f"about {max(1, round((seconds or 0) / 60))} min" if seconds else Sign.dash, ""
        result = f"{Sign.failed} failed" if error else result
        cells.append((item.name, item.version or Sign.dash, _FROM.get(item.how, Sign.dash), time, result))
    codes = [item.error.exit_code for item in installations if item.error]
    about = {
        "prefix": str(environment.prefix),
        **to_dict(environment, "python platform torch_version cuda_version tag devices"),
    }
    heads = ("extension", "version", "from", *(("CPU time", "") if only_plan else ("time", "result")))
    return Result(
        format="install-pyg",
        format_version=2,
        document={"environment": about, "planned": only_plan, "extensions": rows, "ok": not codes},
        lines=[
            "",
            *table(heads, cells, right=frozenset({3})),
            *_explained(installations, archs, only_plan=only_plan),
        ],
        exit_code=codes[0] if codes else 0,
    )


def _explained(installations: Sequence[Installation], archs: Sequence[str], *, only_plan: bool) -> list[str]:
    """Return the notes on the extensions; a note on several of them appears once, after all their names."""
    names: dict[str, list[str]] = {}
    for item in installations:
        texts = list(item.notes)
        if only_plan:
            texts.append(item.offered)
            # the environment's lines name the architectures that an extension usually has
            if item.how == "source" and item.archs != tuple(archs):
                texts.append(f"for {' '.join(item.archs)}")
        texts += [item.error.message, item.error.remedy] if item.error else []
        for text in dict.fromkeys(filter(None, texts)):
            names.setdefault(text, []).append(item.name)
    lines: list[str] = []
    for text, extensions in names.items():
        first, *rest = text.splitlines()
        lines.append(f"  {', '.join(extensions)}: {first}")
        lines += [f"    {line}" for line in rest]
    return lines
