"""What a run is expected to take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from groundwork.machine import measure
from megabuild.configs.config import load
from megabuild.configs.render import render
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.last_run import keep_last_run, read_last_run
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan, PlanItem, Task
from megabuild.plan.tree_reuse import Decision, TreeUse
from megabuild.providers.environment import Environment, virtual_gpu
from megabuild.run.estimate import GB, Estimate, estimate
from megabuild.run.progress import Progress


def a_plan(repository: Path, folder: Path, name: str, **overrides: tuple[str, ...]) -> Plan:
    options = Options(
        config=load(repository, name), root=repository, output=folder, cache=folder, cpu_count=2
    )
    packages = [package for package in render(options.config, options.recipe) if not package.skipped]
    return Plan(
        options=options,
        items=tuple(PlanItem(package=package) for package in packages),
        left_out={},
        environment=Environment(channels=(), pythons=(), overrides=overrides),
        staging=Fingerprint(),
    )


def estimate_of(plan: Plan, *, use: TreeUse = TreeUse.FRESH) -> Estimate:
    return estimate(Progress(plan=plan, tree=Decision(use=use, reasons=())))


def test_cuda_takes_more_than_cpu_and_a_rehearsal_least(repository: Path, tmp_path: Path) -> None:
    model = a_plan(repository, tmp_path, "linux_64_cpu", torch_source=("model",))
    plans = [model, *(a_plan(repository, tmp_path, name) for name in ("linux_64_cpu", "linux_64_cuda130"))]
    found = [estimate_of(plan) for plan in plans]
    assert sorted(found, key=lambda figures: figures.disk) == found
    assert sorted(found, key=lambda figures: figures.hours) == found
    assert sorted(found, key=lambda figures: figures.memory_per_job) == found


def test_only_nvcc_s_heavy_objects_are_rationed(repository: Path, tmp_path: Path) -> None:
    for name, heavy in (("linux_64_cpu", 0), ("linux_64_cuda130", 1), ("linux_64_cuda130_wheel", 0)):
        plan = a_plan(repository, tmp_path, name)
        plan = replace(plan, options=replace(plan.options, memory=7 * GB))
        figures = estimate_of(plan)
        assert (figures.jobs.count, figures.heavy_jobs) == (2, heavy), name
        assert figures.memory_of_ordinary <= figures.memory_per_job


def test_packages_that_exist_take_nothing(repository: Path, tmp_path: Path) -> None:
    plan = a_plan(repository, tmp_path, "linux_64_cpu")
    figures = estimate(Progress(plan=plan, existing=frozenset(plan.file_names)))
    assert (figures.disk, figures.hours) == (0, 0)


def test_the_last_run_from_scratch_is_the_best_estimate(repository: Path, tmp_path: Path) -> None:
    plan = a_plan(repository, tmp_path, "linux_64_cpu")
    assert read_last_run(plan.options) == 0
    keep_last_run(plan.options, 7200.0)
    assert read_last_run(replace(plan.options, pythons=("3.12",))) == 0, "for other Pythons"
    plan = replace(plan, last_run=read_last_run(plan.options))
    assert estimate_of(plan).hours == 2.0
    assert estimate_of(plan, use=TreeUse.RESUME).hours > 2.0


def test_more_jobs_than_cores_are_no_faster(repository: Path, tmp_path: Path) -> None:
    plan = a_plan(repository, tmp_path, "linux_64_cpu")
    cores = measure().cores
    few, many = (
        estimate_of(replace(plan, options=replace(plan.options, cpu_count=count)))
        for count in (cores, 10 * cores)
    )
    assert few.hours == many.hours


def test_extensions_for_cuda_need_more_disk(repository: Path, tmp_path: Path) -> None:
    def disk(name: str) -> int:
        plan = a_plan(repository, tmp_path, name)
        task = Task(extension="pyg-lib", python=None, recipe=tmp_path, items=plan.items[:1], overrides={})
        return estimate_of(replace(plan, items=(), extensions=(task,))).disk

    assert 0 < disk("linux_64_cpu") < 2 * GB < disk("linux_64_cuda130")


def test_only_a_config_for_cuda_pretends_a_gpu(repository: Path) -> None:
    assert virtual_gpu(load(repository, "linux_64_cpu")) == {}
    assert virtual_gpu(load(repository, "linux_64_cuda130")) == {"__cuda": "13.0"}
