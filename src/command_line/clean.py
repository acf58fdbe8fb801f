"""`megabuild clean`: lists the files of builds with the cost of removing them, and removes some."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from command_line.options import builds_folder
from command_line.parameters import command
from command_line.progress_display import Screen
from command_line.root import output_folder
from groundwork.errors import ConfigError, UsageError
from groundwork.option_fields import argument, repeatable, switch
from groundwork.result import Result
from groundwork.text import display, plain, size, table
from groundwork.user_folders import cache_folder
from megabuild.cleaning import COSTS, Item, Kind, find_items, remove, size_of

EXAMPLES = """
{prog}                                        list kinds and sizes
{prog} linux_64_cpu --kind tree --kind work   list the files that --apply would remove
{prog} --kind objects --apply                 remove all object caches
"""


@dataclass(frozen=True, kw_only=True)
class CleanOptions:
    """The options of the command."""

    configs: tuple[str, ...] = argument("[CONFIG]...", required=False)
    kinds: tuple[str, ...] = repeatable(
        "Select", "--kind", choices=[kind.value for kind in COSTS], metavar="KIND",
        help=f"Only this kind, repeatable: {', '.join(COSTS)}.  [default: all]",
    )  # fmt: skip
    apply: bool = switch(
        "Select", "--apply", help="Remove the kinds named with --kind.  [default: list only]"
    )
    output: str | None = builds_folder()


@command(CleanOptions, examples=EXAMPLES)
def clean(options: CleanOptions) -> Result:
    """List the files of builds by kind and size, and remove some with --apply.

    clean keeps files of active builds, channels of published packages, and files that megabuild did not make.
    """
    if options.apply and not options.kinds:
        raise UsageError("--apply needs --kind", f"add --kind KIND, repeatable: {', '.join(COSTS)}")
    cache = cache_folder(os.environ)
    folder = output_folder(options.output)
    items = list(find_items(folder, cache))
    for config in options.configs:
        if not any(_belongs(item, config) for item in items):
            raise ConfigError(
                f"{config}: no files in {display(folder)}", "leave out CONFIG to list all files"
            )
    cleaned = Cleaned()
    doing = "measuring"
    if options.apply:
        doing = "removing files"
    with Screen(what=doing):
        for item in items:
            if _is_selected(item, options):
                cleaned.add(item, cache, removing=options.apply)
    return Result(lines=_lines(cleaned, removed=options.apply))


@dataclass
class Cleaned:
    """The files that were measured, or removed."""

    sizes: Counter[tuple[Kind, str]] = field(default_factory=Counter)  #: bytes by kind and config
    freed: int = 0  #: bytes that were removed, or can be
    kept: dict[str, list[Path]] = field(default_factory=dict)  #: the others, by reason

    def add(self, item: Item, cache: Path, *, removing: bool) -> None:
        """Measure a file or folder, and remove it if it is not needed and ``removing``."""
        octets = size_of(item.path)
        self.sizes[item.kind, item.run] += octets
        reason = item.needed
        if removing:
            reason = remove(item, cache)
        if reason:
            self.kept.setdefault(reason, []).append(item.path)
        else:
            self.freed += octets


def _lines(cleaned: Cleaned, *, removed: bool) -> list[str]:
    if not cleaned.sizes:
        return ["nothing to remove"]
    rows: list[tuple[str, ...]] = []
    for (kind, config), octets in sorted(cleaned.sizes.items()):
        rows.append((kind.value, plain(config), size(octets), COSTS[kind]))
    lines = table(("kind", "config", "size", "after removal"), rows, right=frozenset({2}))
    lines.append("")
    if removed:
        lines.append(f"removed {size(cleaned.freed)}")
    else:
        total = cleaned.sizes.total()
        lines.append(f"{size(total)}, of which --kind KIND --apply can remove {size(cleaned.freed)}")
    for reason, paths in cleaned.kept.items():
        files = str(paths[0])
        if len(paths) > 1:
            files = f"{files} and {len(paths) - 1} more"
        lines.append(plain(f"kept {files}: {reason}"))
    return lines


def _is_selected(item: Item, options: CleanOptions) -> bool:
    if options.kinds and item.kind not in options.kinds:
        return False
    return not options.configs or any(_belongs(item, config) for config in options.configs)


def _belongs(item: Item, config: str) -> bool:
    """Return whether an item belongs to a config, its rehearsal or another release, or to one of a pattern."""
    return bool(item.run) and (item.run.startswith(f"{config}-") or fnmatchcase(item.run, config))
