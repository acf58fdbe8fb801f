"""What a slimming gives and costs, for people: lines of 80 columns."""

from __future__ import annotations

import os
from collections.abc import Iterator

from gpu_tools.slim.check import CheckResult
from gpu_tools.slim.features import COMPILE_CPU, EXTENSIONS, Feature
from gpu_tools.slim.savings import Saving, SlimPlan
from groundwork.text import UNICODE, counted, size, table, wrapped


def plan_lines(plan: SlimPlan, *, done: bool) -> Iterator[str]:
    """Return the steps, as they were carried out or would be, and what works afterwards."""
    now = f"before, {size(plan.after)} now" if done else f"now, would be {size(plan.after)}"
    yield from wrapped(f"{plan.contents.name}: {size(plan.before)} {now}")
    yield ""
    rows = [(row.step.name, size(row.saves), f"{row.step.loses}{_costs(plan, row)}") for row in plan.rows]
    rows.append(("together", size(plan.before - plan.after), ""))
    yield from table(("step", "saves", "what goes [and what that costs]"), rows, right=frozenset({1}))
    yield ""
    spared: dict[str, list[str]] = {}
    for step, reason in plan.spared.items():
        spared.setdefault(reason, []).append(step)
    lost = [_words(plan, feature) for feature in plan.lost]
    lost_for: dict[tuple[str, ...], list[str]] = {}
    for step, packages in plan.lost_for.items():
        lost_for.setdefault(packages, []).append(step)
    lost += [
        f"functions of {', '.join(packages)} that use {' and '.join(steps)}"
        for packages, steps in lost_for.items()
    ]
    for what, told in (
        ("still works:", [_words(plan, feature) for feature in plan.works]),
        ("in part:", [_words(plan, feature) for feature in plan.limited]),
        ("lost:", lost),
        ("left as is:", [f"{', '.join(steps)} (for {reason})" for reason, steps in spared.items()]),
        (
            "unknown:",
            [f"what {', '.join(plan.unknown)} may compile or open; try it: --check COMMAND"]
            if plan.unknown
            else [],
        ),
    ):
        if any(told):
            yield from wrapped(f"{what:12} {', '.join(told)}", rest=" " * 13)
    yield from _gpu_lines(plan)
    yield from _remarks(plan)


def check_lines(checked: CheckResult) -> list[str]:
    """Return what was tried after slimming in place."""
    if checked.modules is None:
        return wrapped(f"not checked: {checked.why}")
    also = f", and {counted(checked.commands, 'command')} succeeds" if checked.commands else ""
    return wrapped(f"checked: {counted(checked.modules, 'module')} can be imported as before{also}")


def _gpu_lines(plan: SlimPlan) -> Iterator[str]:
    if not plan.request.gpus:
        yield from wrapped(
            "GPU code stays as it is: name the GPUs to keep it for (--arch-list 12.0, --arch-list native)"
        )
        return
    rows = []
    for gpu in plan.gpus:
        number = int(gpu.name.removeprefix("sm_"))
        rows.append((f"{number // 10}.{number % 10}", *(str(len(x)) for x in (gpu.own, gpu.ptx, gpu.none))))
    if not any(gpu.own or gpu.ptx or gpu.none for gpu in plan.gpus):
        return
    yield ""
    heads = ("GPU", "libraries with its code", "PTX only", "neither")
    yield from table(heads, rows, right=frozenset({1, 2, 3}))
    for gpu, row in zip(plan.gpus, rows, strict=True):
        if gpu.none and not (gpu.own or gpu.ptx):
            yield from wrapped(f"{UNICODE.warning} nothing here has code for {row[0]}: --apply refuses")
        elif gpu.none:
            names = [os.path.basename(path) for path in gpu.none]
            more = ", …" if len(names) > 3 else ""
            yield from wrapped(f"nothing for {row[0]}, before either: {', '.join(names[:3])}{more}")


def _remarks(plan: SlimPlan) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for path, why in plan.left_alone.items():
        reasons.setdefault(why, []).append(path)
    for why, paths in reasons.items():
        yield from wrapped(f"{UNICODE.warning} {counted(len(paths), 'file')} left alone: {why} ({paths[0]})")
    outside = plan.contents.outside
    for path, to in outside.items():
        if os.path.isdir(to):
            yield from wrapped(f"{UNICODE.warning} {path} is a link: name {to} itself")
    if files := [to for to in outside.values() if not os.path.isdir(to)]:
        to = os.path.commonpath([os.path.dirname(file) for file in files])
        yield from wrapped(
            f"{UNICODE.warning} {counted(len(files), 'link')} of packages to {to}: what lies there is not "
            "touched. Install with copies (uv: --link-mode copy), or use --output, which writes files for links"
        )


def _words(plan: SlimPlan, feature: Feature) -> str:
    packages = feature.packages(frozenset(plan.contents.owners.values())) if feature.is_vital else ()
    if feature is EXTENSIONS and not COMPILE_CPU.is_in(plan.contents.owners.values()):
        packages = tuple(
            sorted({name for row in plan.rows if feature in row.step.costs for name in row.packages})
        )
    return f"{feature.words} ({', '.join(packages)})" if packages else feature.words


def _costs(plan: SlimPlan, row: Saving) -> str:
    names = [feature.name for feature in row.step.costs if feature in plan.features]
    names += [f"part of {feature.name}" for feature in row.step.limits if feature in plan.features]
    text = ", ".join(names).replace("compile-cpu, compile-gpu", "compile")
    return f" [{text}]" if text else ""
