"""The line that a run ends with."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from calling import call
from tiny import Tiny, make_channel, provider

from command_line import root
from command_line.run_command import Invocation
from groundwork.errors import BuildError, BusyError
from groundwork.names import PackageId
from megabuild.plan import planning, upstream_tests
from megabuild.plan.plan import Plan, PlanItem, Task
from megabuild.plan.tree_reuse import TreeUse
from megabuild.run.session import locked
from megabuild.run.summary import (
    PackageResult,
    ResultStatus,
    Summary,
    _newest_python,
    install_command,
    install_line,
)
from megabuild.status import record as state_file
from megabuild.status.record import RunRecord, RunStatus


def test_the_line_names_packages_python_and_what_they_were_built_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = make_channel(tmp_path / "channel with blank")
    needed = {"__cuda": "13.2", "__glibc": "9.9"}
    monkeypatch.setattr(planning, "choose_provider", provider(channel, virtual_packages=needed))
    plan = Tiny(output=tmp_path / "output", channel=channel).plan()
    rows = tuple(PackageResult(package=item.package.id, status=ResultStatus.BUILT) for item in plan.items)
    line = install_line(plan, rows)
    assert line.startswith("CONDA_OVERRIDE_CUDA=13.2 CONDA_OVERRIDE_GLIBC=9.9 python3 ")
    assert line.endswith(f"tinypy --python 3.12 --from tiny-rehearsal -o {plan.options.output}")
    assert install_line(plan, ()) == ""
    alone = install_command(plan, plan.items[-1].package, tmp_path / "broken")
    assert alone.startswith("CONDA_OVERRIDE_CUDA=13.2 CONDA_OVERRIDE_GLIBC=9.9 python3 ")
    assert alone.endswith(f" --channel {tmp_path / 'broken'}")


@pytest.mark.parametrize("folder", ["output", "elsewhere"])
@pytest.mark.parametrize("own", [True, False], ids=["this project", "a feedstock"])
def test_the_line_names_the_output_folder_that_the_command_would_not_find(
    own: bool, folder: str, tiny: Tiny
) -> None:
    """The command looks in the output folder of this project if it names none."""
    plan = tiny.plan()
    plan = replace(plan, options=replace(plan.options, own=own, output=plan.options.root / folder))
    rows = tuple(PackageResult(package=item.package.id, status=ResultStatus.BUILT) for item in plan.items)
    line = install_line(plan, rows)
    assert line.endswith(f" -o {plan.options.output}") == (not own or folder != "output")


@pytest.mark.parametrize(
    ("staging", "statuses", "end"),
    [
        (
            TreeUse.RESUME,
            "built skipped",
            "incomplete after 1:01 min in this run; earlier ones compiled objects and built 1 package",
        ),
        (
            TreeUse.FRESH,
            "built skipped",
            "incomplete after 1:01 min in this run; earlier ones built 1 package",
        ),
        (TreeUse.FRESH, "built failed", "incomplete after 1:01 min"),
        (TreeUse.RESUME, "skipped failed", "incomplete after 1:01 min"),
        (TreeUse.FRESH, "built", "done in 1:01 min"),
    ],
)
def test_the_end_of_a_run_names_its_result_and_the_part_of_earlier_ones(
    staging: TreeUse, statuses: str, end: str
) -> None:
    rows = [
        PackageResult(package=PackageId("a", "1", "0"), status=ResultStatus(word))
        for word in statuses.split()
    ]
    ok = end.startswith("done")
    place = Path("/x")
    result = Summary(
        ok=ok, config="x", packages=tuple(rows), seconds=61.0, log=place, channel=place, staging=staging
    ).result()
    assert f"x: {end}" in result.lines
    assert result.exit_code == (0 if ok else BuildError.exit_code), (
        "without an error, too: an extension failed"
    )


@pytest.mark.parametrize("folder", ["output", "else where"])
@pytest.mark.parametrize("own", [True, False], ids=["this project", "a feedstock"])
def test_the_hint_on_a_busy_config_shows_the_run_that_builds_it(
    own: bool, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a relative path to the program would not be found here
    output = tmp_path / folder
    options = replace(Tiny(output=output, channel=tmp_path).options(), root=tmp_path, own=own)
    options.state.mkdir(parents=True)
    state_file.write(options.state, RunRecord(config=options.run_name, status=RunStatus.DONE))
    with locked(options), pytest.raises(BusyError) as busy:
        locked(options)
    python, program, *words = shlex.split(busy.value.remedy.partition(": ")[2])
    assert (python, Path(program).is_file()) == ("python3", True)
    monkeypatch.setattr(root, "ROOT", tmp_path)  # the folder of this project
    monkeypatch.setattr(root, "is_checkout", lambda: True)
    done = call(Invocation(log_folder=tmp_path), *words)
    assert (done.exit_code, done.stdout.strip().startswith("tiny-rehearsal: done")) == (0, True), done.output


@pytest.mark.parametrize(
    ("built", "newest"),
    [(("3.9", "3.13", "3.13t", "3.12"), "3.13"), (("3.13t", "3.14t"), "3.14t"), ((None,), None)],
    ids=["with a GIL", "without", "none"],
)
def test_the_line_is_for_the_newest_python_if_possible_one_with_a_gil(
    built: tuple[str | None, ...], newest: str | None
) -> None:
    """Few packages are for free-threaded ones."""
    config = SimpleNamespace(pythons=("3.9", "3.12", "3.13", "3.13t", "3.14t"))
    plan = cast(Any, SimpleNamespace(options=SimpleNamespace(config=config)))
    packages = [SimpleNamespace(python=python) for python in built]
    assert _newest_python(plan, cast(Any, packages)) == newest


def test_the_line_of_another_recipe_names_all_packages_that_one_environment_can_have(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Plan, "is_foreign", True)
    plan = tiny.plan()
    rows = [PackageResult(package=item.package.id, status=ResultStatus.BUILT) for item in plan.items]
    assert " ./env tinylib tinypy --python 3.12 " in install_line(plan, rows)


def test_the_line_installs_no_tests_of_pytorchs_own(tiny: Tiny) -> None:
    plan = tiny.plan()
    pythonic = next(item.package for item in plan.items if item.package.python)
    tests = PlanItem(package=replace(pythonic, name=upstream_tests.PACKAGE))
    plan = replace(plan, items=(*plan.items, tests))
    rows = [PackageResult(package=item.package.id, status=ResultStatus.BUILT) for item in plan.items]
    assert " ./env tinypy --python " in install_line(plan, rows)
    assert install_line(plan, rows[-1:]) == "", "without PyTorch there is nothing to install"


def test_the_line_names_an_extension_for_all_pythons(tiny: Tiny, tmp_path: Path) -> None:
    plan = tiny.plan()
    pythonic = next(item.package for item in plan.items if item.package.python)

    def task(extension: str, built_with: str, serves: str | None) -> Task:
        package = replace(pythonic, name=extension, python=built_with)
        return Task(extension=extension, python=serves, recipe=tmp_path, items=(PlanItem(package=package),),
                    overrides={})  # fmt: skip

    tasks = (task("pyg-lib", "3.10", None), task("scatter", "3.12", "3.12"), task("sparse", "3.10", "3.10"))
    plan = replace(plan, extensions=tasks)
    rows = tuple(PackageResult(package=item.package.id, status=ResultStatus.BUILT) for item in plan.all_items)
    assert " ./env pyg-lib scatter --python 3.12 " in install_line(plan, rows)
