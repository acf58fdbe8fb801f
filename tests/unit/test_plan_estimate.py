"""What a run is expected to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from small_files import write

from groundwork.errors import IsolationError
from groundwork.job_pool import PoolMember
from groundwork.jobs import bytes_per_compile
from groundwork.machine import measure
from megabuild.configs.config import load
from megabuild.configs.render import render
from megabuild.isolation.base import Host, Isolation
from megabuild.plan import fingerprint, last_run, object_cache, tree_reuse, work_record
from megabuild.plan.environment_inputs import ObjectCounts
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.last_run import NO_RUNS, LastRuns, RunCosts, RunKind, keep_last_runs, read_last_runs
from megabuild.plan.options import Options
from megabuild.plan.plan import Method, Plan, PlanItem, Task
from megabuild.plan.tree_reuse import Decision, TreeUse
from megabuild.providers.environment import Environment, virtual_gpu
from megabuild.providers.provider import Figures
from megabuild.providers.select import provider_of
from megabuild.run import duration, outlook
from megabuild.run import estimate as estimate_module
from megabuild.run import progress as progress_module
from megabuild.run.build_output import Parser
from megabuild.run.estimate import GB, Estimate, _memory_needs, _tests_hours, estimate
from megabuild.run.measure_run import measure_run
from megabuild.run.progress import Progress
from megabuild.run.store_lookup import Stored


def a_plan(repository: Path, folder: Path, name: str, **overrides: tuple[str, ...]) -> Plan:
    options = Options(
        config=load(repository, name), root=repository, output=folder, cache=folder, cpu_count=2
    )
    packages = render(options.config, options.recipe)
    return Plan(
        options=options,
        items=tuple(PlanItem(package=package) for package in packages),
        left_out={},
        environment=Environment(channels=(), pythons=(), overrides=overrides),
        staging=Fingerprint(),
    )


def table_of(plan: Plan) -> Figures:
    figures = provider_of(plan.config).cpu_figures
    assert figures is not None
    return figures


def estimate_of(plan: Plan, *, use: TreeUse = TreeUse.FRESH) -> Estimate:
    return estimate(Progress(plan=plan, tree=Decision(use=use, reasons=())))


def test_cuda_takes_more_than_cpu_and_a_rehearsal_least(repository: Path, tmp_path: Path) -> None:
    model = a_plan(repository, tmp_path, "linux_64_cpu", torch_source=("model",))
    plans = [model, *(a_plan(repository, tmp_path, name) for name in ("linux_64_cpu", "linux_64_cuda130"))]
    found = [estimate_of(plan) for plan in plans]
    assert sorted(found, key=lambda figures: figures.disk) == found
    assert sorted(found, key=lambda figures: figures.hours) == found
    assert sorted(found, key=lambda figures: figures.memory_per_job) == found


def test_pytorch_s_own_tests_take_hours_until_they_have_passed(repository: Path, tmp_path: Path) -> None:
    plan = a_plan(repository, tmp_path, "linux_64_cpu")
    tested = [item for item in plan.items if item.package.name == "pytorch-tests"]
    assert len(tested) == len(plan.options.config.pythons)
    every = estimate_of(plan)
    others = tuple(item for item in plan.items if item not in tested)
    without = estimate_of(replace(plan, items=others))
    assert every.tests_cpu_hours > 0
    assert every.cpu_hours == pytest.approx(without.cpu_hours + every.tests_cpu_hours)
    assert without.tests_cpu_hours == 0
    passed = {item.file_name for item in tested if item.package.python == "3.12"}
    left = estimate(
        Progress(plan=plan, existing=frozenset(passed), tree=Decision(use=TreeUse.FRESH, reasons=()))
    )
    untested = Progress(plan=plan, existing=frozenset(item.file_name for item in others))
    assert (untested.rounds, len(untested.missing)) == (0, len(tested)), (
        "there is nothing to build for a Python"
    )
    per_python = left.tests_cpu_hours / (len(tested) - 1)
    assert every.tests_cpu_hours - left.tests_cpu_hours > per_python, "3.12 also runs the tests of one Python"


def test_only_nvcc_s_heavy_objects_are_rationed(repository: Path, tmp_path: Path) -> None:
    for name, heavy in (("linux_64_cpu", 0), ("linux_64_cuda130", 1), ("linux_64_cuda130_wheel", 0)):
        plan = a_plan(repository, tmp_path, name)
        plan = replace(plan, options=replace(plan.options, memory=7 * GB))
        figures = estimate_of(plan)
        assert (figures.jobs.count, figures.heavy_jobs) == (2, heavy), name
        assert figures.memory_of_ordinary <= figures.memory_per_job


def test_configs_that_are_built_at_once_have_their_share_of_the_jobs(
    repository: Path, tmp_path: Path
) -> None:
    member = PoolMember(folder=tmp_path, name="x", share=3, is_fixed=False, most=9, heavy_jobs=2)
    for name, heavy in (("linux_64_cpu", 0), ("linux_64_cuda130", 2)):
        plan = a_plan(repository, tmp_path, name)
        figures = estimate_of(replace(plan, options=replace(plan.options, pool=member, memory=7 * GB)))
        assert (figures.jobs.count, figures.heavy_jobs) == (3, heavy), name


def test_objects_of_another_config_spare_most_of_a_compile(repository: Path, tmp_path: Path) -> None:
    plan = a_plan(repository, tmp_path, "linux_64_cpu")
    shared = replace(plan, shared="linux_64_cpu_generic")
    assert estimate_of(shared).hours < 0.3 * estimate_of(plan).hours


@pytest.mark.parametrize(
    ("use", "shared", "share"),
    [
        (TreeUse.FRESH, "", 1.0),
        (TreeUse.FRESH, "linux_64_cpu_generic", 0.03),
        (TreeUse.RECOMPILE, "", 1.0),
        (TreeUse.RESUME, "", 0.25),  # of four objects, the log has three
        (TreeUse.REUSE, "", 0.0),
    ],
)
def test_a_compile_of_all_objects_is_expected_to_take_the_table_s_time(
    use: TreeUse, shared: str, share: float, repository: Path, tmp_path: Path
) -> None:
    plan = replace(a_plan(repository, tmp_path, "linux_64_cpu"), shared=shared)
    build = plan.options.state / "tree" / "build"
    statements = [f"build c10/{name}.cpp.o: CXX /tree/{name}.cpp || order\n  FLAGS = -O2" for name in "abcd"]
    write(build / "build.ninja", "\n".join([*statements, "build lib/libc10.so: LINK c10/a.cpp.o", ""]))
    made = [f"0\t9\t1\tc10/{name}.cpp.o\t1\n" for name in "abcaz"]
    write(build / ".ninja_log", "".join(["# ninja log v7\n", *made, "9\t10\t1\tlib/libc10.so\t1\n"]))
    items = [replace(item, package=replace(item.package, staging_host=("zlib",))) for item in plan.items]
    figures = estimate_of(replace(plan, items=tuple(items)), use=use)
    hours = table_of(plan).hours
    at_once = min(figures.jobs.count, measure().cores)
    assert figures.compile_seconds == pytest.approx(share * hours * 3600 / at_once, abs=1)


@pytest.mark.parametrize(("python", "is_compiled"), [("base", False), ("another", True)])
def test_bindings_of_the_python_of_libtorch_s_compile_take_no_compile(
    python: str, is_compiled: bool, repository: Path, tmp_path: Path
) -> None:
    plan = a_plan(repository, tmp_path, "linux_64_cpu")
    of_base = [item for item in plan.items if item.package.python == plan.base_python]
    items = [
        replace(item, package=replace(item.package, staging_host=("zlib",), python=plan.base_python))
        for item in of_base[:1]
    ]
    if python == "another":
        items = [replace(item, package=replace(item.package, python="3.0")) for item in items]
    figures = table_of(plan)
    of_python = estimate_of(replace(plan, items=tuple(items))).cpu_hours - figures.hours
    expected = figures.python_hours if is_compiled else 0.035
    assert of_python == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize("method", [Method.COMPILE, Method.NOTHING])
def test_of_a_pytorch_that_exists_only_extensions_need_memory_and_disk(
    method: Method, repository: Path, tmp_path: Path
) -> None:
    """One that cannot be made needs none."""
    plan = a_plan(repository, tmp_path, "linux_64_cuda130")
    package = replace(plan.items[0].package, file_name="pyg-lib-1-0.conda")
    task = Task(extension="pyg-lib", python=None, recipe=tmp_path, items=(PlanItem(package=package),), overrides={},
                method=method)  # fmt: skip
    torch = frozenset(item.file_name for item in plan.items)
    figures = estimate(Progress(plan=replace(plan, extensions=(task,)), existing=torch))
    is_made = method is Method.COMPILE
    assert figures.packages == 0
    assert figures.memory_per_job == (bytes_per_compile(cuda=True) if is_made else 0)
    assert figures.disk == (pytest.approx(5.7 * GB) if is_made else 0)


@pytest.mark.parametrize("name", ["linux_64_cpu_debian", "linux_64_cuda124_debian"])
def test_a_compile_without_optimization_takes_less(repository: Path, tmp_path: Path, name: str) -> None:
    plan = a_plan(repository, tmp_path, name)
    quick = replace(plan, options=replace(plan.options, optimization="0"))
    assert estimate_of(quick).hours < 0.7 * estimate_of(plan).hours
    unmeasured = a_plan(repository, tmp_path, "linux_64_cpu")
    quick = replace(unmeasured, options=replace(unmeasured.options, optimization="0"))
    assert estimate_of(quick).hours == estimate_of(unmeasured).hours


def test_more_jobs_shorten_compiles_but_not_the_packing_of_libtorch_s_own_python(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = a_plan(repository, tmp_path, "linux_64_cpu")
    items = [
        replace(item, package=replace(item.package, staging_host=("zlib",)))
        for item in plan.items
        if item.package.python == plan.base_python and item.package.name == "pytorch"
    ]
    plan = replace(plan, items=tuple(items))
    for cores in (1, 4):
        machine = replace(measure(), cores=cores, memory_free=900 * GB)
        with monkeypatch.context() as patch:
            patch.setattr(estimate_module, "measure", lambda machine=machine: machine)
            found = estimate_of(replace(plan, options=replace(plan.options, cpu_count=cores)))
        expected = table_of(plan).hours / cores + 0.035
        assert found.hours == pytest.approx(expected, abs=0.001)


def test_packages_that_exist_take_nothing(repository: Path, tmp_path: Path) -> None:
    plan = a_plan(repository, tmp_path, "linux_64_cpu")
    figures = estimate(Progress(plan=plan, existing=frozenset(plan.file_names)))
    assert (figures.disk, figures.hours) == (0, 0)


def with_last_runs(plan: Plan, runs: LastRuns) -> Plan:
    keep_last_runs(plan.options, runs)
    assert read_last_runs(replace(plan.options, pythons=("3.12",))) == NO_RUNS, "for other Pythons"
    return replace(plan, last_runs=read_last_runs(plan.options))


def test_the_last_run_from_scratch_is_the_best_estimate(repository: Path, tmp_path: Path) -> None:
    plan = a_plan(repository, tmp_path, "linux_64_cpu")
    assert read_last_runs(plan.options) == NO_RUNS
    plan = with_last_runs(plan, LastRuns(runs={RunKind.SCRATCH: RunCosts(seconds=7200.0)}))
    found = estimate_of(plan)
    assert (found.hours, found.expected, found.basis) == (2.0, 7200.0, "the last run here")
    resumed = estimate_of(plan, use=TreeUse.RESUME)
    assert resumed.hours > 2.0
    assert resumed.expected == 0.0


def minutes(plan: Plan, decision: Decision) -> float:
    """The minutes that a plan for inherited packages and two jobs foretells."""
    items = tuple(
        PlanItem(package=replace(item.package, staging_host=("zlib",)), fingerprint=item.fingerprint)
        for item in plan.items
    )
    return round(estimate(Progress(plan=replace(plan, items=items), tree=decision)).hours * 60, 1)


ALL = ObjectCounts(core=1200, bindings=160)
#: As docs/lab/measurements.md measured PyTorch 2.6: four Pythons, of which three need bindings of their own.
SCRATCH = RunCosts(
    seconds=4 * 3600.0,
    sync=12.0,
    configure=48.0,
    compile=3 * 3600.0,
    install=60.0,
    pythons=2400.0,
    compiled=ALL,
)
MEASURED = LastRuns(
    runs={RunKind.SCRATCH: SCRATCH}, object_seconds={"core": 15.0, "bindings": 10.0}, link_seconds=20.0
)


def kept(missing: ObjectCounts | None, *, is_configured: bool = False) -> Decision:
    return Decision(
        use=TreeUse.RESUME,
        reasons=(),
        is_complete=True,
        is_configured=is_configured,
        missing=missing,
        objects=ALL,
    )


def test_a_rebuild_costs_its_fixed_part_and_its_objects(repository: Path, tmp_path: Path) -> None:
    plan = with_last_runs(a_plan(repository, tmp_path, "linux_64_cpu"), MEASURED)
    nothing = minutes(plan, kept(ObjectCounts()))
    whole = SCRATCH.fixed + MEASURED.link_seconds  # its bindings took all of its Pythons' time
    assert nothing == pytest.approx(whole / 60, abs=0.1), "with configure, install, packing and tests"
    eight = minutes(plan, kept(ObjectCounts(core=3, bindings=5)))
    assert round(eight - nothing, 1) == round((3 * 15 + 5 * 10) / 2 / 60, 1)
    assert 0.2 <= minutes(plan, kept(ObjectCounts(core=1))) - nothing < 0.4, "one object has one job"
    packages = minutes(plan, Decision(use=TreeUse.REUSE, reasons=()))
    spared = SCRATCH.sync + SCRATCH.configure + SCRATCH.install + MEASURED.link_seconds
    assert nothing - packages == pytest.approx(spared / 60, abs=0.11)
    # a rebuild that was measured is a better basis
    costs = RunCosts(seconds=900.0, configure=48.0, compile=120.0, compiled=ObjectCounts(core=8))
    plan = replace(plan, last_runs=replace_runs(MEASURED, RunKind.REBUILD, costs))
    assert minutes(plan, kept(ObjectCounts())) == 14.0
    assert minutes(plan, kept(ObjectCounts(core=8))) == 15.0
    assert minutes(plan, kept(None)) == 14.0
    plan = replace(plan, last_runs=replace_runs(MEASURED, RunKind.REPACK, RunCosts(seconds=300.0)))
    assert minutes(plan, Decision(use=TreeUse.REUSE, reasons=())) == 5.0


@pytest.mark.parametrize(
    ("rebuild", "configured", "expected"),
    [
        (None, False, 0.0),
        (None, True, -48.0),
        (48.0, False, 0.0),
        (48.0, True, -48.0),
        (0.0, False, 48.0),
        (0.0, True, 0.0),
    ],
    ids=lambda value: str(value),
)
def test_the_last_rebuild_may_have_configured_or_not(
    rebuild: float | None, configured: bool, expected: float, repository: Path, tmp_path: Path
) -> None:
    """``expected``: seconds more than without that difference."""
    runs = MEASURED
    former = SCRATCH.fixed + MEASURED.link_seconds
    if rebuild is not None:
        former = 900.0
        runs = replace_runs(MEASURED, RunKind.REBUILD, RunCosts(seconds=former, configure=rebuild))
    plan = with_last_runs(a_plan(repository, tmp_path, "linux_64_cpu"), runs)
    found = minutes(plan, kept(ObjectCounts(), is_configured=configured))
    assert found == pytest.approx((former + expected) / 60, abs=0.1)


@pytest.mark.parametrize(
    ("pythons", "seconds"), [(1, 2400.0), (2, 2400.0 - 160 * (10.0 - 0.9) / 2), (9, 0.0)]
)
def test_bindings_of_the_first_python_are_of_the_compile_and_the_cache_has_the_others(
    pythons: int, seconds: float
) -> None:
    assert duration._python_seconds(SCRATCH, MEASURED, pythons, jobs=2) == pytest.approx(seconds)


@pytest.mark.parametrize("has_tree", [True, False])
def test_a_tree_in_the_store_is_a_finished_one(has_tree: bool) -> None:
    record = cast(Any, object())
    stored = Stored(packages={"a.conda": record}, staging=record if has_tree else None)
    plan = cast(Any, SimpleNamespace(file_names=["a.conda", "b.conda"]))
    fetched = Progress(plan=plan, stored=stored).when_fetched()
    assert fetched.tree.use is (TreeUse.REUSE if has_tree else TreeUse.NONE)
    assert (fetched.exists, fetched.is_done) == ({"a.conda": True, "b.conda": False}, False)


@pytest.mark.parametrize("has_tree", [True, False])
def test_a_tree_in_the_store_spares_the_compile(has_tree: bool, repository: Path, tmp_path: Path) -> None:
    stored = Stored(staging=cast(Any, object()) if has_tree else None)
    plan = a_plan(repository, tmp_path, "linux_64_cpu")
    items = [replace(item, package=replace(item.package, staging_host=("zlib",))) for item in plan.items]
    fresh = Decision(use=TreeUse.FRESH, reasons=())
    progress = Progress(plan=replace(plan, items=tuple(items)), tree=fresh, stored=stored)
    kind = RunKind.REPACK if has_tree else RunKind.SCRATCH
    assert (progress.compiles_staging, progress.kind) == (not has_tree, kind)


def replace_runs(of: LastRuns, kind: RunKind, costs: RunCosts) -> LastRuns:
    return LastRuns(
        runs={**of.runs, kind: costs}, object_seconds=of.object_seconds, link_seconds=of.link_seconds
    )


@pytest.mark.parametrize(
    ("use", "shared", "kind", "is_compile"),
    [
        (TreeUse.FRESH, "", RunKind.SCRATCH, True),
        (TreeUse.FRESH, "linux_64_cpu_generic", RunKind.SCRATCH, False),
        (TreeUse.REUSE, "", RunKind.REPACK, False),
    ],
    ids=["all objects", "objects of another config", "no object"],
)
def test_only_a_compile_of_all_objects_measures_one(
    use: TreeUse, shared: str, kind: RunKind, is_compile: bool, repository: Path, tmp_path: Path
) -> None:
    """Objects that come from the cache in a moment would make the next compile one of minutes."""
    plan = replace(a_plan(repository, tmp_path, "linux_64_cpu"), last_runs=MEASURED, shared=shared)
    items = [replace(item, package=replace(item.package, staging_host=("zlib",))) for item in plan.items]
    plan = replace(plan, items=tuple(items))
    write(plan.options.state / "tree/build/.ninja_log", "# ninja log v7\n0\t2000\t1\tc10/a.cpp.o\t1\n")
    runs = measure_run(Progress(plan=plan, tree=Decision(use=use, reasons=())), Parser(), 100.0)
    assert runs.runs[kind].seconds == 100.0
    assert {**runs.runs, kind: None} == {**MEASURED.runs, kind: None}, "runs of other kinds stay"
    measured = ({"core": 2.0}, 0.0)
    former = (MEASURED.object_seconds, MEASURED.link_seconds)
    assert (runs.object_seconds, runs.link_seconds) == (measured if is_compile else former)


@pytest.mark.parametrize("use", [TreeUse.REUSE, TreeUse.RESUME, TreeUse.RECOMPILE, TreeUse.FRESH])
def test_a_store_is_asked_for_a_tree_that_is_not_here_and_what_it_has_costs_nothing(
    use: TreeUse, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = a_plan(repository, tmp_path, "linux_64_cpu")
    here = Progress(plan=plan, tree=Decision(use=use, reasons=()))
    asked: list[bool] = []

    def answer(*_: object, with_tree: bool) -> Stored:
        asked.append(with_tree)
        return Stored(packages=dict.fromkeys(plan.file_names, cast(Any, None)))

    monkeypatch.setattr(Progress, "read", lambda _: here)
    monkeypatch.setattr(outlook, "ask_store", answer)
    ahead = outlook.look_ahead(plan, {}, print)
    assert asked == [use is not TreeUse.REUSE], "a fetched tree would replace the finished one"
    assert (ahead.estimate.disk, ahead.estimate.hours) == (0, 0)
    assert ahead.progress.missing, "they are fetched later"


def test_a_rebuild_has_compiled_the_missing_objects_and_taken_the_others_from_the_cache(
    repository: Path, tmp_path: Path
) -> None:
    plan = with_last_runs(a_plan(repository, tmp_path, "linux_64_cpu"), MEASURED)
    parser = Parser()
    parser.built.update(core=900, bindings=7)
    missing = ObjectCounts(core=8, bindings=20)
    progress = Progress(plan=plan, tree=kept(missing))
    assert progress.kind is RunKind.REBUILD
    compiled = measure_run(progress, parser, 100.0).runs[RunKind.REBUILD].compiled
    assert compiled == ObjectCounts(core=8, bindings=7)
    unknown = Progress(plan=plan, tree=Decision(use=TreeUse.RECOMPILE, reasons=()))
    compiled = measure_run(unknown, parser, 100.0).runs[RunKind.SCRATCH].compiled
    assert compiled == ObjectCounts(core=900, bindings=7)


def test_packages_that_do_not_inherit_from_staging_change_no_kind_of_run(
    repository: Path, tmp_path: Path
) -> None:
    plan = a_plan(repository, tmp_path, "linux_64_cpu")
    inheriting = {item.file_name for item in plan.items if fingerprint.inherits(item.package)}
    others = frozenset(plan.file_names) - inheriting
    assert others, "pytorch-cpu"
    decision = kept(ObjectCounts())
    assert Progress(plan=plan, existing=others, tree=decision).kind is RunKind.REBUILD
    some = frozenset([*others, *list(inheriting)[:1]])
    assert Progress(plan=plan, existing=some, tree=decision).kind is None


def test_without_a_former_run_a_rebuild_is_minutes_by_the_table(repository: Path, tmp_path: Path) -> None:
    plan = a_plan(repository, tmp_path, "linux_64_cuda124_debian")
    assert 5 < minutes(plan, kept(ObjectCounts(core=8))) < 30
    assert minutes(plan, Decision(use=TreeUse.FRESH, reasons=())) > 120


def test_a_removed_tree_is_no_compile_where_the_object_cache_exists(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCH_CCACHE", raising=False)
    plan = with_last_runs(a_plan(repository, tmp_path, "linux_64_cpu"), MEASURED)
    fresh = Decision(use=TreeUse.FRESH, reasons=(), missing=ObjectCounts(core=8), objects=ALL)
    assert minutes(plan, fresh) == 240
    folder = plan.options.objects_folder(plan.usable_isolation())
    folder.mkdir(parents=True)
    assert minutes(plan, fresh) == 240, "no ccache here: each run makes the folder"
    with monkeypatch.context() as patch:
        patch.setenv("TORCH_CCACHE", "sccache")
        assert minutes(plan, fresh) < 60, "it has its objects elsewhere"
        patch.setenv("TORCH_CCACHE", "/opt/bin/ccache-4.11")
        assert minutes(plan, fresh) == 240, "ccache under another name"
        patch.setenv("TORCH_CCACHE", "none")
        assert minutes(plan, fresh) == 240
    write(folder / "0" / "1" / "23R")
    assert minutes(plan, fresh) < 60
    assert minutes(plan, replace(fresh, missing=ALL)) == 240, "another compiler"
    assert minutes(plan, replace(fresh, missing=None)) == 240


@pytest.mark.parametrize("isolation", [Host(), IsolationError("x")], ids=["host", "none"])
@pytest.mark.parametrize("objects_in", ["here", "deleted since", ""])
@pytest.mark.parametrize("use", list(TreeUse))
def test_former_objects_count_if_the_tree_or_the_object_cache_still_has_them(
    use: TreeUse, objects_in: str, isolation: Isolation | IsolationError, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Other configs may have filled a new object cache."""
    few = ObjectCounts(core=8)
    decision = Decision(use=use, reasons=(), missing=few, objects=ALL, objects_in=objects_in)
    monkeypatch.setattr(tree_reuse, "decide", lambda *_: decision)
    monkeypatch.setattr(object_cache, "read_identity", lambda *_: "here")
    monkeypatch.setattr(progress_module, "read_left_staging", lambda *_: None)
    work_record.write_record(tmp_path, Host())
    plan = SimpleNamespace(
        stages=True, options=SimpleNamespace(state=tmp_path), staging=None, isolation=isolation
    )
    decided = progress_module._decide(cast(Any, plan))
    is_in_cache = objects_in == "here" and isinstance(isolation, Host)
    is_known = is_in_cache or use not in (TreeUse.FRESH, TreeUse.RECOMPILE)
    assert (decided.missing, decided.objects) == ((few, ALL) if is_known else (None, None))


