"""Which runs have PyTorch's own tests, and what a plan says of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from groundwork.errors import UsageError
from groundwork.jobs import Jobs
from megabuild.configs.config import load
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan, PlanItem
from megabuild.plan.planning import overrides_from_options, render_recipe
from megabuild.plan.upstream_tests import (
    KEY,
    PACKAGE,
    awaited_tests,
    count_failed_tests,
    has_crashed_test,
    has_upstream_tests,
    read_failed_tests,
)
from megabuild.providers.environment import Environment
from megabuild.run.estimate import Estimate
from megabuild.run.outlook import Outlook
from megabuild.run.plan_report import plan_lines
from megabuild.run.progress import Progress

LEFT_OUT = "PyTorch's own tests are left out; to run them, add --upstream-tests"


def an_outlook(root: Path, folder: Path, name: str, **choices: Any) -> Outlook:
    options = Options(config=load(root, name), root=root, output=folder, cache=folder, **choices)
    overrides = overrides_from_options(options)
    packages = render_recipe(options, overrides)
    plan = Plan(
        options=options,
        items=tuple(PlanItem(package=package) for package in packages),
        left_out={},
        environment=Environment(channels=(), pythons=(), overrides=overrides),
        staging=Fingerprint(),
    )
    estimate = Estimate(tests_cpu_hours=12.34, basis="measured", jobs=Jobs(count=2, reason=""))
    return Outlook(progress=Progress(plan=plan), estimate=estimate)


@pytest.mark.parametrize(
    ("config", "choices", "expected"),
    [
        ("linux_64_cpu", {}, True),
        ("linux_64_cuda130", {}, True),
        ("linux_64_cpu", {"upstream_tests": False}, False),
        ("linux_64_cpu", {"rehearse": True}, False),
        ("linux_64_cpu", {"rehearse": True, "upstream_tests": True}, True),
        ("linux_64_cpu_debian", {}, False),
        ("linux_64_cpu_debian", {"upstream_tests": True}, True),
        ("linux_64_cpu_wheel", {}, False),
        ("linux_64_cpu_wheel", {"upstream_tests": False}, False),
        ("osx_arm64_cpu", {}, False),
    ],
)
def test_conda_forge_s_linux_configs_have_them_unless_a_run_leaves_them_out(
    repository: Path, tmp_path: Path, config: str, choices: dict[str, Any], expected: bool
) -> None:
    outlook = an_outlook(repository, tmp_path, config, **choices)
    assert has_upstream_tests(outlook.options) == expected
    items = [item.package for item in outlook.plan.items]
    pythons = [package.python for package in items if package.name == PACKAGE]
    assert pythons == [package.python for package in items if package.name == "pytorch"] * expected


@pytest.mark.parametrize(
    ("machine", "choices", "expected"),
    [
        ("linux-aarch64", {}, True),
        ("linux-64", {}, False),
        ("linux-64", {"upstream_tests": True}, True),
    ],
)
def test_a_cross_build_has_them_on_request_only(
    repository: Path, tmp_path: Path, machine: str, choices: dict[str, Any], expected: bool
) -> None:
    config = replace(load(repository, "linux_aarch64_cuda130"), build_platform=machine)
    options = Options(config=config, root=repository, output=tmp_path, cache=tmp_path, **choices)
    assert has_upstream_tests(options) == expected


def test_official_wheels_have_no_tests(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=KEY):
        an_outlook(repository, tmp_path, "linux_64_cpu_wheel", upstream_tests=True)


def test_a_plan_says_how_long_they_take_or_that_they_are_left_out(repository: Path, tmp_path: Path) -> None:
    lines = plan_lines(an_outlook(repository, tmp_path, "linux_64_cpu", pythons=("3.12", "3.13")))
    assert "PyTorch's own tests run for 2 Pythons, about 12.3 CPU hours" in lines
    assert not any("torch.compile" in line for line in lines)
    lines = plan_lines(an_outlook(repository, tmp_path, "linux_64_cpu", pythons=("3.13",)))
    assert "its tests of kernels and torch.compile run only with Python 3.12" in lines
    for config, choices in (("linux_64_cpu", {"upstream_tests": False}), ("linux_64_cpu_debian", {})):
        assert LEFT_OUT in plan_lines(an_outlook(repository, tmp_path, config, **choices))
    for config, choices in (("linux_64_cpu", {"rehearse": True}), ("linux_64_cpu_wheel", {})):
        lines = plan_lines(an_outlook(repository, tmp_path, config, **choices))
        assert not any("own tests" in line for line in lines)


def test_tests_that_have_passed_are_not_announced(repository: Path, tmp_path: Path) -> None:
    outlook = an_outlook(repository, tmp_path, "linux_64_cpu")
    passed = {item.file_name for item in outlook.plan.items if item.package.name == PACKAGE}
    outlook = replace(outlook, progress=replace(outlook.progress, existing=frozenset(passed)))
    assert not any("own tests" in line for line in plan_lines(outlook))


def test_names_of_failed_tests_are_read_once_each() -> None:
    lines = ["failed test: test_nn.py", "a failed test: no", "failed test: test_nn.py::T::test_x[a b]", "x"]
    assert read_failed_tests([*lines, *lines]) == ["test_nn.py", "test_nn.py::T::test_x[a b]"]


def test_failed_tests_are_counted_by_the_last_line_else_by_their_names() -> None:
    """A test may have printed such a line, too."""
    printed = ["failed test: a", "2 of 9 failed; to repeat one alone: x", "crashed test: b", "failed test: a"]
    assert count_failed_tests([*printed, "70 of 900 failed; to repeat one alone: x"]) == 70
    assert count_failed_tests(printed[2:]) == 2
    assert [has_crashed_test(lines) for lines in (printed, printed[:2])] == [True, False]


def test_pytorch_awaits_the_tests_of_its_own_python_alone() -> None:
    named = (
        ("libtorch", None), ("pytorch", "3.12"), ("pytorch-gpu", "3.12"), (PACKAGE, "3.12"), ("pytorch", "3.13"),
        (PACKAGE, "3.13"),
    )  # fmt: skip
    planned: list[Any] = []
    for name, python in named:
        planned.append(SimpleNamespace(name=name, python=python, file_name=f"{name}-{python}"))
    assert awaited_tests(planned, planned[:4]) == {"pytorch-3.12": f"{PACKAGE}-3.12"}
    assert awaited_tests(planned, planned[:3]) == {}
