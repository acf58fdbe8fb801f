"""`megabuild audit`, and `scripts/audit-pins`: every pinned or vendored dependency, side by side."""

from __future__ import annotations

import shlex
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from megabuild.audit.claims import Status
from megabuild.audit.gather import SOURCES
from megabuild.audit.targets import packages
from megabuild.cli.configs import config_names
from megabuild.cli.exits import Invocation, run
from megabuild.cli.options import GroupedCommand, option
from megabuild.cli.root import display
from megabuild.cli.root import repository as root_of_repository
from megabuild.errors import (
    AuditError,
    ChangesError,
    ElsewhereError,
    FindingsError,
    IncomparableError,
    Interrupted,
    NotReadError,
    UsageError,
)
from megabuild.wording import counted

if TYPE_CHECKING:
    from megabuild.audit.report.jsonfile import Report

#: A status as it is typed: ``recipe-older``.
STATUSES = {status.value.replace(" ", "-"): status for status in Status}
EXAMPLES = f"""
{{prog}}                                    PyTorch's table
{{prog}} --package pyg-lib --version 0.8.0
{{prog}} --all --json --output audit.json   everything, with where each value was read
{{prog}} --offline --fail-on conflict       in CI: the cache's values, exit code {FindingsError.exit_code}
{{prog}} --version newest --compare audit.json
{{prog}} --from recipe/audit.json --source 'recipe_*' --write recipe/README.md

Statuses: {", ".join(STATUSES)}

Exit codes: 0 the table was made, whatever is in it; 2 an option is wrong; 3 a config
cannot be read; {AuditError.exit_code} nothing can be made (--version newest without an index);
{FindingsError.exit_code} --fail-on found something; {ChangesError.exit_code} --compare found a change;
{NotReadError.exit_code} --fail-on could not judge, since a source was not read (--skip leaves it out);
{ElsewhereError.exit_code} the current folder is in another repository with a recipe;
{IncomparableError.exit_code} --compare had nothing that both reports read; 130 interrupted
"""
WHAT = "What is audited"
LOCAL = "Local stand-ins for what is fetched"
SHOWN = "What comes out"
HOW = "How it is asked"
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_EITHER = click.Path(exists=True, path_type=Path)


