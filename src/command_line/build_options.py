"""The options of the build command, each declared once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from command_line.configs import config_names
from groundwork.option_fields import argument, option, switch
from megabuild.configs.provider_name import ProviderName
from megabuild.plan.run_choices import BUILD, SELECT, RunChoices

SHOW = "Show"


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """The options of the command; those of each config's run are in ``run``."""

    configs: tuple[str, ...] = argument("[CONFIG]...", required=False, complete=config_names)
    every: bool = switch(SELECT, "--all", help="Every config of this machine's platform.")
    provider: ProviderName | None = option(
        SELECT, "--provider", choices=[name.value for name in ProviderName], convert=ProviderName,
        help="Only configs of this provider. With --root, 'local' builds with this machine's compilers and Pythons and "
        "with PyPI's wheels.",
    )  # fmt: skip
    root: Path | None = option(
        SELECT, "--root", metavar="FEEDSTOCK",
        help="Folder of another feedstock with a recipe.yaml.  [default: this repository]",
    )  # fmt: skip
    plan_only: bool = switch(
        SHOW, "--plan", help="Show packages, order, disk, memory and hours; build nothing."
    )
    verbose: bool = switch(
        SHOW, "--verbose", "-v", help="Also print every line of the builds; the log always has them."
    )
    run: RunChoices
    one_by_one: bool = switch(
        BUILD, "--one-by-one",
        help="Build one config at a time, also those that wait for no other's objects.",
    )  # fmt: skip
    remove_trees: bool = switch(
        BUILD, "--remove-trees", help="Delete each config's build tree (4 to 30 GB) after success."
    )
    zip_logs: bool = switch(
        BUILD, "--zip-logs",
        help="At the end, also after a failure or Ctrl-C, zip this run's logs: output/logs/logs-TIME.zip.",
    )  # fmt: skip
    output: str | None = option(
        BUILD, "--output", "-o", metavar="DIR",
        help="Folder for packages, logs and trees.  [default: output/ in the repository or FEEDSTOCK]",
    )  # fmt: skip
