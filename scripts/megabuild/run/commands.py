"""The command lines that install, or help to upload, what a run has built."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from rattler import Version, VirtualPackage
from rattler.virtual_package.virtual_package import VirtualPackageOverrides

from megabuild.plan.plan import Plan
from megabuild.plan.solving import url
from megabuild.run.summary import Summary

_FOLDER = "./env"


def commands(plan: Plan, summary: Summary) -> dict[str, str]:
    """Return, by the program's name, a line that makes an environment; nothing where PyTorch is not published.

    It is for the newest Python, with the extensions that there are for it, else with PyTorch. Where this machine lacks
    what the packages ask for, each line sets the variables that stand in.
    """
    there = {row.package for row in summary.packages if row.status in ("built", "skipped")}
    packages = [item.package for item in plan.all_items]
    made = [package for package in packages if package.id in there]
    own = {package.name for task in plan.extensions.tasks for package in task.packages}
    pythons = [one.python for one in made if one.python and one.name not in own]
    if not pythons:
        return {}
    python = max(pythons, key=lambda one: (not one.endswith("t"), plan.options.config.pythons.index(one)))
    extensions = [one.name for one in made if one.name in own and one.python in (None, python)]
    names = [*dict.fromkeys(extensions or (one.name for one in made if one.python == python))]
    machine = _machine()
    variables = [f"CONDA_OVERRIDE_{name}={version}" for name, version in _lacking(plan, machine).items()]
    channels = [url(channel) for channel in (summary.channel, *plan.environment.channels)]
    named = [word for channel in channels for word in ("-c", channel)]
    pin = (
        f"python={python}"
        if not python.endswith("t")
        else f"python={python[:-1]}=*_cp{python.replace('.', '')}"
    )
    conda_like = ["create", "-p", _FOLDER, "--override-channels", *named, *names, pin]
    lines = {
        "megabuild": [
            *_megabuild(plan),
            "env",
            "create",
            _FOLDER,
            *names,
            "--python",
            python,
            "--from",
            plan.options.run_name,
        ],
        "micromamba": ["micromamba", *conda_like],
        "conda": ["conda", *conda_like],
    }
    lines["megabuild"] += _output(plan)
    found = {program: shlex.join(words) for program, words in lines.items()}
    prefix = "".join(f"{word} " for word in variables)
    # pixi asks its file, not the machine, what the solver may count on
    system = _system_requirements(plan, machine)
    pixi = [shlex.join(["pixi", "init", _FOLDER, *named])]
    pixi += [f"printf {shlex.quote(system)} >> {_FOLDER}/pixi.toml"] if system else []
    pixi += [prefix + shlex.join(["pixi", "add", "--manifest-path", f"{_FOLDER}/pixi.toml", *names, pin])]
    return {**{program: prefix + line for program, line in found.items()}, "pixi": " && ".join(pixi)}


def upload(plan: Plan, summary: Summary) -> str:
    """Return the line that tells how to upload a run's packages; "" where they are not for other people's channels."""
    options = plan.options
    if options.rehearse or not summary.ok or options.config.provider != "conda-forge":
        return ""
    return shlex.join([*_megabuild(plan), "upload", options.run_name, "--check", *_output(plan)])


def _megabuild(plan: Plan) -> list[str]:
    program = plan.options.root / "scripts" / "megabuild"
    here = Path.cwd()
    shown = program.relative_to(here) if program.is_relative_to(here) else program
    return ["python3", str(shown)]


def _output(plan: Plan) -> list[str]:
    given = plan.options.output
    return [] if given == plan.options.root / "output" else ["-o", str(given)]


def _machine() -> dict[str, Version]:
    """Return this machine's virtual packages, with the variables that override them taken into account."""
    found = VirtualPackage.detect(VirtualPackageOverrides.from_env())
    generic = [one.into_generic() for one in found]
    return {one.name.normalized: one.version for one in generic}


def _lacking(plan: Plan, machine: Mapping[str, Version]) -> dict[str, str]:
    """Return what the packages were made for and this machine does not have: ``{"CUDA": "13.2"}``."""
    wanted = plan.environment.virtual_packages
    # which CUDA a driver offers does not matter to them: they bring their own
    return {
        name.removeprefix("__").upper(): version
        for name, version in wanted.items()
        if name not in machine or (name == "__glibc" and machine[name] < Version(version))
    }


def _system_requirements(plan: Plan, machine: Mapping[str, Version]) -> str:
    """Return a part of pixi.toml (https://pixi.prefix.dev/latest/workspace/system_requirements), for printf."""
    cuda = plan.options.config.cuda_version
    glibc = plan.environment.virtual_packages.get("__glibc") or machine.get("__glibc")
    rows = [f'libc = {{ family = "glibc", version = "{glibc}" }}'] if glibc else []
    rows += [f'cuda = "{cuda}"'] if cuda else []
    return "\\n".join(["", "[system-requirements]", *rows, ""]) if rows else ""
