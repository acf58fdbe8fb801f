"""A slimming's plan for people."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from megabuild.cli.text import Signs, plain, size, table, wrapped
from megabuild.wording import counted

if TYPE_CHECKING:  # reading libraries takes a moment to import, and most commands need none of it
    from megabuild.slim.features import Feature
    from megabuild.slim.savings import Plan, Row


def plan_lines(plan: Plan, signs: Signs, *, done: bool) -> Iterator[str]:
    """Return the steps for people, 80 columns wide.

    Parameters
    ----------
    done:
        Whether it was carried out, or would be.
    """
    now = f"before, {size(plan.after)} now" if done else f"now, would be {size(plan.after)}"
    yield from wrapped(f"{plain(plan.contents.name)}: {size(plan.before)} {now}")
    yield ""
    rows = [(row.step.name, size(row.saves), f"{row.step.loses}{_costs(plan, row)}") for row in plan.rows]
    rows.append(("together", size(plan.before - plan.after), ""))
    yield from table(("step", "saves", "what goes [and what that costs]"), rows, right=frozenset({1}))
    yield ""
    spared: dict[Feature, list[str]] = {}
    for step, feature in plan.spared.items():
        spared.setdefault(feature, []).append(step)
    for what, told in (
        ("still works:", [_words(plan, one) for one in plan.works]),
        ("in part:", [_words(plan, one) for one in plan.limited]),
        ("lost:", [_words(plan, one) for one in plan.lost]),
        ("left as is:", [f"{', '.join(steps)} (for {one.name})" for one, steps in spared.items()]),
        ("unknown:", [f"what {', '.join(plan.unknown)} may compile or open" if plan.unknown else ""]),
    ):
        if any(told):
            yield from wrapped(f"{what:12} {', '.join(told)}", rest=" " * 13)
    yield from _gpu_lines(plan, signs)
    yield from _remarks(plan, signs)


def checked_lines(checked: Mapping[str, Any] | None) -> Iterator[str]:
    """Return what was tried after slimming in place, for people."""
    if checked is None:
        return
    if checked["modules"] is None:
        yield from wrapped(f"not checked: {checked['why']}")
        return
    also = f", and {counted(checked['commands'], 'command')} succeeds" if checked["commands"] else ""
    yield from wrapped(f"checked: {counted(checked['modules'], 'module')} can be imported as before{also}")


def _gpu_lines(plan: Plan, signs: Signs) -> Iterator[str]:
    if not plan.request.gpus:
        yield from wrapped(
            "GPU code stays as it is: say which GPUs are to be kept (--gpu 12.0, --gpu native)"
        )
        return
    rows = []
    for one in plan.gpus:
        number = int(one.name.removeprefix("sm_"))
        rows.append((f"{number // 10}.{number % 10}", *(str(len(x)) for x in (one.own, one.ptx, one.none))))
    if not any(sum(map(int, row[1:])) for row in rows):
        return
    yield ""
    yield from table(
        ("GPU", "libraries with its code", "PTX only", "neither"), rows, right=frozenset({1, 2, 3})
    )
    for one, row in zip(plan.gpus, rows, strict=True):
        if one.none and not (one.own or one.ptx):
            yield from wrapped(
                f"{signs.warning} nothing here has code for {row[0]}: --apply wants --unsupported-gpu"
            )
        elif one.none:
            names = [os.path.basename(path) for path in one.none]
            more = ", …" if len(names) > 3 else ""
            yield from wrapped(f"nothing for {row[0]}, before either: {plain(', '.join(names[:3]))}{more}")


def _remarks(plan: Plan, signs: Signs) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for path, why in plan.left_alone.items():
        reasons.setdefault(why, []).append(path)
    for why, paths in reasons.items():
        yield from wrapped(
            f"{signs.warning} {counted(len(paths), 'file')} left alone: {plain(why)} ({plain(paths[0])})"
        )
    outside = plan.contents.outside
    for path, to in outside.items():
        if os.path.isdir(to):
            yield from wrapped(f"{signs.warning} {plain(path)} is a link: name {plain(to)} itself")
    if files := [to for to in outside.values() if not os.path.isdir(to)]:
        to = os.path.commonpath([os.path.dirname(one) for one in files])
        yield from wrapped(
            f"{signs.warning} {counted(len(files), 'link')} of packages to {plain(to)}: what lies there is not "
            "touched. Install with copies (uv: --link-mode copy), or use --output, which writes files for links"
        )


def _words(plan: Plan, feature: Feature) -> str:
    packages = feature.packages(frozenset(plan.contents.owners.values())) if feature.is_vital else ()
    return f"{feature.words} ({', '.join(packages)})" if packages else feature.words


def _costs(plan: Plan, row: Row) -> str:
    there = plan.there
    names = [one.name for one in row.step.costs if one in there]
    names += [f"part of {one.name}" for one in row.step.limits if one in there]
    text = ", ".join(names).replace("compile-cpu, compile-gpu", "compile")
    return f" [{text}]" if text else ""
