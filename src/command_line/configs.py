"""`megabuild configs`: lists configs and regenerates them from the matrix; and selects the configs to build."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from command_line.options import json_option
from command_line.parameters import command
from command_line.root import feedstock, repository
from command_line.run_command import print_lines
from groundwork.errors import UsageError
from groundwork.machine import machine_platform
from groundwork.option_fields import switch
from groundwork.result import Result
from megabuild.configs.config import LIST_CONFIGS, available, list_configs, select
from megabuild.configs.config_file import platform_of

EXAMPLES = """
{prog}           list the configs
{prog} --write   after a change of conda_build_config.yaml
"""
CHANGE = "Change"
_PATTERN_SIGNS = frozenset("*?[")


@dataclass(frozen=True, kw_only=True)
class ConfigsOptions:
    """The options of the command."""

    write: bool = switch(CHANGE, "--write", help="Regenerate .ci_support from conda_build_config.yaml.")
    check: bool = switch(CHANGE, "--check", help="Exit with 3 if .ci_support is out of step.")


@command(ConfigsOptions, examples=EXAMPLES)
@json_option
def configs(options: ConfigsOptions) -> Result:
    """List the configs, or regenerate them from conda_build_config.yaml."""
    if options.write and options.check:
        raise UsageError("--write and --check exclude each other", "pass only one of them")
    if not options.write and not options.check:
        return list_configs(repository(), available(repository()))
    from megabuild.configs.matrix import compared  # imported late: the engine takes a moment

    return compared(repository(), mend=options.write)


def is_pattern(word: str) -> bool:
    """Return whether a word has a sign of a glob pattern."""
    return not _PATTERN_SIGNS.isdisjoint(word)


def choose(names: Sequence[str], words: Sequence[str], *, list_all: str = LIST_CONFIGS) -> tuple[str, ...]:
    """Return the configs to build, each once; ``words`` are names or patterns, which keep the order of ``names``.

    Without words: the only config. ``list_all`` is the command that lists all configs, for hints.

    Raises UsageError: A pattern matches nothing, or there are several configs and none is named.
    """
    chosen: dict[str, None] = {}
    for word in words:
        name = word.removesuffix(".yaml")
        if name not in names and is_pattern(name):
            chosen |= dict.fromkeys(select(names, name, list_all=list_all))
        else:
            chosen[name] = None
    if chosen:
        return tuple(chosen)
    if len(names) == 1:
        print_lines([f"building {names[0]}, the only config"], sys.stderr)
        return tuple(names)
    own = f"{machine_platform().replace('-', '_')}_"
    offered = [name for name in names if name.startswith(own)] or names
    raise UsageError(
        "CONFIG: missing argument",
        f"choose from {', '.join(offered)}; or quote a pattern ('{own}*'); details: {list_all}",
    )


def list_names(names: Sequence[str]) -> Result:
    """Return the names of another feedstock's configs, by platform."""
    by_platform: dict[str, list[str]] = {}
    documents: list[dict[str, str]] = []
    for name in names:
        platform = platform_of(Path(name))
        by_platform.setdefault(platform, []).append(name)
        documents.append({"name": name, "platform": platform})
    lines: list[str] = []
    for platform, own in by_platform.items():
        title = platform or "other"
        if platform == machine_platform():
            title += " (this machine)"
        lines.append(f"{title}:")
        for name in own:
            lines.append(f"  {name}")
        lines.append("")
    return Result(format="configs", document={"configs": documents}, lines=lines[:-1])


def config_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a config name, of the feedstock that --root names before it."""
    names = available(feedstock(context.params.get("root")))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
