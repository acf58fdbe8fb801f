"""Which of PyTorch's own tests the selection leaves out, by the build that is tested, and what their results are."""

from __future__ import annotations

import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from _pytest.mark.expression import Expression
from small_files import write

from upstream_tests import __main__ as upstream_tests
from upstream_tests import gather, plugin, run, selection
from upstream_tests.selection import Build, Part, Selection, read_selection

#: PyTorch 2.6.0 with CUDA for ARM, as Debian would build it.
BUILD = Build(version="2.6.0+debian", words=frozenset({"cuda", "generic", "aarch64", "python3.12"}))


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("", True),
        ("cuda", True),
        ("cpu", False),
        ("aarch64 cuda", True),
        ("aarch64 cpu", False),
        ("x86_64 cuda", False),
        ("python3.12 generic aarch64", True),
        ("python3.13 generic aarch64", False),
        ("<2.7", True),
        ("<2.6", False),
        (">=2.6 <2.7", True),
        (">=2.6 <2.6", False),
        ("<2.7 cuda", True),
        ("<2.7 cpu", False),
        (">=2.7 cuda", False),
        ("==2.6.0", True),
    ],
)
def test_all_words_of_a_condition_must_hold(condition: str, holds: bool) -> None:
    assert BUILD.meets(condition) == holds
    sections = {f"skip {condition}".strip(): {"test_a.py::*": "reason"}}
    sections[f"may be empty {condition}".strip()] = {"test_b.py": "reason"}
    selection = Selection(sections=sections)
    assert bool(selection.skips(BUILD)) == holds
    assert selection.may_be_empty("test_b.py", BUILD) == holds
    assert not selection.may_be_empty("test_a.py", BUILD)


@pytest.mark.parametrize("missing", sorted(BUILD.words))
def test_a_build_that_lacks_one_word_of_a_condition_skips_nothing(missing: str) -> None:
    selection = Selection(sections={f"skip {' '.join(sorted(BUILD.words))}": {"test_a.py::*": "reason"}})
    assert selection.skips(BUILD) == [("test_a.py::*", "reason")]
    assert selection.skips(replace(BUILD, words=BUILD.words - {missing})) == []


def test_a_version_before_a_release_meets_the_conditions_of_the_release() -> None:
    assert replace(BUILD, version="2.14.0a0+git1").meets(">=2.14 <2.15")


def test_the_skips_of_all_sections_count_by_names_as_they_are_written(tmp_path: Path) -> None:
    text = "[skip]\ntest_a.py::TestA::test_X_* = one\n[skip cuda]\ntest_b.py = two\n[skip cpu]\ntest_c.py = three\n"
    chosen = read_selection(write(tmp_path / selection.NAME, text))
    assert chosen.skips(BUILD) == [("test_a.py::TestA::test_X_*", "one"), ("test_b.py", "two")]


@pytest.mark.parametrize(
    ("cuda", "blas", "words"),
    [(None, "BLAS_INFO=mkl, ", {"cpu", "mkl"}), ("13.0", "BLAS_INFO=open, ", {"cuda", "generic"})],
)
def test_the_installed_torch_has_the_words_of_its_build(
    cuda: str | None, blas: str, words: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = SimpleNamespace(
        version=SimpleNamespace(cuda=cuda), __config__=SimpleNamespace(show=lambda: blas), __version__="2.6.0"
    )
    monkeypatch.setitem(sys.modules, "torch", cast(Any, torch))
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    assert selection.installed_build() == Build("2.6.0", frozenset({*words, "aarch64", python}))


def test_an_expression_of_several_lines_is_one_for_pytest() -> None:
    selection = read_selection()
    files = [name for part in Part for name in selection.sections[part.value]]
    assert files
    for name in files:
        expression = selection.keywords(name)
        assert "\n" not in expression
        Expression.compile(expression or "all")


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("crashed", [False, True])
def test_one_failed_file_of_several_fails_the_run(
    number: int, crashed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"test_{letter}.py" for letter in "abc"]

    def run_file(name: str, *_: object) -> run.Result:
        if name != names[number]:
            return run.Result(counts=dict.fromkeys(run.Outcome, 1), failed=[])
        return run.Result(counts=dict.fromkeys(run.Outcome, 1), failed=[name], crashed=[name] * crashed)

    monkeypatch.setattr(run, "run_file", run_file)
    assert run.run(cast(Any, None), names, 1) == 1
    word = run.CRASHED_TEST if crashed else run.FAILED_TEST
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith((run.CRASHED_TEST, run.FAILED_TEST))] == [
        f"{word}{names[number]}"
    ]


