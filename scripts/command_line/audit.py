"""`megabuild audit`, and `scripts/audit-pins`: compare every pinned or vendored dependency."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.markdown import Markdown

from command_line.options import GroupedCommand, json_option, option, version_option
from command_line.progress_display import Screen
from command_line.root import is_checkout
from command_line.root import repository as root_of_repository
from command_line.run_command import Invocation, run
from groundwork.errors import VerdictError
from groundwork.result import Result
from pin_audit.statuses import STATUSES

EXAMPLES = f"""
{{prog}}                                    PyTorch's table
{{prog}} --package pyg-lib --release 0.8.0
{{prog}} --package all --json > audit.json  all packages, with the source of every value
{{prog}} --offline --fail-on conflict       in CI, from the cache: exit code {VerdictError.exit_code}
{{prog}} --root FEEDSTOCK                   any feedstock: recipe.yaml or meta.yaml
{{prog}} --upstream https://github.com/faiss/faiss.git --ref v1.14.3
{{prog}} --bump 2.14.1                      list the changes for PyTorch 2.14.1
{{prog}} --package pyg-lib --bump 0.9.0     an extension; --root FEEDSTOCK: any recipe

Statuses: {", ".join(STATUSES)}
"""
WHAT = "Select"
LOCAL = "Local files"
SHOWN = "Output"
HOW = "Network"
_TABLE, _BAR = re.compile(r"(?:^\|.*\|(?:\n|\Z)){3,}", re.MULTILINE), re.compile(r"(?<!\\)\|")
_WIDE = 160  # columns
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command("audit", cls=GroupedCommand, examples=EXAMPLES)
@option(WHAT, "--package", "package_words", multiple=True, metavar="NAME",
        help="Package, repeatable: pytorch, pyg-lib, pytorch_scatter, ..., or all.  [default: pytorch]")  # fmt: skip
@option(WHAT, "--root", type=_FOLDER, metavar="DIR",
        help="Repository with a recipe.  [default: the current one]")  # fmt: skip
@option(WHAT, "--release", metavar="VERSION|newest", help="Release to audit.  [default: the recipe's]")
@option(WHAT, "--upstream", metavar="URL",
        help="Another project's repository, with --ref; needs no recipe.")  # fmt: skip
@option(WHAT, "--ref", metavar="TAG", help="Tag or commit of upstream's repository.")
@option(WHAT, "--bump", metavar="VERSION|newest", help="List the changes that another version needs.")
@option(LOCAL, "--tree", type=_FOLDER, metavar="DIR",
        help="Unpacked source of upstream, for its CI pins.")  # fmt: skip
@option(LOCAL, "--pinning", type=click.Path(exists=True, path_type=Path), metavar="PATH",
        help="conda-forge-pinning: a conda_build_config.yaml, or its folder with migrations.")  # fmt: skip
@option(SHOWN, "--all", "every_row", is_flag=True,
        help="Show all rows, also on a terminal of less than 160 columns.")  # fmt: skip
@option(SHOWN, "--write", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
        help="Replace the text between <!-- audit:begin --> and <!-- audit:end --> in FILE.")  # fmt: skip
@option(SHOWN, "--snapshot", is_flag=True,
        help="Renew the committed facts in scripts/pin_audit/releases.")  # fmt: skip
@option(SHOWN, "--fail-on", metavar="STATUS[,STATUS]",
        help="Exit with 14 if a row has one of these statuses.")  # fmt: skip
@option(HOW, "--offline", is_flag=True, help="Use only the cache and local files.")
@option(HOW, "--timeout", type=click.FloatRange(min=1), default=300.0, show_default=True, metavar="SECONDS",
        help="Time limit of the whole audit.")  # fmt: skip
@json_option
@version_option
@click.pass_obj
def audit(
    invocation: Invocation, /, *, package_words: tuple[str, ...], root: Path | None, release: str | None,
    upstream: str | None, ref: str | None, bump: str | None, tree: Path | None, pinning: Path | None,
    every_row: bool, write: Path | None, snapshot: bool, fail_on: str | None, offline: bool, timeout: float,
) -> Result:  # fmt: skip
    """Compare every dependency: upstream, the recipe, conda-forge.

    Reads upstream's submodules, wheel requirements and CI pins, each variant of the recipe, conda-forge's pins,
    migrations and newest versions, and GPU architectures. If a source fails, its cells give the reason.
    """
    from pin_audit import bump_command, command
    from pin_audit.feedstock import around

    is_shown = not invocation.json and sys.stdout.isatty()
    console = Console(highlight=False, emoji=False)
    options = command.AuditOptions(
        package_words=package_words,
        release=release,
        upstream=upstream,
        ref=ref,
        tree=tree,
        pinning=pinning,
        offline=offline,
        timeout=timeout,
        write=write,
        fail_on=fail_on,
        snapshot=snapshot,
        bump=bump,
        every_row=every_row or not is_shown or console.width >= _WIDE,
    )
    folder = root.absolute() if root else around(Path.cwd())
    folder = folder or (root_of_repository() if is_checkout() else Path.cwd())
    with Screen() as screen:
        if root is None and not Path.cwd().is_relative_to(folder):
            screen.tell(f"auditing the recipes of {folder}")
        make = command.audit if bump is None else bump_command.bump
        result = make(options, folder, tell=screen.tell, progress=screen.note)
    if is_shown and result.lines:
        lines = fit_tables("\n".join(result.lines).replace("<br>", "; "), console.width)
        with console.capture() as captured:
            console.print(Markdown(lines))
        return replace(result, lines=captured.get().rstrip("\n").splitlines())
    return result


def fit_tables(markdown: str, width: int) -> str:
    """Write tables as lists if the terminal is so narrow that rich would cut words of a cell."""

    def write_list(table: re.Match[str]) -> str:
        heads, _, *rows = (
            [cell.strip() for cell in _BAR.split(line)[1:-1]] for line in table[0].splitlines()
        )
        named = ([f"{head}: {cell}" for head, cell in zip(heads, row, strict=True) if cell] for row in rows)
        return "".join(f"* **{row[0].partition(': ')[2]}**:\n  {'; '.join(row[1:])}\n" for row in named)

    return markdown if width >= _WIDE else _TABLE.sub(write_list, markdown)


def main() -> None:
    """Run the command line and end the process."""
    run(audit, name="audit-pins")