def package_names(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the packages that begin with what was typed."""
    return [CompletionItem(one.name) for one in packages() if one.name.startswith(incomplete)]


def source_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the sources that begin with what was typed."""
    return [CompletionItem(name) for name in SOURCES if name.startswith(incomplete)]


def status_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the statuses that complete the last one of a list."""
    head, comma, last = incomplete.rpartition(",")
    return [CompletionItem(f"{head}{comma}{name}") for name in STATUSES if name.startswith(last)]


@click.command(
    "audit", cls=GroupedCommand, examples=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]}
)
@option(WHAT, "--package", "-p", "package_words", multiple=True, metavar="NAME", shell_complete=package_names,
        help="pytorch (the default), pyg-lib, pytorch_scatter, ...; more than once.")  # fmt: skip
@option(WHAT, "--all", "every", is_flag=True, help="Every package of this repository.")
@option(
    WHAT, "--version", metavar="X", help="Instead of the recipe's: 2.13.0, or newest (that an index has)."
)
@option(WHAT, "--config", "-c", "patterns", multiple=True, metavar="GLOB", shell_complete=config_names,
        help="Configs whose name matches; without it all that build with conda-forge's packages.")  # fmt: skip
@option(WHAT, "--repository", metavar="URL", help="Of upstream, or a mirror of it.")
@option(LOCAL, "--tree", type=_FOLDER, metavar="FOLDER", help="Upstream's files, unpacked.")
@option(LOCAL, "--wheel", type=_FILE, metavar="FILE", help="A wheel of the package.")
@option(LOCAL, "--pinning", type=_EITHER, metavar="PATH",
        help="conda-forge-pinning: a conda_build_config.yaml, or a folder with it and migrations.")  # fmt: skip
@option(LOCAL, "--repodata", type=_FOLDER, metavar="FOLDER",
        help="The channel: <platform>/repodata.json, or .json.zst.")  # fmt: skip
@option(LOCAL, "--from", "start", type=_FILE, metavar="REPORT",
        help="Take everything from a report of --json; only what --source names is read anew.")  # fmt: skip
@option(SHOWN, "--markdown", "form", flag_value="markdown", help="Markdown instead of a table for terminals.")
@option(SHOWN, "--json", "form", flag_value="json", help="JSON with the origin of every value.")
@option(SHOWN, "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
        help="Write it there, whole or not at all.")  # fmt: skip
@option(SHOWN, "--write", type=_FILE, metavar="FILE",
        help="Put the Markdown between <!-- audit:begin --> and <!-- audit:end --> of a file.")  # fmt: skip
@option(SHOWN, "--compare", type=_FILE, metavar="REPORT", help="Show what changed since a report of --json.")
@option(SHOWN, "--fail-on", metavar="STATUS[,STATUS]", shell_complete=status_names,
        help="Fail when a row has one of these; see below.")  # fmt: skip
@option(HOW, "--source", "only", multiple=True, metavar="NAME", shell_complete=source_names,
        help="Ask this source only; a name or a glob, more than once.")  # fmt: skip
@option(HOW, "--skip", "skipped", multiple=True, metavar="NAME", shell_complete=source_names,
        help="Do not ask this source.")  # fmt: skip
@option(HOW, "--offline", is_flag=True, help="Only the cache, however old, and local files.")
@option(HOW, "--max-age", type=click.FloatRange(min=0), default=24.0, show_default=True, metavar="HOURS",
        help="How old what is cached may be.")  # fmt: skip
@option(HOW, "--timeout", type=click.FloatRange(min=1), default=300.0, show_default=True, metavar="SECONDS",
        help="For the whole audit; what has not answered by then is a value in its cells.")  # fmt: skip
@click.pass_context
def audit(
    context: click.Context,
    /,
    *,
    form: str | None,
    output: Path | None,
    write: Path | None,
    compare: Path | None,
    fail_on: str | None,
    **asked: Any,
) -> int:
    """Compare what upstream, the recipe and conda-forge say of every dependency.

    Upstream's submodules, its wheel's requirements and its CI's pins; the constraint that each variant of the recipe
    really has; conda-forge's pins, migrations and newest versions; the GPU architectures. Nothing is cloned or
    downloaded whole. A source that cannot be read is a value in its cells.
    """
    from megabuild.cli.audit_report import Options, make

    invocation: Invocation = context.obj
    invocation.json = form == "json" and output is None
    wanted = statuses(fail_on) if fail_on else ()
    if asked["start"] is None or asked["only"]:
        _here(root_of_repository(), Path.cwd())
    try:
        report, warnings = make(Options(**asked), root_of_repository())
    except KeyboardInterrupt:
        raise Interrupted("interrupted", "what was fetched is cached; run it again to go on") from None
    for warning in warnings:
        click.echo(f"! {warning}", err=True)
    if write is not None:
        from megabuild.audit.report.markdown import insert, markdown

        written = insert(write, markdown(report, level=3))
        click.echo(f"{'written' if written else 'in step already'}: {display(write)}", err=True)
    code = _show(report, form=form, output=output, compare=compare, quiet=write is not None)
    found = [
        f"{audit.target.package}: {name}" for audit in report.audits for name in audit.with_status(wanted)
    ]
    if found:
        click.echo(f"--fail-on {fail_on}: {', '.join(found)}", err=True)
        return FindingsError.exit_code
    return (_judged(report, fail_on, wanted, asked["skipped"]) if fail_on else 0) or code


def main() -> None:
    """Run the command line and end the process."""
    run(audit, name="audit-pins", invocation=Invocation(log_folder=root_of_repository() / "output" / "logs"))


def statuses(text: str) -> tuple[Status, ...]:
    """Return the statuses of a list with commas between them: ``conflict,recipe-older``; raises UsageError."""
    words = [part.strip().lower().replace(" ", "-").replace("_", "-") for part in text.split(",")]
    for word in words:
        if word not in STATUSES:
            raise UsageError(f"'{word}' is no status", f"they are: {', '.join(STATUSES)}")
    return tuple(STATUSES[word] for word in words)


def _here(root: Path, folder: Path) -> None:
    """Refuse to audit `root` for somebody who stands in another repository with a recipe; else say what is audited."""
    if folder.is_relative_to(root):
        return
    for one in (folder, *folder.parents):
        if any((one / "recipe" / name).is_file() for name in ("recipe.yaml", "meta.yaml")):
            raise ElsewhereError(
                f"{one} has a recipe of its own, and what is audited here are those of {root}",
                f"to audit these, go there first: cd {shlex.quote(str(root))}",
            )
    click.echo(f"auditing the recipes of {root}", err=True)


def _judged(report: Report, fail_on: str, wanted: tuple[Status, ...], skipped: tuple[str, ...]) -> int:
    """Say what --fail-on could not judge; return the exit code for that where a source as a whole was not read."""
    unread = {
        name: None
        for audit in report.audits
        for name in audit.not_read()
        if not any(fnmatchcase(name, pattern) for pattern in skipped)
    }
    unknown = sum(len(audit.with_status([Status.UNKNOWN])) for audit in report.audits)
    rows = sum(len(audit.rows) + len(audit.archs) for audit in report.audits)
    if unknown and Status.UNKNOWN not in wanted:
        click.echo(f"--fail-on {fail_on}: {unknown} of {counted(rows, 'row')} could not be judged", err=True)
    if not unread:
        return 0
    click.echo(
        f"error: --fail-on {fail_on} found nothing, but these were not read: {', '.join(unread)}\n"
        "  have them read once where there is a network, name local stand-ins (--help), or leave them out: --skip NAME",
        err=True,
    )
    return NotReadError.exit_code


def _show(report: Report, *, form: str | None, output: Path | None, compare: Path | None, quiet: bool) -> int:
    """Show the report in the form that is wanted; return the exit code for what --compare found."""
    from megabuild.audit.names import names
    from megabuild.audit.report import jsonfile
    from megabuild.audit.report.markdown import markdown
    from megabuild.cli.audit_views import changes_view, console, links_shown, report_view

    code = 0
    if compare is not None:
        old = jsonfile.read(compare, names())
        found = jsonfile.compare(old, report, names())
        if found.empty:
            code = IncomparableError.exit_code
            click.echo(
                f"error: nothing from outside this repository was read both in {display(compare)} and now\n"
                "  have it read once where there is a network, or name local stand-ins (--help)",
                err=True,
            )
        elif found.changes or found.lonely:
            code = ChangesError.exit_code
        if form is None and output is None:
            console().print(changes_view(found, old.made))
            return code
        click.echo(f"{counted(len(found.changes), 'cell')} changed since {old.made}", err=True)
    if form is None and output is not None:
        form = "json" if output.suffix == ".json" else "markdown"
    if form is not None:
        content = jsonfile.text(report) if form == "json" else markdown(report)
        if output is not None:
            jsonfile.write(content, output)
            click.echo(f"written: {display(output)}", err=True)
        else:
            click.echo(content, nl=False)
    elif not quiet:
        out = console()
        out.print(report_view(report, out, links=links_shown(out)))
    return code
