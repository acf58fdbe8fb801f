"""Configs that share no objects are built side by side, as far as jobs, memory and disk allow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_files import write
from tiny import Tiny

from groundwork.errors import IsolationError, ProviderError
from groundwork.jobs import Jobs
from groundwork.machine import Machine
from megabuild.configs.config import load
from megabuild.configs.sharing import group_by_toolchain
from megabuild.plan.environment_inputs import ObjectCounts
from megabuild.plan.plan import Method
from megabuild.plan.tree_reuse import Decision, TreeUse
from megabuild.providers.environment import Pending
from megabuild.run import arrangement
from megabuild.run.arrangement import Arrangement, arrange
from megabuild.run.estimate import Estimate
from megabuild.run.outlook import Outlook

GB = 10**9


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrangement, "measure", lambda: Machine(cores=8, memory=64 * GB, memory_free=60 * GB))
    monkeypatch.setattr(arrangement, "disk_free", lambda folder: 100 * GB)


def outlook(tiny: Tiny, name: str, compiler: str, *, done: bool = False, **figures: Any) -> Outlook:
    """Return the plan of a config with a compiler."""
    plain = tiny.outlook()
    config = plain.options.config
    variant = {**config.variant, "cxx_compiler_version": (compiler,)}
    options = replace(plain.options, config=replace(config, name=name, variant=variant))
    progress = replace(plain.progress, plan=replace(plain.plan, options=options))
    if done:
        progress = replace(progress, existing=frozenset(plain.plan.file_names))
    values: dict[str, Any] = {"disk": 10 * GB, "memory_per_job": 3 * GB, "basis": "measured", **figures}
    return replace(
        plain, progress=progress, estimate=Estimate(**{"jobs": Jobs(count=8, reason=""), **values})
    )


def arranged(
    *plans: Outlook | Exception, one_by_one: bool = False, removes_trees: bool = False
) -> Arrangement:
    named: dict[str, Outlook | Exception] = {}
    for number, plan in enumerate(plans):
        named[f"error{number}" if isinstance(plan, Exception) else plan.options.config.name] = plan
    return arrange(named, one_by_one=one_by_one, removes_trees=removes_trees)


def test_groups_are_the_toolchains_of_the_matrix(repository: Path) -> None:
    names = ("cpu", "cpu_generic", "cuda129", "cuda130", "cuda129_generic", "cuda134", "cuda130_generic")
    configs = [load(repository, f"linux_64_{name}") for name in names]
    assert [
        [name.removeprefix("linux_64_") for name in group] for group in group_by_toolchain(configs, {})
    ] == [
        ["cpu", "cpu_generic"],
        ["cuda129", "cuda129_generic"],
        ["cuda130", "cuda134", "cuda130_generic"],
    ]


def test_groups_run_side_by_side_with_the_jobs_of_one(tiny: Tiny) -> None:
    heavy = outlook(tiny, "c", "15", jobs=Jobs(count=6, reason=""), heavy_jobs=4)
    order = arranged(outlook(tiny, "a", "13"), outlook(tiny, "b", "13"), heavy, ProviderError("x", "y"))
    assert order.groups == [["a", "b"], ["c"]]
    assert (order.places, order.jobs, order.heavy_jobs) == (2, 6, 4)
    assert order.lines() == ["side by side, with 6 jobs together:", "  a, then b", "  c"]


@pytest.mark.parametrize("one_by_one", [False, True])
def test_the_longest_group_starts_first_beside_others(one_by_one: bool, tiny: Tiny) -> None:
    """Else it would run alone at the end."""
    hours = {"a": 5.0, "b": 2.0, "c": 4.0, "d": 3.5}
    compilers = {"a": "13", "b": "14", "c": "15", "d": "15"}
    plans = [outlook(tiny, name, compilers[name], hours=hours[name]) for name in hours]
    order = arranged(*plans, one_by_one=one_by_one)
    if one_by_one:
        assert order.groups == [["a"], ["b"], ["c", "d"]], "as they were named"
    else:
        assert order.groups == [["c", "d"], ["a"], ["b"]]


@pytest.mark.parametrize(
    ("figures", "choices", "places", "reason"),
    [
        ({}, {"one_by_one": True}, 1, "--one-by-one"),
        ({"jobs": Jobs(count=1, reason="")}, {}, 1, "1 job"),
        ({"jobs": Jobs(count=2, reason="")}, {}, 2, "2 jobs"),
        ({"memory_per_job": 25 * GB}, {}, 2, "60.0 GB of memory free, 25.0 GB per compile"),
        ({"memory_per_job": 61 * GB}, {}, 1, "60.0 GB of memory free, 61.0 GB per compile"),
        ({"disk": 40 * GB}, {}, 1, "100.0 GB of disk free, 120.0 GB needed"),
        ({"disk": 40 * GB}, {"removes_trees": True}, 2, "100.0 GB of disk free, 120.0 GB needed"),
        ({"disk": 30 * GB}, {}, 3, ""),
    ],
)
def test_each_limit_is_kept_and_named(
    tiny: Tiny, figures: dict[str, Any], choices: dict[str, bool], places: int, reason: str
) -> None:
    plans = [
        outlook(tiny, name, compiler, **figures) for name, compiler in (("a", "13"), ("b", "14"), ("c", "15"))
    ]
    order = arranged(*plans, **choices)
    assert order.places == places
    assert reason in "\n".join(order.lines())
    assert all(len(line) <= 80 for line in order.lines())


@pytest.mark.parametrize("position", range(3))
@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"memory_per_job": 25 * GB}, (2, 8, 0)),
        ({"jobs": Jobs(count=2, reason="")}, (2, 2, 0)),
        ({"disk": 95 * GB}, (1, 8, 0)),
        ({"heavy_jobs": 4}, (3, 8, 4)),
    ],
    ids=["memory", "jobs", "disk", "heavy jobs"],
)
def test_each_limit_is_kept_for_the_config_that_needs_most_whichever_it_is(
    tiny: Tiny, figures: dict[str, Any], expected: tuple[int, int, int], position: int
) -> None:
    plans = []
    for number, name in enumerate("abc"):
        more = figures if number == position else {}
        plans.append(outlook(tiny, name, f"1{number}", **more))
    order = arranged(*plans)
    assert (order.places, order.jobs, order.heavy_jobs) == expected
    assert order.starts_early
    if "disk" in figures:
        order = arranged(*plans, removes_trees=True)
        assert order.places == 1, "the largest may be beside any other"
        assert not order.starts_early, "the former tree may still be on the disk"


def test_the_memory_that_the_user_allows_is_shared_by_all_configs(tiny: Tiny) -> None:
    plans = []
    for name, compiler in (("a", "13"), ("b", "14"), ("c", "15")):
        plan = outlook(tiny, name, compiler, memory_per_job=10 * GB)
        allowed = replace(plan.plan, options=replace(plan.options, memory=20 * GB))
        plans.append(replace(plan, progress=replace(plan.progress, plan=allowed)))
    order = arranged(*plans)
    assert (order.places, order.reason) == (2, "20.0 GB of memory free, 10.0 GB per compile")


def test_downloads_count_as_disk_and_files_that_exist_do_not(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = [outlook(tiny, name, compiler) for name, compiler in (("a", "13"), ("b", "14"), ("c", "15"))]
    assert arranged(*plans).places == 3
    downloading: list[Outlook] = []
    for one in plans:
        environment = replace(one.plan.environment, pending=Pending(bytes=30 * GB))
        progress = replace(one.progress, plan=replace(one.plan, environment=environment))
        downloading.append(replace(one, progress=progress))
    assert arranged(*downloading).reason == "100.0 GB of disk free, 120.0 GB needed"
    monkeypatch.setattr(arrangement, "size_of", lambda _: 8 * GB)
    assert arranged(*downloading).places == 3


def test_configs_of_one_toolchain_wait_for_each_other(tiny: Tiny) -> None:
    order = arranged(outlook(tiny, "a", "13"), outlook(tiny, "b", "13"))
    assert order.lines() == ["one config at a time: all share objects"]


def rebuilt(tiny: Tiny, name: str, *, missing: int, former: bool = True, cache: bool = True) -> Outlook:
    """Return the plan of a config of the first toolchain, of whose 100 objects some are missing."""
    plain = outlook(tiny, name, "13")
    progress = plain.progress
    decision = Decision(
        use=TreeUse.RECOMPILE,
        reasons=("protobuf 5 -> 6",),
        missing=ObjectCounts(core=missing),
        objects=ObjectCounts(core=100),
    )
    if cache:
        isolation = progress.plan.isolation
        assert not isinstance(isolation, IsolationError)
        write(progress.plan.options.objects_folder(isolation) / "0" / "1" / "23R")
    packages = [(package.name, package.id.kind) for package in progress.missing]
    names = frozenset(packages) if former else frozenset(packages[:-1])
    return replace(plain, progress=replace(progress, tree=decision, former=names))


def test_configs_with_all_objects_but_a_few_wait_for_none(tiny: Tiny) -> None:
    order = arranged(rebuilt(tiny, "a", missing=0), rebuilt(tiny, "b", missing=5), outlook(tiny, "c", "13"))
    assert order.groups == [["c"], ["a"], ["b"]]
    assert order.places == 3


@pytest.mark.parametrize(
    "facts", [{"missing": 6}, {"missing": 0, "former": False}, {"missing": 0, "cache": False}]
)
def test_configs_that_compile_much_or_perhaps_much_wait(tiny: Tiny, facts: dict[str, Any]) -> None:
    order = arranged(rebuilt(tiny, "a", **facts), rebuilt(tiny, "b", **facts))
    assert order.groups == [["a", "b"]]


@pytest.mark.parametrize(
    ("cache", "extension", "method", "is_little"),
    [
        (True, "built before", Method.COMPILE, True),
        (True, "new", Method.COMPILE, False),
        (True, "new", Method.NOTHING, True),
        (False, "built before", Method.COMPILE, False),
    ],
)
def test_with_a_finished_tree_bindings_and_extensions_are_compiled_unless_the_cache_has_them(
    cache: bool, extension: str, method: Method, is_little: bool, tiny: Tiny
) -> None:
    progress = rebuilt(tiny, "a", missing=0, cache=cache).progress
    package = SimpleNamespace(name="pyg-lib", id=SimpleNamespace(kind="cpu_py312"))
    task: Any = SimpleNamespace(file_names=["pyg-lib.conda"], method=method, packages=[package])
    former = progress.former
    if extension == "built before":
        former |= {("pyg-lib", "cpu_py312")}
    plan = replace(progress.plan, extensions=(task,))
    tree = Decision(use=TreeUse.REUSE, reasons=())
    assert replace(progress, plan=plan, former=former, tree=tree).compiles_little is is_little


def test_a_raised_build_number_lets_configs_run_at_once(tiny: Tiny) -> None:
    assert not tiny.outlook().progress.compiles_little, "nothing was built yet"
    assert tiny.run().ok
    isolation = tiny.plan().isolation
    assert not isinstance(isolation, IsolationError)
    write(tiny.options().objects_folder(isolation) / "0" / "1" / "23R")
    recipe = tiny.root / "recipe" / "recipe.yaml"
    text = recipe.read_text()
    recipe.write_text(text.replace("build: 0", "build: 1"))
    outlook = tiny.outlook()
    assert len(outlook.progress.missing) == 3
    assert outlook.progress.compiles_little


def test_finished_configs_need_no_place(tiny: Tiny) -> None:
    order = arranged(outlook(tiny, "a", "13", done=True), outlook(tiny, "b", "14"))
    assert order.lines() == ["one config at a time: the others exist"]


def test_without_a_plan_there_is_no_group() -> None:
    assert not arranged(ProviderError("x", "y")).is_side_by_side
