"""`megabuild clean`: lists the files of builds with the cost of removing them, and removes some."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

import click

from command_line.options import GroupedCommand, option, output_option
from command_line.progress_display import Screen
from command_line.root import output_folder
from groundwork.errors import ConfigError, UsageError
from groundwork.files import cache_folder
from groundwork.result import Result
from groundwork.text import display, plain, size, table
from megabuild.cleaning import COSTS, Item, Kind, find_items, remove, size_of

EXAMPLES = """
{prog}                                        list kinds and sizes
{prog} linux_64_cpu --kind tree --kind work   list the files that --apply would remove
{prog} --kind objects --apply                 remove all object caches
"""


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("configs", nargs=-1, metavar="[CONFIG]...")
@option("Select", "--kind", "kinds", multiple=True, type=click.Choice([kind.value for kind in COSTS]), metavar="KIND",
        help=f"Only this kind, repeatable: {', '.join(COSTS)}.  [default: all]")  # fmt: skip
@option("Select", "--apply", is_flag=True, help="Remove the kinds named with --kind.  [default: list only]")
@output_option
def clean(configs: tuple[str, ...], kinds: tuple[str, ...], apply: bool, output: str | None) -> Result:
    """List the files of builds by kind and size, and remove some with --apply.

    clean keeps files of active builds, channels of published packages, and files that megabuild did not make.
    """
    if apply and not kinds:
        raise UsageError("--apply needs --kind", f"add --kind KIND, repeatable: {', '.join(COSTS)}")
    cache = cache_folder(os.environ)
    folder = output_folder(output)
    items = list(find_items(folder, cache))
    for word in configs:
        if not any(_belongs(item, word) for item in items):
            raise ConfigError(f"{word}: no files in {display(folder)}", "leave out CONFIG to list all files")
    sizes: dict[tuple[Kind, str], int] = {}
    freed, kept = 0, dict[str, list[Path]]()
    with Screen(what="removing files" if apply else "measuring"):
        for item in items:
            if item.kind in (kinds or COSTS) and (
                not configs or any(_belongs(item, word) for word in configs)
            ):
                octets = size_of(item.path)
                sizes[item.kind, item.run] = sizes.get((item.kind, item.run), 0) + octets
                if why := remove(item, cache) if apply else item.needed:
                    kept.setdefault(why, []).append(item.path)
                else:
                    freed += octets
    rows = [
        (kind.value, plain(run), size(octets), COSTS[kind]) for (kind, run), octets in sorted(sizes.items())
    ]
    if not rows:
        return Result(lines=["nothing to remove"])
    lines = table(("kind", "config", "size", "after removal"), rows, right=frozenset({2}))
    total = f"{size(sum(sizes.values()))}, of which --kind KIND --apply can remove {size(freed)}"
    end = f"removed {size(freed)}" if apply else total
    lines += ["", end]
    for why, paths in kept.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        lines.append(plain(f"kept {paths[0]}{more}: {why}"))
    return Result(lines=lines)


def _belongs(item: Item, word: str) -> bool:
    return bool(item.run) and (item.run.startswith(f"{word}-") or fnmatchcase(item.run, word))
