"""Packages whose run had PyTorch's own tests: what is known of these, whatever later runs build."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from calling import call
from tiny import Tiny

from command_line.run_command import Invocation
from groundwork import channel_folder
from groundwork.errors import PreflightError, UpstreamTestError
from groundwork.machine import machine_platform
from groundwork.names import package_name
from megabuild.plan import upstream_tests
from megabuild.run import driver
from megabuild.store import server
from megabuild.store.published import MissingTests, find_missing_tests, records

pytestmark = pytest.mark.skipif(machine_platform() != "linux-64", reason="the tiny config is for linux-64")

OWN_TESTS = """
  - package:
      name: pytorch-tests
    build:
      string: py${{ python | version_to_buildstring }}_h${{ hash }}_${{ build }}
      script: mkdir -p $PREFIX/share && echo 1 > $PREFIX/share/own-tests
    requirements:
      host:
        - python
      run:
        - ${{ pin_subpackage('tinypy', exact=True) }}
        - python
    tests:
      - script: ${{ env.get("TINY_OWN_TESTS", default="true") }}
"""
FAILING = "echo 'failed test: test_a.py::test_b'; exit 1"


@pytest.fixture
def tested(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """A tiny megabuild with a package of PyTorch's own tests, whose pytorch is called tinypy."""
    monkeypatch.setattr(upstream_tests, "_TESTED", "tinypy")
    recipe = tiny.root / "recipe" / "recipe.yaml"
    recipe.write_text(recipe.read_text() + OWN_TESTS)
    return tiny


def awaited(tiny: Tiny) -> Mapping[str, str]:
    """The Pythons of the packages of tests that published packages have not passed, by those packages' Pythons."""
    found: dict[str, str] = {}
    for name, record in records(tiny.options().packages).items():
        if record.awaits:
            found[_python(name)] = _python(record.awaits)
    return found


def _python(name: str) -> str:
    return name.split("-")[-1].split("_")[0]


def missing(tiny: Tiny) -> MissingTests:
    channel = tiny.options().packages
    return find_missing_tests(channel, sorted(path.name for path in Path(channel).glob("*/*.conda")))


def shown_by_status(tiny: Tiny) -> str:
    """What `megabuild status` says of the last run, from its files."""
    done = call(Invocation(log_folder=tiny.output / "logs"), "status", "-o", str(tiny.output))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_failed_tests_are_known_until_they_pass(tested: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as failing:
        failing.setenv("TINY_OWN_TESTS", FAILING)
        with pytest.raises(UpstreamTestError):
            tested.run()
    assert awaited(tested) == {"py311": "py311", "py312": "py312"}
    (line,) = missing(tested).lines
    assert line.startswith("! PyTorch's own tests failed or never ran: pytorch-tests-1.0-py311_h")
    assert line in shown_by_status(tested)
    assert tested.run(pythons=("3.12",)).ok
    assert awaited(tested) == {"py311": "py311"}, "a run for another Python says nothing of this one"
    assert tested.run().ok
    assert (awaited(tested), missing(tested).lines) == ({}, [])
    assert "own tests" not in shown_by_status(tested)

    script = tested.root / "recipe" / "build_py.sh"
    script.write_text(f"{script.read_text()}true\n")
    names = {package.name for package in tested.outlook().progress.missing}
    assert names == {"tinypy", "pytorch-tests"}, "they test the package that the script makes"
    monkeypatch.setenv("TINY_OWN_TESTS", FAILING)
    with pytest.raises(UpstreamTestError):
        tested.run(pythons=("3.12",))
    assert awaited(tested) == {"py312": "py312"}
    channel = tested.options().packages
    (left,) = channel.glob("*/pytorch-tests-*.conda")
    assert _python(left.name) == "py311", "the tests that the former content passed are gone"
    index = channel_folder.listed_hashes(channel)
    assert index is not None
    assert len([path for path in index if "/pytorch-tests-" in path]) == 1


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a store that takes uploads of the runs that follow."""
    folder = tmp_path / "store"
    monkeypatch.setenv(server.STORE, str(folder))
    monkeypatch.setenv(server.WRITES, "1")
    return folder


def stored(tiny: Tiny) -> set[str]:
    """The names of the packages that a new run for Python 3.12 would fetch from the store."""
    shutil.rmtree(tiny.output)
    outlook = tiny.outlook(pythons=("3.12",))
    return {package_name(name) for name in outlook.progress.stored.packages}


@pytest.mark.usefixtures("store")
def test_packages_are_stored_once_their_tests_have_passed(
    tested: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as failing:
        failing.setenv("TINY_OWN_TESTS", FAILING)
        with pytest.raises(UpstreamTestError):
            tested.run(pythons=("3.12",))
    assert "tinypy" not in stored(tested), "another machine would not learn that its tests failed"
    assert tested.run(pythons=("3.12",)).ok
    assert stored(tested) >= {"tinypy", "pytorch-tests"}


def test_packages_from_a_store_await_the_tests_that_it_has_not(
    tested: Tiny, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tested.run(pythons=("3.12",)).ok
    shutil.rmtree(tested.output)
    (record,) = store.rglob("pytorch-tests-*.conda.json")
    record.unlink()

    def refuse(*_: object) -> None:
        raise PreflightError("too little memory", "x")

    with monkeypatch.context() as small:
        small.setattr(driver, "check", refuse)
        with pytest.raises(PreflightError):
            tested.run(pythons=("3.12",))
    assert awaited(tested) == {"py312": "py312"}, "they are published, and the run has ended before the tests"
    assert tested.run(pythons=("3.12",)).ok
    assert awaited(tested) == {}
    shutil.rmtree(tested.output)
    assert tested.run(pythons=("3.12",)).ok
    assert awaited(tested) == {}, "the store has the tests that passed, too"
