"""`--debug`: the environment of one output, made ready, and how to get into it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import replace

import click
from rich.console import Console

from megabuild.build.place import View, view
from megabuild.build.pytorch import pytorch_job
from megabuild.cli.exits import Invocation
from megabuild.cli.root import display
from megabuild.cli.running import planned
from megabuild.engine.job import Job
from megabuild.errors import BuildError, UsageError
from megabuild.isolation.base import Isolation
from megabuild.isolation.choose import choose
from megabuild.plan.options import Options
from megabuild.plan.planning import jobs_for

STAGING = "libtorch-staging"
_FOLDER = "debug"


def debug_package(options: Options, output: str, invocation: Invocation) -> int:
    """Make the build and host environments of an output, and print how to enter them and run its script.

    Parameters
    ----------
    options:
        As for a build; of several Pythons the last counts.
    output:
        A package's name, or ``libtorch-staging`` for libtorch's compile.

    Raises
    ------
    UsageError
        The recipe has no such output.
    BuildError
        An environment cannot be solved or a source cannot be fetched.
    """
    plan = planned(options, Console(stderr=True))
    environment = replace(plan.environment, overrides=dict(plan.overrides))
    isolation = choose(options.engine, config=options.config, environment=environment)
    isolation.check()
    options.state.mkdir(parents=True, exist_ok=True)
    channels = plan.environment.channels
    seen = view(plan, isolation, state=options.state, recipe=options.recipe, channels=channels)
    work = pytorch_job(plan, seen, jobs_for(plan).count)
    if output == STAGING:  # what is tried out must not end up in packages
        work = replace(work, env={**work.env, "TORCH_TREE": f"{seen.place.state_inside}/{_FOLDER}/tree"})
    paths = _made(seen, isolation, options, output, work_file=work)
    lines = _how_to_enter(seen, isolation, options, paths)
    click.echo(
        json.dumps({"paths": paths, "enter": lines}, indent=1) if invocation.json else "\n".join(lines)
    )
    return 0


def _made(
    seen: View, isolation: Isolation, options: Options, output: str, *, work_file: Job
) -> dict[str, str]:
    """Have the engine make the environments, where the build would run; returns paths as they are there."""
    place, state = seen.place, options.state
    job_file, answer = state / "debug-job.json", state / "debug-answer.json"
    work_file.write(job_file)
    answer.unlink(missing_ok=True)
    inside = place.state_inside
    arguments = [f"{inside}/{job_file.name}", f"{inside}/{answer.name}", output, f"{inside}/{_FOLDER}"]
    argv = [place.python, f"{place.scripts_inside}/engine/debug_session.py", *arguments]
    env = {"PYTHONPATH": place.site_inside, "PYTHONDONTWRITEBYTECODE": "1"}
    name = f"{place.name}-{_FOLDER}"
    isolation.stop(name)
    done = subprocess.run(
        isolation.command(argv, mounts=place.mounts, env=env, cwd=inside, name=name),
        env=isolation.environment(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    found = json.loads(answer.read_text()) if answer.exists() else {}
    if "outputs" in found:
        raise UsageError(found["error"], f"there are: {', '.join(found['outputs'])}")
    if "error" in found:
        remedy = "packages of this config that it needs must have been built before"
        raise BuildError(f"the environment of {output} cannot be made: {found['error']}", remedy)
    if not found:
        last = "\n".join(done.stdout.splitlines()[-10:])
        failure = isolation.failure(done.returncode, output=done.stdout, stopped=False)
        raise failure or BuildError(f"the engine ended with code {done.returncode}:\n{last}")
    return dict(found["paths"])


def _how_to_enter(seen: View, isolation: Isolation, options: Options, paths: Mapping[str, str]) -> list[str]:
    """Write a script that opens a shell in the environment; returns the lines that tell of it."""
    place = seen.place
    inner = f"cd {shlex.quote(paths['work_dir'])} && source build_env.sh && exec bash --norc -i"
    command = isolation.command(
        ["bash", "-c", inner],
        mounts=place.mounts,
        env={},
        cwd=place.state_inside,
        name=f"{place.name}-{_FOLDER}",
    )
    if "--interactive" in command:  # a container: a person at a terminal is there now
        command.insert(command.index("--interactive"), "--tty")
    passed = {key: value for key, value in isolation.environment({}).items() if os.environ.get(key) != value}
    exports = [f"export {key}={shlex.quote(value)}" for key, value in passed.items()]
    enter = options.state / _FOLDER / "enter"
    enter.write_text("\n".join(["#!/bin/sh", *exports, f"exec {shlex.join(command)}", ""]))
    enter.chmod(0o755)
    return [
        f"work folder   {paths['work_dir']}",
        f"host prefix   {paths['host_prefix']}",
        f"build prefix  {paths['build_prefix']}",
        "",
        f"enter it:     {display(enter)}",
        "and in there: bash -x conda_build.sh",
    ]
