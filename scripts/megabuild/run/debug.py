"""`--debug`: sets up the environment of one output, and shows how to enter it."""

from __future__ import annotations

import shlex
from dataclasses import replace

from groundwork import in_use
from groundwork.errors import BuildError, UsageError
from groundwork.result import Result
from groundwork.text import display
from megabuild.engine.supervisor import run_worker
from megabuild.plan.plan import Plan
from megabuild.run.failure_shell import write_program
from megabuild.run.pytorch import describe_pytorch
from megabuild.run.session import locked

_FOLDER, _ENTER = "debug", "debug-enter"


def debug_package(plan: Plan, output: str | None) -> Result:
    """Set up the build and host environments of an output, and return how to enter them and run its script.

    The output is a package's name; without one it is the staging output, libtorch's compile, or in a recipe without one
    the first package. Of several Pythons the last counts.

    Raises UsageError: The recipe has no such output.
    Raises BuildError: An environment cannot be solved or a source cannot be fetched.
    Raises BusyError: The config is being built.
    """
    options, packages = plan.options, [item.package for item in plan.items]
    staging = next((package.staging for package in packages if package.staging), "")
    output = output or staging or packages[0].name
    isolation = plan.usable_isolation()
    isolation.check()
    in_use.mark(options.state)
    options.state.mkdir(parents=True, exist_ok=True)
    printed: list[str] = []
    with locked(options):  # a worker that starts ends what is left of others
        seen, job = describe_pytorch(plan, isolation, plan.jobs.count)
        inside = f"{seen.state_inside}/{_FOLDER}"
        if output == staging:  # what is tried out must not end up in packages
            job = replace(job, env={**job.env, "TORCH_TREE": f"{inside}/tree"})
        (seen.state / _FOLDER).mkdir(exist_ok=True)
        seen = replace(seen, mounts=[*seen.mounts, seen.mount(_FOLDER, writable=True)])
        outcome = run_worker(
            seen, job, on_line=printed.append, on_tick=lambda: None,
            script="debug_session.py", arguments=[output, inside],
        )  # fmt: skip
    if outcome.kind == "killed":
        raise BuildError("\n".join([f"{outcome.message}:", *printed[-10:]]))
    if "outputs" in outcome.document:
        raise UsageError(outcome.message, f"there are: {', '.join(outcome.document['outputs'])}")
    if not outcome.ok:
        remedy = "packages of this config that it needs must have been built before"
        raise BuildError(f"the environment of {output} cannot be made: {outcome.message}", remedy)
    paths, enter = outcome.document["paths"], options.state / _ENTER
    commands = [f"cd {shlex.quote(paths['work_dir'])}", "source build_env.sh", "exec bash --norc -i"]
    write_program(enter, seen, commands, name=_FOLDER)
    lines = [
        f"work folder   {paths['work_dir']}",
        f"host prefix   {paths['host_prefix']}",
        f"build prefix  {paths['build_prefix']}",
        "",
        f"enter it:     {display(enter)}",
        "and in there: bash -x conda_build.sh",
    ]
    return Result(lines=lines)
