"""The command lines that install, or help to upload, what a run has built."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from rattler import Version, VirtualPackage
from rattler.virtual_package.virtual_package import VirtualPackageOverrides

import megabuild
from megabuild.plan.plan import Plan
from megabuild.plan.solving import url
from megabuild.run.summary import Summary

_FOLDER = "./env"


def commands(plan: Plan, summary: Summary) -> dict[str, str]:
    """Return, by the program's name, a line that makes an environment; nothing where PyTorch is not published.

    It is for the newest Python, with the extensions that there are for it, else with PyTorch; of another feedstock's
    recipe with all that was made for that Python, or for none. Where this machine lacks
    what the packages ask for, each line sets the variables that stand in.
    """
    there = {row.package for row in summary.packages if row.status in ("built", "skipped")}
    packages = [item.package for item in plan.all_items]
    made = [package for package in packages if package.id in there]
    own = {package.name for task in plan.extensions.tasks for package in task.packages}
    pythons = [one.python for one in made if one.python and one.name not in own]
    foreign = not plan.options.config.torch_version
    if not made or not (pythons or foreign):
        return {}
    order = plan.options.config.pythons
    python = max(pythons, key=lambda one: (not one.endswith("t"), order.index(one))) if pythons else None
    extensions = [one.name for one in made if one.name in own and one.python in (None, python)]
    wanted = (None, python) if foreign else (python,)
    names = [*dict.fromkeys(extensions or (one.name for one in made if one.python in wanted))]
    machine = _machine()
    variables = [f"CONDA_OVERRIDE_{name}={version}" for name, version in _lacking(plan, machine).items()]
    channels = [url(channel) for channel in (summary.channel, *plan.environment.channels)]
    named = [word for channel in channels for word in ("-c", channel)]
    pin = [] if python is None else [f"python={python}"]
    if python and python.endswith("t"):
        pin = [f"python={python[:-1]}=*_cp{python.replace('.', '')}"]
    conda_like = ["create", "-p", _FOLDER, "--override-channels", *named, *names, *pin]
    chosen = ["--python", python] if python else []
    lines = {
        "megabuild": [
            *own_program(),
            *("env", "create", _FOLDER),
            *names,
            *chosen,
            *("--from", plan.options.run_name),
            *_output(plan),
        ],
        "micromamba": ["micromamba", *conda_like],
        "conda": ["conda", *conda_like],
    }
    found = {program: shlex.join(words) for program, words in lines.items()}
    prefix = "".join(f"{word} " for word in variables)
    # pixi asks its file, not the machine, what the solver may count on
    system = _system_requirements(plan, machine)
    pixi = [shlex.join(["pixi", "init", _FOLDER, *named])]
    pixi += [f"printf {shlex.quote(system)} >> {_FOLDER}/pixi.toml"] if system else []
    pixi += [prefix + shlex.join(["pixi", "add", "--manifest-path", f"{_FOLDER}/pixi.toml", *names, *pin])]
    return {**{program: prefix + line for program, line in found.items()}, "pixi": " && ".join(pixi)}


def upload(plan: Plan, summary: Summary) -> str:
    """Return the line that tells how to upload a run's packages; "" where they are not for other people's channels."""
    options = plan.options
    if options.rehearse or not summary.ok or options.config.provider != "conda-forge":
        return ""
    return shlex.join([*own_program(), "upload", options.run_name, "--check", *_output(plan)])


def own_program() -> list[str]:
    """Return the words that start this program's command line here: in a checkout nothing is on the PATH."""
    program, here = Path(megabuild.__file__).resolve().parent, Path.cwd()
    # installed, without a checkout
    if not (program / "__main__.py").is_file() or program.parent.name != "scripts":
        return ["megabuild"]
    shown = program.relative_to(here) if program.is_relative_to(here) else program
    return ["python3", str(shown)]


def _output(plan: Plan) -> list[str]:
    options = plan.options
    usual = options.own and options.output == options.root / "output"
    return [] if usual else ["-o", str(options.output)]


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
