"""`megabuild clean`: what builds have left, what the next run pays for it, and removing it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import groupby

import click

from command_line.options import GroupedCommand, option
from command_line.root import output_folder
from groundwork.errors import ConfigError, UsageError
from groundwork.files import cache_folder
from groundwork.result import Result
from groundwork.text import size, table
from groundwork.wording import counted, plain
from megabuild.cleaning import COSTS, Item, find_items, remove

EXAMPLES = """
{prog}                                        what there is, and what it costs
{prog} linux_64_cpu --kind tree --kind work   what would go
{prog} --kind objects --older 30d --apply     removes what was not used for 30 days
"""
_DAY = 86400.0
_UNITS = {"d": _DAY, "h": 3600.0, "w": 7 * _DAY}
_MOST_REASONS = 8


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("configs", nargs=-1, metavar="[CONFIG]...")
@option("What goes", "--kind", "kinds", multiple=True, type=click.Choice(list(COSTS)), metavar="KIND",
        help=f"This kind; may be repeated: {', '.join(COSTS)}.")  # fmt: skip
@option("What goes", "--older", metavar="TIME", help="Only what was not used for so long: 30d, 2w, 12h.")
@option("What goes", "--apply", is_flag=True, help="Remove it.")
@option(
    "Showing", "--json", "as_json", is_flag=True, help="One JSON document on standard output, nothing else."
)
@option("Where", "--output", "-o", metavar="DIR",
        help="The builds'.  [default: output/ in the repository]")  # fmt: skip
@click.pass_context
def clean(
    context: click.Context,
    configs: tuple[str, ...],
    kinds: tuple[str, ...],
    older: str | None,
    apply: bool,
    as_json: bool,
    output: str | None,
) -> Result:
    """Show what builds have left on the disk, and remove some of it with --apply.

    What a running build holds stays, and so do channels that a published package needs, and all files that this program
    has not made.
    """
    context.obj.json = as_json
    if apply and not kinds:
        raise UsageError("--apply needs to know what goes", f"name it: --kind {'|'.join(COSTS)}")
    least = _seconds(older) if older is not None else 0.0
    cache = cache_folder(os.environ)
    items = list(find_items(output_folder(output), cache))
    for word in configs:
        if not any(_belongs(item, word) for item in items):
            raise ConfigError(f"nothing here belongs to {word}", "without CONFIG, everything is shown")
    now = time.time()
    chosen = [
        item
        for item in items
        if item.kind in (kinds or COSTS)
        and now - item.used >= least
        and (not configs or any(_belongs(item, word) for word in configs))
    ]
    kept = {item.path: remove(item, cache) if apply else item.trouble for item in chosen}
    bytes_freed = sum(item.size for item in chosen if not kept[item.path])
    gone = f"{counted(sum(not why for why in kept.values()), 'thing')}, {size(bytes_freed)}"
    reasons = [f"kept {plain(f'{path}: {why}')}" for path, why in kept.items() if why]
    lines = [
        *_table(chosen, now),
        "",
        f"removed {gone}" if apply else f"{gone}; --kind KIND --apply removes them",
        *reasons[:_MOST_REASONS],
        *([f"and {len(reasons) - _MOST_REASONS} more"] if reasons[_MOST_REASONS:] else []),
    ]
    document = {
        "applied": apply,
        "bytes": bytes_freed,
        "items": [
            {
                "kind": item.kind,
                "path": str(item.path),
                "config": item.run or None,
                "bytes": item.size,
                "age_seconds": round(now - item.used),
                "removed": apply and not kept[item.path],
                "kept_because": kept[item.path],
            }
            for item in chosen
        ],
    }
    return Result(format="clean", document=document, lines=lines)


def _table(items: Sequence[Item], now: float) -> list[str]:
    rows = []
    for (kind, run), found in groupby(sorted(items, key=_place), _place):
        group = list(found)
        days = f"{int((now - max(item.used for item in group)) // _DAY)} d"
        rows.append((kind, plain(run), size(sum(item.size for item in group)), days, COSTS[kind]))
    return (
        table(("kind", "of", "size", "unused", "without it"), rows, right=frozenset({2, 3})) if rows else []
    )


def _place(item: Item) -> tuple[str, str]:
    return item.kind, item.run


def _belongs(item: Item, word: str) -> bool:
    return bool(item.run) and (
        item.run == word or item.run.startswith(f"{word}-") or fnmatchcase(item.run, word)
    )


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d{1,6})([dhw])", text.strip().lower())
    if match is None:
        raise UsageError(f"'{text}' is no age", "write it as 30d, 2w or 12h")
    return int(match[1]) * _UNITS[match[2]]