@pytest.mark.parametrize("child", ["failure", "error"])
@pytest.mark.parametrize("number", range(2))
def test_a_test_that_fails_or_cannot_be_set_up_has_failed(child: str, number: int, tmp_path: Path) -> None:
    cases = []
    for place in range(2):
        content = f"<{child}/>" if place == number else "<skipped/>"
        cases.append(f'<testcase classname="test_a.TestA" name="test_{place}">{content}</testcase>')
    report = write(
        tmp_path / "report.xml", f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>"
    )
    result = run.read_report(report, "test_a.py")
    assert result is not None
    assert result.failed == [f"test_a.py::TestA::test_{number}"]
    report.write_bytes(report.read_bytes()[:-20])
    assert run.read_report(report, "test_a.py") is None, "a cut report"
    assert run.read_report(tmp_path / "none.xml", "test_a.py") is None


def test_a_file_that_takes_too_long_has_failed_whatever_its_report_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object, **__: object) -> None:
        write(tmp_path / "report.xml", "<testsuites/>")
        raise subprocess.TimeoutExpired("pytest", 1)

    monkeypatch.setattr(subprocess, "run", late)
    monkeypatch.setattr(run, "_command", lambda *_: ["pytest"])
    assert run.run_file("test_a.py", cast(Any, None), tmp_path, 1).failed == ["test_a.py"]


PASSED = '<testcase classname="test_a" name="test_x"/>'
SKIPPED = '<testcase classname="test_a" name="test_x"><skipped/></testcase>'
FAILED = '<testcase classname="test_a" name="test_x"><failure/></testcase>'


