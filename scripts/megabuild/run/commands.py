"""The command lines that install, or help to upload, the packages of a run."""

from __future__ import annotations

import shlex
from pathlib import Path

from rattler import Version, VirtualPackage
from rattler.virtual_package.virtual_package import VirtualPackageOverrides

import megabuild
from megabuild.plan.plan import Plan
from megabuild.run.summary import Summary

_FOLDER = "./env"


def install_line(plan: Plan, summary: Summary) -> str:
    """Return the line that makes an environment of what was built; nothing where PyTorch is not published.

    It is for the newest Python, with the extensions built for it, else with PyTorch; of another feedstock's recipe with
    every package for that Python or for none. Where this machine lacks what the packages ask for, such as a GPU, the
    line sets the variables that override it.
    """
    there = {row.package for row in summary.packages if row.status in ("built", "skipped")}
    made = [item.package for item in plan.all_items if item.package.id in there]
    own = {package.name for task in plan.extensions.tasks for package in task.packages}
    pythons = [package.python for package in made if package.python and package.name not in own]
    foreign = not plan.options.config.torch_version
    if not made or not (pythons or foreign):
        return ""
    order = plan.options.config.pythons
    python = max(pythons, key=lambda name: (not name.endswith("t"), order.index(name))) if pythons else None
    extensions = [
        package.name for package in made if package.name in own and package.python in (None, python)
    ]
    wanted = (None, python) if foreign else (python,)
    names = dict.fromkeys(extensions or (package.name for package in made if package.python in wanted))
    words = [*own_program(), "env", "create", _FOLDER, *names, *(["--python", python] if python else [])]
    line = shlex.join([*words, "--from", plan.options.run_name, *_output(plan)])
    variables = (f"CONDA_OVERRIDE_{name}={version}" for name, version in _lacking(plan).items())
    return " ".join([*variables, line])


def upload(plan: Plan, summary: Summary) -> str:
    """Return the line that tells how to upload a run's packages; "" where they are not for other people's channels."""
    options = plan.options
    if options.rehearse or not summary.ok or options.config.provider != "conda-forge":
        return ""
    return shlex.join([*own_program(), "upload", options.run_name, *_output(plan)])


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


def _lacking(plan: Plan) -> dict[str, str]:
    """Return what the packages were made for and this machine does not have: ``{"CUDA": "13.2"}``."""
    detected = VirtualPackage.detect(VirtualPackageOverrides.from_env())
    generic = [package.into_generic() for package in detected]
    machine = {package.name.normalized: package.version for package in generic}
    # which CUDA a driver offers does not matter to the packages: they bring their own
    return {
        name.removeprefix("__").upper(): version
        for name, version in plan.environment.virtual_packages.items()
        if name not in machine or (name == "__glibc" and machine[name] < Version(version))
    }
