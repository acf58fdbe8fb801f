"""The report of `megabuild slim`: savings and costs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from gpu_tools.slim.check import Check
from gpu_tools.slim.features import FEATURES
from gpu_tools.slim.plan import SlimPlan, lacks_all_code
from groundwork.text import Sign, counted, size, table

_HEADS = ("step", "saves", "removes [breaks]")


def plan_lines(plan: SlimPlan, *, done: bool) -> Iterator[str]:
    """Return the table of steps, the features unaffected or broken, and GPU code; ``done``: after slimming."""
    now = f"before, {size(plan.after)} now" if done else f"now, would be {size(plan.after)}"
    yield f"{plan.contents.name}: {size(plan.before)} {now}"
    yield ""
    rows = []
    for row in plan.rows:
        text = ", ".join(plan.name_existing(row.step.costs)).replace("compile-cpu, compile-gpu", "compile")
        rows.append((row.step.name, size(row.saves), f"{row.step.loses}{f' [{text}]' if text else ''}"))
    rows.append(("total", size(plan.before - plan.after), ""))
    yield from table(_HEADS, rows, right=frozenset({1}))
    yield ""
    features = {kind: [FEATURES[name].words for name in names] for kind, names in plan.features.items()}
    if plan.lost_for:
        packages = ", ".join(sorted({name for names in plan.lost_for.values() for name in names}))
        removed = ", ".join(row.step.loses for row in plan.rows if row.step.name in plan.lost_for)
        features["lost"].append(f"functions of {packages} that use {removed}")
    spared = [f"{step} (needed for {reason})" for step, reason in plan.spared.items()]
    unknown = f"{', '.join(plan.unknown)} may compile code or load removed files; test with --check COMMAND"
    for title, texts in (
        ("unaffected:", features["works"]),
        ("lost:", features["lost"]),
        ("skipped:", spared),
        ("unknown:", [unknown] if plan.unknown else []),
    ):
        if texts:
            yield f"{title:12} {', '.join(texts)}"
    yield from _gpu_lines(plan)
    if plan.left_alone:
        path, why = next(iter(plan.left_alone.items()))
        count = counted(len(plan.left_alone), "file")
        yield f"{Sign.warning} {count} not slimmed, the first: {path}: {why}"
    if targets := [*plan.contents.outside.values()]:
        to = os.path.commonpath([os.path.dirname(target) for target in targets])
        yield (
            f"{Sign.warning} {counted(len(targets), 'link')} of packages to {to}: the files there are not slimmed; "
            "reinstall with copies (uv: --link-mode copy)"
        )


def check_lines(check: Check) -> list[str]:
    """Return the lines about the checks after slimming in place."""
    if not check.modules:
        return ["not checked: no module can be imported"]
    also = f", and {counted(len(check.commands), 'command')} succeeds" if check.commands else ""
    return [f"checked: {counted(len(check.modules), 'module')} can be imported as before{also}"]


def _gpu_lines(plan: SlimPlan) -> Iterator[str]:
    if not plan.gpu_code:
        yield "GPU code is kept; to remove code for other GPUs, pass --arch-list 12.0 or --arch-list native"
    for gpu, libraries in plan.gpu_code.items():
        line = f"GPU {int(gpu.removeprefix('sm_')) / 10:.1f}:"
        if lacks_all_code(libraries):
            yield f"{Sign.warning} {line} no library has code for it; --apply would fail"
        elif libraries["native"] or libraries["PTX-only"]:
            yield f"{line} {_code_sentence(libraries)}"


def _code_sentence(libraries: Mapping[str, Sequence[str]]) -> str:
    """Return how many files have code for a GPU: ``3 files with code for it; 1 file without code for it (a.so)``."""
    native, ptx, lacking = (libraries[kind] for kind in ("native", "PTX-only", "missing"))
    parts = []
    if native:
        parts.append(f"{counted(len(native), 'file')} with code for it")
    if ptx:
        parts.append(f"{counted(len(ptx), 'file')} with PTX only, which the driver compiles at the first use")
    if lacking:
        names = [*map(os.path.basename, lacking[:3]), *("…" for _ in lacking[3:4])]
        parts.append(f"{counted(len(lacking), 'file')} without code for it ({', '.join(names)})")
    return "; ".join(parts)
