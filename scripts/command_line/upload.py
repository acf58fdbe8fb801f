"""`megabuild upload`: what a config built, for a channel on anaconda.org."""

from __future__ import annotations

from typing import Any

import click

from command_line.options import GroupedCommand, option
from command_line.root import output_folder
from command_line.run_command import Invocation
from groundwork.errors import VerdictError
from groundwork.result import Result
from groundwork.text import UNICODE, counted, size

EXAMPLES = """
{prog} linux_64_cuda130 --check                  what there is, in order; every package is read
{prog} linux_64_cuda130 --user me --apply        uploads it to a channel of yours
{prog} linux_64_cuda130 --user conda-forge       as a member of its core team would
"""
WHERE = "Where it goes"


@click.command(cls=GroupedCommand, examples=EXAMPLES)
@click.argument("config")
@option(WHERE, "--user", metavar="CHANNEL", default="YOUR_CHANNEL",
        help="The channel on anaconda.org.  [default: a place to put yours]")  # fmt: skip
@option(WHERE, "--label", metavar="LABEL",
        help="[default: cfep03; for conda-forge main, of a release candidate pytorch_rc]")  # fmt: skip
@option(WHERE, "--apply", is_flag=True, help="Upload. ANACONDA_API_KEY has the token.")
@option("What is looked at", "--check", is_flag=True, help="Read every package.")
@option("What is looked at", "--output", "-o", metavar="DIR",
        help="The build's.  [default: output/ in the repository]")  # fmt: skip
@option("Showing", "--json", "as_json", is_flag=True,
        help="One JSON document on standard output, nothing else.")  # fmt: skip
@click.pass_context
def upload(context: click.Context, /, **given: Any) -> Result:
    """Show what CONFIG built in the order of uploading, and upload it with --apply.

    CONFIG is what its run was called. Of several builds of a package the newest is taken. Exit code 14: conda-forge
    would refuse a package; then nothing is uploaded.
    """
    from megabuild import upload as uploading

    invocation: Invocation = context.obj
    invocation.json = given["as_json"]
    user, apply = given["user"], given["apply"]
    for name in ("user", "label"):
        if given[name] is not None and (not given[name] or given[name].startswith("-")):
            raise click.UsageError(f"--{name} names nothing")
    if apply and user == "YOUR_CHANNEL":
        raise click.UsageError("--apply needs a channel: --user CHANNEL")
    release = uploading.find_release(output_folder(given["output"]), given["config"])
    direct = user == uploading.CONDA_FORGE
    label = given["label"] or (release.label if direct else uploading.DELEGATE)
    faults = list(uploading.find_faults(release, label))
    faults += uploading.find_faults_inside(release) if given["check"] or apply else []
    copies = [] if direct or faults else uploading.copy_commands(release, user, label)
    if apply and not faults:
        uploading.upload(release, user, label)
    packages = [
        {
            "file": str(artifact.path),
            **artifact.package._asdict(),
            "size": artifact.size,
            "sha256": artifact.sha256,
        }
        for artifact in release.artifacts
    ]
    lines = []
    for artifact in release.artifacts:
        lines += [f"{artifact.path.name}  {size(artifact.size)}", f"  sha256 {artifact.sha256}"]
    total = size(sum(artifact.size for artifact in release.artifacts))
    lines += [f"{counted(len(packages), 'package')}, {total}", ""]
    lines += [f"{UNICODE.failed} {fault}" for fault in faults]
    if not faults:
        uploaded = f"{UNICODE.done} uploaded to {user}, label {label}"
        lines.append(uploaded if apply else "upload it: --user CHANNEL --apply")
    if copies:
        lines += ["then, for a member of conda-forge's core team (CFEP-03), in this order:", *copies]
    return Result(
        format="upload",
        document={
            "label": label,
            "uploaded": apply and not faults,
            "packages": packages,
            "faults": faults,
            "copy": copies,
        },
        lines=lines,
        exit_code=VerdictError.exit_code if faults else 0,
    )
