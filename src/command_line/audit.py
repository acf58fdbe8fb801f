"""`megabuild audit`, and `scripts/audit-pins`: compare every pinned or vendored dependency."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from command_line.options import json_option, version_option
from command_line.parameters import command
from command_line.progress_display import Screen
from command_line.root import repository
from command_line.run_command import Invocation, run
from groundwork.checkout import is_checkout
from groundwork.errors import VerdictError
from groundwork.result import Result
from pin_audit.audit_options import AuditOptions
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
_TABLE = re.compile(r"(?:^\|.*\|(?:\n|\Z)){3,}", re.MULTILINE)
_BAR = re.compile(r"(?<!\\)\|")
_WIDE = 160  # columns


@command(AuditOptions, name="audit", examples=EXAMPLES)
@json_option
@version_option
@click.pass_obj
def audit(invocation: Invocation, options: AuditOptions) -> Result:
    """Compare every dependency: upstream, the recipe, conda-forge.

    Reads upstream's submodules, wheel requirements and CI pins, each variant of the recipe, conda-forge's pins,
    migrations and newest versions, and GPU architectures. If a source fails, its cells give the reason.
    """
    from pin_audit import bump_command
    from pin_audit import command as audit_command

    is_shown = not invocation.json and sys.stdout.isatty()
    console = Console(highlight=False, emoji=False)
    if not is_shown or console.width >= _WIDE:
        options = replace(options, every_row=True)
    make = audit_command.audit
    if options.bump is not None:
        make = bump_command.bump
    with Screen() as screen:
        folder = options.root
        if folder is None:
            folder = _find_recipes()
            if not Path.cwd().is_relative_to(folder):
                screen.tell(f"auditing the recipes of {folder}")
        result = make(options, folder, tell=screen.tell, progress=screen.note)
    if is_shown and result.lines:
        return replace(result, lines=_rendered(result.lines, console))
    return result


def _find_recipes() -> Path:
    """Return the repository or feedstock around the current folder, else this repository."""
    from pin_audit.feedstock import around

    here = Path.cwd()
    if folder := around(here):
        return folder
    if is_checkout():
        return repository()
    return here


def _rendered(lines: Sequence[str], console: Console) -> list[str]:
    """Return Markdown as it looks on a terminal."""
    from rich.markdown import Markdown  # slow to import, and --help imports every command

    markdown = "\n".join(lines).replace("<br>", "; ")
    with console.capture() as captured:
        console.print(Markdown(fit_tables(markdown, console.width)))
    return captured.get().rstrip("\n").splitlines()


def fit_tables(markdown: str, width: int) -> str:
    """Write tables as lists if the terminal is so narrow that rich would cut words of a cell."""
    if width >= _WIDE:
        return markdown
    return _TABLE.sub(_as_list, markdown)


def _as_list(table: re.Match[str]) -> str:
    """Return a table as a list: an entry per row, with the row's first cell and the others below, except empty ones."""
    heads, _line, *rows = map(_cells, table[0].splitlines())
    entries: list[str] = []
    for title, *cells in rows:
        named: list[str] = []
        for head, cell in zip(heads[1:], cells, strict=True):
            if cell:
                named.append(f"{head}: {cell}")
        entries.append(f"* **{title}**:\n  {'; '.join(named)}\n")
    return "".join(entries)


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in _BAR.split(row)[1:-1]]


def main() -> None:
    """Run the command line and end the process."""
    run(audit, name="audit-pins")