def test_a_new_tree_takes_its_former_objects_from_the_cache(repository: Path, tmp_path: Path) -> None:
    """Each of them in a twentieth of a second; a kept tree has them."""
    plan = with_last_runs(a_plan(repository, tmp_path, "linux_64_cpu"), MEASURED)
    write(plan.options.objects_folder(plan.usable_isolation()) / "0" / "1" / "23R")
    few = ObjectCounts(core=8)
    new = minutes(plan, Decision(use=TreeUse.FRESH, reasons=(), missing=few, objects=ALL))
    assert new - minutes(plan, kept(few)) == pytest.approx(0.05 * ALL.total / 2 / 60, abs=0.11)


@pytest.mark.parametrize(
    "text", ["", "12.5", "{}x", '{"version": 2}', '{"runs": {"x": {}}}', '{"link_seconds": -1}']
)
def test_a_damaged_record_of_last_runs_is_none(text: str, repository: Path, tmp_path: Path) -> None:
    options = a_plan(repository, tmp_path, "linux_64_cpu").options
    write(last_run._last_run_file(options), text)
    assert read_last_runs(options) == NO_RUNS


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


@pytest.mark.parametrize("compiled", [(), (0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_one_extension_that_is_compiled_sets_the_memory_of_a_compile(compiled: Sequence[int]) -> None:
    tasks = []
    for number in range(3):
        tasks.append(SimpleNamespace(method=Method.COMPILE if number in compiled else Method.NOTHING))
    needs = _memory_needs(cast(Any, SimpleNamespace(has_cuda=True)), None, cast(Any, tasks))
    assert needs.ordinary == (bytes_per_compile(cuda=True) if compiled else 0)


@pytest.mark.parametrize("pythons", [(), ("3.12",), ("3.12", "3.13", "3.14")], ids=len)
@pytest.mark.parametrize("untested", ["", "asked for"])
def test_the_tests_of_all_pythons_take_their_time(
    pythons: Sequence[str], untested: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = [SimpleNamespace(python=python) for python in pythons]
    monkeypatch.setattr("megabuild.run.estimate.upstream_tests.tests_of", lambda _: tests)
    progress = SimpleNamespace(plan=SimpleNamespace(untested=untested, base_python="3.13"), missing=())
    figures = SimpleNamespace(tests_hours=2.0, one_python_tests_hours=5.0)
    hours = 0.0 if untested else 2.0 * len(pythons) + 5.0 * ("3.13" in pythons)
    assert _tests_hours(cast(Any, progress), cast(Any, figures)) == hours