@pytest.mark.parametrize(
    ("code", "report", "may_be_empty", "failed", "is_crash"),
    [
        (0, PASSED, False, [], False),
        (1, PASSED + FAILED, False, ["test_a.py::test_x"], False),
        (1, PASSED, False, ["test_a.py"], False),  # a module that cannot be imported after others
        (0, SKIPPED, False, ["test_a.py"], False),
        (5, "", False, ["test_a.py"], False),
        (0, SKIPPED, True, [], False),
        (5, "", True, [], False),
        (2, "", True, ["test_a.py"], False),
        (-11, PASSED, False, ["test_a.py"], True),
        (-11, None, False, ["test_a.py"], True),
        (3, None, False, ["test_a.py"], False),
    ],
)
def test_a_file_has_passed_if_a_test_of_it_has_and_pytest_agrees(
    code: int, report: str | None, may_be_empty: bool, failed: list[str], is_crash: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def pytest_run(*_: object, **__: object) -> SimpleNamespace:
        if report is not None:
            write(tmp_path / "report.xml", f"<testsuites><testsuite>{report}</testsuite></testsuites>")
        return SimpleNamespace(returncode=code)

    monkeypatch.setattr(subprocess, "run", pytest_run)
    monkeypatch.setattr(run, "installed_build", lambda: BUILD)
    chosen: Any = SimpleNamespace(keywords=lambda _: "", may_be_empty=lambda *_: may_be_empty)
    result = run.run_file("test_a.py", chosen, tmp_path, 1)
    assert result.failed == failed
    assert result.crashed == (failed if is_crash else [])
    assert result.counts[run.Outcome.FAILED] == len(failed)


def test_a_file_runs_with_its_selection_and_a_single_test_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A test that the selection skips can then be debugged."""
    for name, value in {"OMP_NUM_THREADS": "4", "PYTHONPATH": "/own", "PYTEST_ADDOPTS": "-x"}.items():
        monkeypatch.setenv(name, value)
    chosen = Selection(sections={Part.ONE_PYTHON.value: {"test_a.py": "test_x or\n test_y"}})
    of_file = run._command("test_a.py", chosen, tmp_path / "report.xml", 3)
    assert of_file[-1] == str(run.HERE / gather.TESTS / "test_a.py")
    text = " ".join(of_file)
    assert "-p upstream_tests.plugin -n 3 -m not hypothesis --dist worksteal -k test_x or test_y " in text
    assert f"--junit-xml={tmp_path}/report.xml --timeout={run.TEST_PATIENCE} " in text
    of_test = " ".join(run._command("test_a.py::test_z", chosen, tmp_path / "report.xml", 3))
    assert "-p no:xdist" in of_test
    assert not any(word in of_test for word in ("upstream_tests.plugin", " -k ", "hypothesis", " -n "))
    made = run._environment(tmp_path)
    assert made["PYTHONPATH"].split(":") == [str(run.HERE), str(run.HERE / gather.TESTS), "/own"]
    assert (made["OMP_NUM_THREADS"], "PYTEST_ADDOPTS" in made) == ("4", False)
    assert made["TORCHINDUCTOR_CACHE_DIR"].startswith(str(tmp_path))


@pytest.mark.parametrize(("processors", "memory", "count"), [("8", 100.0, 8), ("8", 7.6, 3), ("8", 1.0, 1)])
def test_as_many_tests_run_as_processors_and_memory_allow(
    processors: str, memory: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CPU_COUNT", processors)
    monkeypatch.setattr(run, "_free_memory", lambda: memory)
    assert run.jobs() == count


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ([], ["test_a.py", "test_b.py"]),
        (["--each-python"], ["test_a.py"]),
        (["test_b.py::T::test_x", "--each-python"], ["test_b.py::T::test_x"]),
    ],
)
def test_the_files_run_that_are_named_or_that_each_python_needs(
    words: list[str], names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = Selection(
        sections={Part.EACH_PYTHON.value: {"test_a.py": ""}, Part.ONE_PYTHON.value: {"test_b.py": ""}}
    )
    ran: list[tuple[list[str], int]] = []

    def run_all(_: object, names: list[str], count: int) -> int:
        ran.append((names, count))
        return 1

    monkeypatch.setattr(upstream_tests, "read_selection", lambda: chosen)
    monkeypatch.setattr(upstream_tests, "run", run_all)
    assert upstream_tests.main(["run", *words, "--jobs", "3"]) == 1
    assert ran == [(names, 3)]


def test_the_selected_tests_are_packed_with_all_that_they_need(tmp_path: Path) -> None:
    """Modules and data of the folder of tests, and the tree's own selection, but no module of the standard library."""
    tests = tmp_path / "tree" / gather.TESTS
    write(tests / selection.NAME, "[each Python]\ntest_a.py =\n")
    imports = "import helper\nfrom package.inner import x\nimport typing\nopen('data.json')\n"
    for name in ("test_a.py", "test_b.py"):
        write(tests / name, imports if name == "test_a.py" else "")
    needed = ["data.json", "expect/a.txt", "helper.py", "package/__init__.py", "package/inner.py"]
    for name in (*needed, "typing/__init__.py", "other.py"):
        write(tests / name)
    gather.gather(tmp_path / "tree", tmp_path / "packed")
    packed = tmp_path / "packed" / gather.TESTS
    found = sorted(path.relative_to(packed).as_posix() for path in packed.rglob("*") if path.is_file())
    assert found == sorted([*needed, "test_a.py"])
    assert (tmp_path / "packed/upstream_tests" / selection.NAME).read_text() == (
        tests / selection.NAME
    ).read_text()


def test_one_unknown_file_of_several_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    known = selection.read_selection().files()[0]
    with pytest.raises(SystemExit) as refused:
        upstream_tests.main(["run", known, "test_none.py"])
    assert refused.value.code == 2
    assert "has no test_none.py" in capsys.readouterr().err
    folder = Path(upstream_tests.__file__).parent  # as the recipe calls it, which has nothing installed
    done = subprocess.run(
        [sys.executable, "-I", folder, "run", "test_none.py"], capture_output=True, text=True
    )
    assert (done.returncode, "has no test_none.py" in done.stderr) == (2, True)


def test_one_missing_file_of_several_is_an_error(tmp_path: Path) -> None:
    names = selection.read_selection().files()
    for name in names[:-1]:
        write(tmp_path / "tree" / gather.TESTS / name)
    with pytest.raises(SystemExit, match=names[-1]):
        gather.gather(tmp_path / "tree", tmp_path / "packed")
    assert not (tmp_path / "packed").exists()


def test_tests_are_skipped_by_file_class_and_name(monkeypatch: pytest.MonkeyPatch) -> None:
    skips = [("test_a.py::TestA::test_x_*", "reason")]
    monkeypatch.setattr(plugin, "read_selection", lambda: SimpleNamespace(skips=lambda _: skips))
    monkeypatch.setattr(plugin, "installed_build", lambda: BUILD)
    skipped: list[str] = []

    def item(name: str) -> SimpleNamespace:
        return SimpleNamespace(
            name=name.rpartition("::")[2], nodeid=name, add_marker=lambda _: skipped.append(name)
        )

    names = ["test_a.py::TestA::test_x_cpu", "test_a.py::TestB::test_x_cpu", "test_b.py::TestA::test_x_cpu"]
    plugin.pytest_collection_modifyitems([item(name) for name in names])
    assert skipped == names[:1]
