"""The report of `megabuild slim`: savings and costs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain

from cuda_code.cuda_archs import Runs
from gpu_tools.slim.check import Check
from gpu_tools.slim.features import find_existing
from gpu_tools.slim.plan import CodeFound, SlimPlan, lacks_all_code
from groundwork.text import Sign, counted, size, table

_HEADS = ("step", "saves", "removes [breaks]")
#: Files named in a sentence about several.
_NAMED = 3


def plan_lines(plan: SlimPlan, *, done: bool) -> Iterator[str]:
    """Return the table of steps, the features unaffected or broken, and GPU code; ``done``: after slimming."""
    now = f"now, would be {size(plan.after)}"
    if done:
        now = f"before, {size(plan.after)} now"
    yield f"{plan.contents.name}: {size(plan.before)} {now}"
    yield ""
    yield from _step_table(plan)
    yield ""
    yield from _feature_lines(plan)
    yield from _gpu_lines(plan)
    if plan.left_alone:
        path, why = next(iter(plan.left_alone.items()))
        count = counted(len(plan.left_alone), "file")
        yield f"{Sign.warning} {count} not slimmed, the first: {path}: {why}"
    targets = list(plan.contents.outside.values())
    if targets:
        to = os.path.commonpath([os.path.dirname(target) for target in targets])
        yield (
            f"{Sign.warning} {counted(len(targets), 'link')} of packages to {to}: the files there are not slimmed; "
            "reinstall with copies (uv: --link-mode copy)"
        )


def _step_table(plan: SlimPlan) -> list[str]:
    rows = []
    for row in plan.rows:
        removes = row.step.loses
        lost = find_existing(row.step.costs, plan.contents)
        breaks = ", ".join(feature.name for feature in lost)
        if breaks:
            breaks = breaks.replace("compile-cpu, compile-gpu", "compile")
            removes += f" [{breaks}]"
        rows.append((row.step.name, size(row.saves), removes))
    rows.append(("total", size(plan.before - plan.after), ""))
    return table(_HEADS, rows, right=frozenset({1}))


def _feature_lines(plan: SlimPlan) -> Iterator[str]:
    """Yield what works, breaks or is uncertain afterwards, and the steps that are skipped."""
    lost = [feature.words for feature in plan.lost]
    with_users = [row for row in plan.rows if row.lost_for]
    if with_users:
        packages = ", ".join(sorted(set(chain.from_iterable(row.lost_for for row in with_users))))
        removed = ", ".join(row.step.loses for row in with_users)
        lost.append(f"functions of {packages} that use {removed}")
    unknown = []
    if plan.unknown:
        names = ", ".join(plan.unknown)
        unknown.append(f"{names} may compile code or load removed files; test with --check COMMAND")
    texts_by_title = {
        "unaffected:": [feature.words for feature in plan.works],
        "lost:": lost,
        "skipped:": [f"{step} (needed for {reason})" for step, reason in plan.spared.items()],
        "unknown:": unknown,
    }
    for title, texts in texts_by_title.items():
        if texts:
            yield f"{title:12} {', '.join(texts)}"


def check_lines(check: Check) -> list[str]:
    """Return the lines about the checks after slimming in place."""
    passed = []
    if check.modules:
        passed.append(f"{counted(len(check.modules), 'module')} can be imported as before")
    if check.commands:
        passed.append(f"{counted(len(check.commands), 'command')} succeeded")
    if not passed:
        return ["not checked: no module can be imported"]
    return [f"checked: {', and '.join(passed)}"]


def _gpu_lines(plan: SlimPlan) -> Iterator[str]:
    if not plan.gpu_code:
        yield "GPU code is kept; to remove code for other GPUs, pass --arch-list 12.0 or --arch-list native"
    for gpu, found in plan.gpu_code.items():
        line = f"GPU {int(gpu.removeprefix('sm_')) / 10:.1f}:"
        if lacks_all_code(found):
            yield f"{Sign.warning} {line} no library has code for it; --apply would fail"
        elif found[Runs.NATIVE] or found[Runs.PTX_ONLY]:
            yield f"{line} {_code_sentence(found)}"


def _code_sentence(found: CodeFound) -> str:
    """Return how many files have code for a GPU: ``3 files with code for it; 1 file without code for it (a.so)``."""
    native = found[Runs.NATIVE]
    ptx_only = found[Runs.PTX_ONLY]
    missing = found[Runs.MISSING]
    parts = []
    if native:
        parts.append(f"{counted(len(native), 'file')} with code for it")
    if ptx_only:
        parts.append(
            f"{counted(len(ptx_only), 'file')} with PTX only, which the driver compiles at the first use"
        )
    if missing:
        names = list(map(os.path.basename, missing[:_NAMED]))
        if len(missing) > _NAMED:
            names.append("…")
        parts.append(f"{counted(len(missing), 'file')} without code for it ({', '.join(names)})")
    return "; ".join(parts)
