"""The report of `megabuild slim`: savings and costs in lines of 80 columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from gpu_tools.slim.check import Check
from gpu_tools.slim.features import Feature
from gpu_tools.slim.plan import SlimPlan, lacks_all_code
from groundwork.text import Sign, counted, size, table, wrapped

_HEADS = ("step", "saves", "removes [breaks]")
_GPU_HEADS = ("GPU", "libraries with native code", "PTX only", "no code")


def plan_lines(plan: SlimPlan, *, done: bool) -> Iterator[str]:
    """Return the table of steps, the features unaffected or broken, and GPU code; ``done``: after slimming."""
    now = f"before, {size(plan.after)} now" if done else f"now, would be {size(plan.after)}"
    yield from wrapped(f"{plan.contents.name}: {size(plan.before)} {now}")
    yield ""
    rows = []
    for row in plan.rows:
        costs = plan.name_existing(row.step.costs)
        costs += [f"part of {name}" for name in plan.name_existing(row.step.limits)]
        text = ", ".join(costs).replace("compile-cpu, compile-gpu", "compile")
        rows.append((row.step.name, size(row.saves), f"{row.step.loses}{f' [{text}]' if text else ''}"))
    rows.append(("total", size(plan.before - plan.after), ""))
    yield from table(_HEADS, rows, right=frozenset({1}))
    yield ""
    features = {kind: [_describe(plan, feature) for feature in plan.features[kind]] for kind in plan.features}
    removed = {row.step.name: row.step.loses for row in plan.rows}
    lost_for = (
        f"functions of {', '.join(packages)} that use {' and '.join(map(removed.__getitem__, steps))}"
        for packages, steps in _group(plan.lost_for).items()
    )
    spared = (f"{', '.join(steps)} (needed for {reason})" for reason, steps in _group(plan.spared).items())
    unknown = f"{', '.join(plan.unknown)} may compile code or load removed files; test with --check COMMAND"
    for title, texts in (
        ("unaffected:", features["works"]),
        ("limited:", features["limited"]),
        ("lost:", [*features["lost"], *lost_for]),
        ("skipped:", [*spared]),
        ("unknown:", [unknown] if plan.unknown else []),
    ):
        if texts:
            yield from wrapped(f"{title:12} {', '.join(texts)}", rest=" " * 13)
    yield from _gpu_lines(plan)
    for why, paths in _group(plan.left_alone).items():
        yield from wrapped(f"{Sign.warning} {counted(len(paths), 'file')} not slimmed: {why} ({paths[0]})")
    if targets := [*plan.contents.outside.values()]:
        to = os.path.commonpath([os.path.dirname(target) for target in targets])
        yield from wrapped(
            f"{Sign.warning} {counted(len(targets), 'link')} of packages to {to}: the files there are not slimmed; "
            "reinstall with copies (uv: --link-mode copy)"
        )


def check_lines(check: Check) -> list[str]:
    """Return the lines about the checks after slimming in place."""
    if not check.modules:
        return wrapped(f"not checked: {check.why}")
    also = f", and {counted(check.commands, 'command')} succeeds" if check.commands else ""
    return wrapped(f"checked: {counted(len(check.modules), 'module')} can be imported as before{also}")


def _gpu_lines(plan: SlimPlan) -> Iterator[str]:
    if not plan.gpu_code:
        yield from wrapped(
            "GPU code is kept; to remove code for other GPUs, pass --arch-list 12.0 or --arch-list native"
        )
    if not any(map(any, (libraries.values() for libraries in plan.gpu_code.values()))):
        return
    numbers = {gpu: f"{int(gpu.removeprefix('sm_')) / 10:.1f}" for gpu in plan.gpu_code}
    rows = [
        (numbers[gpu], *(str(len(libraries[kind])) for kind in ("own", "ptx", "none")))
        for gpu, libraries in plan.gpu_code.items()
    ]
    yield ""
    yield from table(_GPU_HEADS, rows, right=frozenset({1, 2, 3}))
    for gpu, libraries in plan.gpu_code.items():
        if lacks_all_code(libraries):
            yield from wrapped(f"{Sign.warning} no library has code for {numbers[gpu]}; --apply would fail")
        elif names := [os.path.basename(path) for path in libraries["none"]]:
            more = ", …" if len(names) > 3 else ""
            yield from wrapped(
                f"no code for {numbers[gpu]}, also before slimming: {', '.join(names[:3])}{more}"
            )


def _group(
    reasons: Mapping[str, str] | Mapping[str, tuple[str, ...]],
) -> dict[str | tuple[str, ...], list[str]]:
    groups: dict[str | tuple[str, ...], list[str]] = {}
    for name, reason in reasons.items():
        groups.setdefault(reason, []).append(name)
    return groups


def _describe(plan: SlimPlan, feature: Feature) -> str:
    packages = feature.packages(frozenset(plan.contents.owners.values())) if feature.is_vital else ()
    return f"{feature.words} ({', '.join(packages)})" if packages else feature.words
