"""Extensions in the plan, during the build and in the summary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from megabuild.configs.config import load
from megabuild.configs.render import PlannedPackage
from megabuild.plan import extensions
from megabuild.plan.extensions import choose_method, render_tasks
from megabuild.plan.plan import Method, PlanItem, Task
from megabuild.plan.run_choices import PygMode
from megabuild.run.plan_report import extension_lines
from megabuild.run.progress import Progress
from megabuild.store import published
from pyg_extensions.find_wheel import Choice
from pyg_extensions.table import recipes


def choose(extension: str, python: str) -> Choice:
    """Offers a wheel for one extension."""
    if extension == "pytorch_scatter":
        return Choice(wheel=Path("/cache/torch_scatter.whl"), reason="torch_scatter-2.1.2.whl")
    return Choice(wheel=None, reason=f"no wheel for Python {python}")


def planned(repository: Path, *, mode: str, lacking: str = "") -> list[Task]:
    config = load(repository, "linux_64_cpu")
    pins = tuple(pin for pin in config.variant["python"] if pin.startswith("3.12"))
    tasks = [
        task
        for name in ("pytorch_scatter", "pytorch_cluster")
        for task in render_tasks(config, name, recipes(repository)[name], {"python": pins})
    ]
    planned = []
    for task in tasks:
        choice = choose(task.extension, task.base_python)
        made = choose_method(choice, PygMode(mode), lacking)
        planned.append(replace(task, method=made.method, reason=made.reason, wheel=made.wheel))
    return planned


def test_a_task_is_rendered_for_the_machine_that_compiles_with_the_values_of_its_python(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that the config zips with Python are those of the same row."""
    config = replace(load(repository, "linux_64_cpu"), build_platform="linux-aarch64")
    python = ("3.12.* *_cpython", "3.13.* *_cp313")
    made = [
        PlannedPackage(
            name="x", version="1", build_string=f"cpu_py3{minor}_0", build_number=0, file_name=f"x-{minor}.conda",
            subdir="linux-64", python=f"3.{minor}", build=(), host=(), run=(), constraints=(), test=(),
        )
        for minor in (12, 13)
    ]  # fmt: skip
    asked: list[object] = []

    def render(*given: object, **how: object) -> list[PlannedPackage]:
        asked.extend([*given, how])
        return made

    monkeypatch.setattr(extensions, "render", render)
    more = {"c_compiler_version": ("15",)}
    tasks = render_tasks(config, "x", Path("recipe.yaml"), {"python": python, **more})
    values = {"python": python, **more, "is_python_min": ("true", "false")}
    assert asked == [
        config, Path("recipe.yaml"), {"overrides": values, "build_platform": "linux-aarch64"},
    ]  # fmt: skip
    rows = [
        {"python": (pin,), **more, "is_python_min": (is_lowest,)}
        for pin, is_lowest in zip(python, ("true", "false"), strict=True)
    ]
    assert [task.overrides for task in tasks] == rows


def test_a_task_has_a_name_for_each_python() -> None:
    """It names the folder of the task's state."""
    pythons = ("3.13", "3.13t", None)
    names = [
        Task(extension="x", python=each, recipe=Path("r"), items=(), overrides={}).name for each in pythons
    ]
    assert names == ["x-py313", "x-py313t", "x-abi3"]


def test_a_task_needs_other_tasks_and_never_itself() -> None:
    def task(extension: str, python: str | None, **needs: tuple[str, ...]) -> Task:
        package = PlannedPackage(
            name=extension, version="1", build_string="0", build_number=0, file_name=f"{extension}.conda",
            subdir="linux-64", python=python, build=(), host=(), run=(), constraints=(), test=(),
        )  # fmt: skip
        package = replace(package, **cast(Any, needs))
        items = (PlanItem(package=package),)
        return Task(extension=extension, python=python, recipe=Path("r"), items=items, overrides={})

    tasks = [
        task("all", None),
        task("one", "3.12", host=("all >=1",), test=("one", "pip")),
        task("two", "3.12", run=("one=1",)),
        task("two", "3.13", run=("one=1",)),
    ]
    assert extensions._needs(tasks) == {
        "all-abi3": (), "one-py312": ("all-abi3",), "two-py312": ("one-py312",), "two-py313": (),
    }  # fmt: skip


def test_what_exists_of_a_plan_was_made_from_its_inputs_and_has_passed_its_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages of extensions, too."""
    names = {part: f"{part}-1-py312_0.conda" for part in ("torch", "scatter", "sparse", "cluster", "former")}
    names["former"] = "torch-0-py313_0.conda"
    record = published.PublishedPackage(path="", size=0, sha256="", fingerprint="inputs")
    records = {
        names["torch"]: replace(record, awaits="tests"), names["scatter"]: record,
        names["sparse"]: replace(record, fingerprint="other inputs"),
        names["cluster"]: replace(record, is_tested=False),
        names["former"]: replace(record, fingerprint="older inputs"),
    }  # fmt: skip
    monkeypatch.setattr(published, "records", lambda _: records)
    monkeypatch.setattr(published, "is_published", lambda _, one, inputs: one and one.fingerprint == inputs)
    items = []
    for part in ("torch", "scatter", "sparse", "cluster"):
        package = SimpleNamespace(name=part, file_name=names[part])
        items.append(SimpleNamespace(package=package, file_name=names[part], fingerprint="inputs"))
    plan = SimpleNamespace(
        items=items[:1],
        all_items=items,
        options=SimpleNamespace(packages=tmp_path),
        stages=False,
        untested="",
    )
    made = Progress.read(cast(Any, plan))
    assert made.existing == {names["torch"], names["scatter"]}
    assert made.untested == frozenset()
    assert made.awaiting == {names["torch"]}
    kinds = [(part, "py3.12") for part in ("torch", "scatter", "sparse", "cluster")]
    assert made.former == {*kinds, ("torch", "py3.13")}
    plan.untested = "this machine cannot run them"
    assert Progress.read(cast(Any, plan)).untested == {names["cluster"]}


def test_a_fitting_wheel_is_repackaged_and_other_extensions_are_compiled_or_left_out(
    repository: Path,
) -> None:
    made = planned(repository, mode="auto")
    assert [task.method for task in made] == [Method.REPACKAGE, Method.COMPILE]
    nothing_exists = Progress(plan=cast(Any, None))
    cluster, why = (
        line for line in extension_lines(made, nothing_exists) if line.startswith("pytorch_cluster")
    )
    assert cluster.endswith("compile")
    assert "3.12" in why
    assert planned(repository, mode="prebuilt")[1].method is Method.NOTHING
    made = planned(repository, mode="auto", lacking="no archive")
    reasons = [(Method.REPACKAGE, "torch_scatter-2.1.2.whl"), (Method.NOTHING, "no archive")]
    assert [(task.method, task.reason) for task in made] == reasons
