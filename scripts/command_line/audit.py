"""`megabuild audit`, and `scripts/audit-pins`: every pinned or vendored dependency, side by side."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem
from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from command_line.options import SETTINGS, GroupedCommand, json_option, option, version
from command_line.root import is_checkout, log_folder
from command_line.root import repository as root_of_repository
from command_line.run_command import Invocation, run
from groundwork.errors import AuditError, UnknownError, VerdictError
from groundwork.result import Result
from pin_audit.feedstock import around
from pin_audit.rows import STATUSES
from pin_audit.targets import packages

EXAMPLES = f"""
{{prog}}                                    PyTorch's table
{{prog}} --package pyg-lib --release 0.8.0
{{prog}} --package all --json > audit.json  everything, with where each value was read
{{prog}} --offline --fail-on conflict       in CI: the cache's values, exit code {VerdictError.exit_code}
{{prog}} --root FEEDSTOCK                   any feedstock: recipe.yaml or meta.yaml
{{prog}} --upstream https://github.com/faiss/faiss.git --ref v1.14.3
{{prog}} --bump 2.14.1                      what must change for that PyTorch
{{prog}} --package pyg-lib --bump 0.9.0     an extension; --root FEEDSTOCK: any recipe

Statuses: {", ".join(STATUSES)}

Exit codes: 0 the table was made, whatever is in it; 2 an option is wrong; 3 a config
cannot be read; {AuditError.exit_code} nothing can be made (--release newest without an index);
{VerdictError.exit_code} --fail-on found something; {UnknownError.exit_code} it found nothing, and a source was
not read; 130 interrupted
"""
WHAT = "What is audited"
LOCAL = "Local stand-ins for what is fetched"
SHOWN = "What comes out"
HOW = "How it is asked"
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


def package_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the packages that begin with what was typed."""
    names = ("all", *(package.name for package in packages()))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def status_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the statuses that complete the last one of a list."""
    head, comma, last = incomplete.rpartition(",")
    return [CompletionItem(f"{head}{comma}{name}") for name in STATUSES if name.startswith(last)]


@click.command("audit", cls=GroupedCommand, examples=EXAMPLES, context_settings=SETTINGS)
@option(WHAT, "--package", "package_words", multiple=True, metavar="NAME", shell_complete=package_names,
        help="pytorch (the default), pyg-lib, pytorch_scatter, ..., or all; more than once.")  # fmt: skip
@option(WHAT, "--root", type=_FOLDER, metavar="DIR",
        help="Repository with a recipe, any feedstock.  [default: the one around you, else this one]")  # fmt: skip
@option(WHAT, "--release", metavar="X",
        help="Instead of the recipe's: 2.13.0, or newest (that an index has).")  # fmt: skip
@option(WHAT, "--upstream", metavar="URL",
        help="Another project's repository; with --ref, and no recipe is needed.")  # fmt: skip
@option(WHAT, "--ref", metavar="TAG", help="Of upstream's repository: a tag, or a commit.")
@option(WHAT, "--bump", metavar="VERSION",
        help="Report what must change for another version, or for the newest.")  # fmt: skip
@option(LOCAL, "--tree", type=_FOLDER, metavar="FOLDER",
        help="Upstream's files, unpacked: what its CI says is read there.")  # fmt: skip
@option(LOCAL, "--pinning", type=click.Path(exists=True, path_type=Path), metavar="PATH",
        help="conda-forge-pinning: a conda_build_config.yaml, or a folder with it and migrations.")  # fmt: skip
@json_option(SHOWN)
@option(SHOWN, "--write", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
        help="Put the Markdown between <!-- audit:begin --> and <!-- audit:end --> of a file.")  # fmt: skip
@option(SHOWN, "--snapshot", is_flag=True,
        help="Write what was read into the committed facts: scripts/pin_audit/releases.")  # fmt: skip
@option(SHOWN, "--fail-on", metavar="STATUS[,STATUS]", shell_complete=status_names,
        help="Fail when a row has one of these; see below.")  # fmt: skip
@option(HOW, "--offline", is_flag=True, help="Only the cache, however old, and local files.")
@option(HOW, "--timeout", type=click.FloatRange(min=1), default=300.0, show_default=True, metavar="SECONDS",
        help="For the whole audit; what has not answered by then is a value in its cells.")  # fmt: skip
@version("audit-pins")
@click.pass_context
def audit(context: click.Context, /, root: Path | None, **values: Any) -> Result:
    """Compare what upstream, the recipe and conda-forge say of every dependency.

    Upstream's submodules, its wheel's requirements and its CI's pins; the constraint that each variant of the recipe
    really has; conda-forge's pins, migrations and newest versions; the GPU architectures. Nothing is cloned or
    downloaded whole. A source that cannot be read is a value in its cells.
    """
    from pin_audit.bump_command import bump
    from pin_audit.command import AuditOptions
    from pin_audit.command import audit as command

    options = AuditOptions(**values)
    invocation: Invocation = context.obj
    console = Console(stderr=True, highlight=False, emoji=False, markup=False)
    # one line that moves on a terminal, nothing elsewhere
    with console.status("", spinner="line") as status:

        def tell(text: str) -> None:
            status.stop()
            click.echo(text, err=True)
            status.start()

        def progress(text: str) -> None:
            status.update(Text(text, no_wrap=True, overflow="ellipsis"))

        folder = _root(root)
        if root is None and not Path.cwd().is_relative_to(folder):
            tell(f"auditing the recipes of {folder}")
        make = command if options.bump is None else bump
        result = make(options, folder, tell=tell, progress=progress)
    if not invocation.json and result.lines and sys.stdout.isatty():
        console = Console(highlight=False, emoji=False)
        with console.capture() as captured:
            console.print(Markdown("\n".join(result.lines).replace("<br>", "; ")))
        return replace(result, lines=captured.get().rstrip("\n").splitlines())
    return result


def _root(given: Path | None) -> Path:
    if given is not None:
        return given.absolute()
    here = around(Path.cwd())
    return here or (root_of_repository() if is_checkout() else Path.cwd())


def main() -> None:
    """Run the command line and end the process."""
    run(audit, name="audit-pins", invocation=Invocation(log_folder=log_folder()))
