"""What the worker does around the engine's calls, and how its end is read from a folder that builds write, too."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import rattler_build
from rattler_build import cli_api

from groundwork.errors import IntegrityError
from megabuild.engine import worker
from megabuild.engine.job import Outcome


def test_packages_that_lie_there_for_other_runs_are_not_tested(tmp_path: Path) -> None:
    for name in ("linux-64/a-1-h0_0.conda", "noarch/b-1-h0_0.conda", "linux-64/other-1-h0_0.conda"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    planned = ["a-1-h0_0.conda", "b-1-h0_0.conda", "gone-1-h0_0.conda"]
    job = {"output_dir": str(tmp_path), "platform": "linux-64", "planned": planned}
    assert [path.name for path in worker.packages(job)] == planned[:2]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Test failed", "test"),
        ("failed package content tests: No match for include glob: include/x.h", "test"),
        ("Failed to resolve dependencies", "solve"),
        ("IO Error: Script failed with status 1\nScript execution failed.", "build"),
        ("Failed to parse recipe", "other"),
    ],
)
def test_the_engine_s_sentences_are_told_apart(message: str, kind: str) -> None:
    assert worker.kind_of(message) == kind


@pytest.mark.parametrize(
    ("built", "tested", "passed", "kind"),
    [
        ("", "", ["a-1-h0_0.conda", "b-1-h0_0.conda"], ""),
        ("", "broken", ["a-1-h0_0.conda"], "test"),
        ("Script failed with status 1", "", ["a-1-h0_0.conda", "b-1-h0_0.conda"], "build"),
    ],
)
def test_packages_are_tested_after_a_build_and_a_broken_one_is_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: str, tested: str, passed: list[str], kind: str
) -> None:
    def build(job: object, logins: str | None) -> None:
        for name in planned:
            (tmp_path / "noarch" / name).touch()
        if built:
            raise RuntimeError(built)

    planned = ["a-1-h0_0.conda", "b-1-h0_0.conda"]
    (tmp_path / "noarch").mkdir()
    monkeypatch.setattr(worker, "build", build)
    monkeypatch.setattr(
        worker,
        "test",
        lambda package, channels, logins: tested or None if package.name[0] == "b" else None,
    )
    job = {"env": {}, "tests": [], "test": True, "channels": [], "planned": planned, "platform": "x"}
    (tmp_path / "job.json").write_text(json.dumps({**job, "output_dir": str(tmp_path)}))
    status = worker.main([str(tmp_path / "job.json"), str(tmp_path / "outcome.json")])
    outcome = Outcome.read(tmp_path / "outcome.json", status)
    assert (outcome.ok, outcome.kind, status) == (not kind, kind, int(bool(kind)))
    assert list(outcome.passed) == passed
    assert [path.name for path in tmp_path.glob("broken/*")] == planned[1:] * bool(tested)


@pytest.mark.parametrize(
    ("platform", "named", "seen"),
    [("linux-64", "icelake", "icelake"), ("linux-aarch64", "icelake", None), ("linux-aarch64", "", "")],
)
def test_a_cross_build_s_host_environment_is_not_for_the_processor_of_this_machine(
    platform: str, named: str, seen: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rattler-build solves all environments with the variable; an empty one holds for every platform."""
    monkeypatch.setenv("CONDA_OVERRIDE_ARCHSPEC", named)
    found: list[str | None] = []
    monkeypatch.setattr(worker, "build", lambda *_: found.append(os.environ.get("CONDA_OVERRIDE_ARCHSPEC")))
    job = {"env": {}, "tests": [], "test": False, "platform": platform, "build_platform": "linux-64"}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert worker.main([str(tmp_path / "job.json"), str(tmp_path / "outcome.json")]) == 0
    assert found == [seen]


@pytest.mark.parametrize(
    "kind",
    [
        "link", "pipe", "[]", "{}", "no JSON", '{"ok": 1, "kind": 1, "message": 1, "passed": 1}',
        '{"ok": true, "kind": "", "message": "\xff"}', '{"x": ' + "[" * 100_000,
    ],
    ids=lambda kind: kind[:50],
)  # fmt: skip
def test_what_no_worker_writes_is_not_believed(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "outcome.json"
    for code in (-9, 0, 1):
        outcome = Outcome.read(path, code)
        assert (outcome.ok, outcome.kind) == (False, "killed"), "without a file"
    if kind == "link":
        path.symlink_to(tmp_path / "private")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(kind.encode("latin-1"))
    with pytest.raises(IntegrityError):
        Outcome.read(path, 0)


def test_an_outcome_of_success_does_not_excuse_the_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "outcome.json"
    path.write_text(json.dumps({"ok": True, "kind": "", "message": "", "passed": ["a-1-0.conda"]}))
    assert Outcome.read(path, 0).ok
    for code in (1, -9, 137):
        outcome = Outcome.read(path, code)
        assert (outcome.ok, outcome.kind, outcome.returncode) == (False, "killed", code)


class NoWords(Exception):
    """An error without a message."""


@pytest.mark.parametrize(
    ("error", "outputs", "problem"),
    [
        (None, [(True, ["fine"])], None),
        (None, [], None),
        (None, [(True, []), (False, ["E: broken", ""])], "E: broken"),
        (None, [(False, [""])], "no output"),
        (None, [(False, [])], "no output"),
        (NoWords(), [], "NoWords"),
        (NoWords("\n"), [], "NoWords"),
    ],
)
def test_a_failed_test_of_a_package_is_never_taken_for_a_passed_one(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    error: Exception | None,
    outputs: list[tuple[bool, list[str]]],
    problem: str | None,
) -> None:
    class Package:
        @staticmethod
        def from_file(path: Path) -> Package:
            return Package()

        def run_tests(self, **_: object) -> list[SimpleNamespace]:
            if error is not None:
                raise error
            return [SimpleNamespace(success=success, output=output) for success, output in outputs]

    monkeypatch.setattr(rattler_build, "Package", Package)
    path = tmp_path / "a-1-h0_0.conda"
    path.touch()
    assert worker.test(path, [], None) == problem
    printed: list[str] = []
    for success, output in outputs:
        if not success:
            printed += [f"{worker.FAILED_TEST}{path.name}", *output]
    assert capsys.readouterr().out.splitlines() == printed
    passed, wrong = worker.test_all([path], [], tmp_path / "broken", None)
    assert (passed == [path.name]) == (wrong is None) == (problem is None)


def test_a_build_that_raises_without_words_has_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def build(job: object, logins: str | None) -> None:
        raise NoWords

    monkeypatch.setattr(worker, "build", build)
    job = {"env": {}, "tests": [], "test": False}
    (tmp_path / "job.json").write_text(json.dumps(job))
    status = worker.main([str(tmp_path / "job.json"), str(tmp_path / "outcome.json")])
    assert (status, Outcome.read(tmp_path / "outcome.json", status).message) == (1, "NoWords")


@pytest.mark.parametrize("named", [True, False])
def test_a_build_gets_its_platforms_channels_and_logins(named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine refuses channels that the variant file lists, too."""
    given: dict[str, object] = {}
    monkeypatch.setattr(cli_api, "build_recipes", lambda recipes, **how: given.update(how, recipes=recipes))
    job = {
        "recipe": "/r/recipe.yaml", "platform": "linux-aarch64", "build_platform": "linux-64", "channels": ["c"],
        "variant_file": "/v", "output_dir": "/o", "named": named, "options": {"keep_going": True},
    }  # fmt: skip
    worker.build(job, "/logins")
    expected = {
        "recipes": ["/r/recipe.yaml"], "build_platform": "linux-64", "target_platform": "linux-aarch64",
        "channel": None if named else ["c"], "variant_config": ["/v"], "output_dir": "/o", "auth_file": "/logins",
        "continue_on_failure": True, "test": "skip",
    }  # fmt: skip
    assert {name: given[name] for name in expected} == expected


def test_tests_get_logins_and_the_last_line_of_a_failed_one_is_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[object] = []

    class Package:
        @staticmethod
        def from_file(path: Path) -> Any:
            def run_tests(**how: object) -> list[object]:
                given.append(how)
                return [SimpleNamespace(success=False, output=["first", "last", ""])]

            return SimpleNamespace(run_tests=run_tests)

    monkeypatch.setattr(rattler_build, "Package", Package)
    assert worker.test(Path("a.conda"), ["c"], "/logins") == "last"
    assert given == [{"channel": ["c"], "auth_file": "/logins"}]


def test_scripts_do_not_inherit_the_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(worker.LOGINS, "{}")
    path = worker.logins_file()
    assert path is not None
    assert (Path(path).read_text(), worker.LOGINS in os.environ) == ("{}", False)
    os.close(int(Path(path).name))
    assert worker.logins_file() is None


@pytest.mark.parametrize("build", ["", "Script failed with status 1"])
def test_the_first_reason_of_a_failure_counts_and_a_missing_package_is_none_of_a_test(
    build: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package whose test cannot be installed needs another one, which was not built: it stays."""
    ends = {
        "a.conda": "no such module", "b.conda": "failed to setup test environment", "c.conda": "Cannot solve: x"
    }  # fmt: skip
    seen: list[list[str]] = []

    def made(*_: object) -> None:
        for name in ends:
            (tmp_path / "out/linux-64").mkdir(parents=True, exist_ok=True)
            (tmp_path / "out/linux-64" / name).touch()
        if build:
            raise RuntimeError(build)

    def tested(package: Path, channels: list[str], _: object) -> str:
        seen.append(channels)
        return ends[package.name]

    monkeypatch.setattr(worker, "build", made)
    monkeypatch.setattr(worker, "test", tested)
    job = {
        "platform": "linux-64", "output_dir": str(tmp_path / "out"), "planned": [*ends], "channels": ["c"], "env": {},
        "tests": [], "test": True,
    }  # fmt: skip
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert worker.main([str(tmp_path / "job.json"), str(tmp_path / "outcome.json")]) == 1
    outcome = json.loads((tmp_path / "outcome.json").read_text())
    assert outcome["message"] == (build or "Test failed: a.conda: no such module")
    assert seen == [[(tmp_path / "out").as_uri(), "c"]] * 3, "each finds the packages of this build first"
    assert {path.name for path in (tmp_path / "out/linux-64").iterdir()} == {"b.conda", "c.conda"}
