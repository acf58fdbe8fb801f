"""What the user is told when something failed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from groundwork.errors import (
    BuildError,
    FailureKind,
    MegabuildError,
    OutOfMemoryError,
    OutOfSpaceError,
    PackageTestError,
    PreflightError,
    ProviderError,
    SwapRefused,
    UpstreamTestError,
)
from groundwork.first_error import first_error
from megabuild.engine.job import Outcome, OutcomeKind
from megabuild.engine.logs import ENGINE, Script, ScriptKind
from megabuild.engine.worker import FAILED_TEST, TEST_FAILED
from megabuild.run.build_output import LogTail
from megabuild.run.failure import Failure

FAILURES = Path(__file__).resolve().parent.parent / "data" / "failures"


def explained(
    tmp_path: Path,
    *lines: str,
    kind: str = "build",
    message: str = "Script failed",
    phase: str = "compile",
    code: int = 1,
    short: bool = True,
    jobs: int = 8,
) -> MegabuildError:
    return Failure(
        outcome=Outcome(ok=False, kind=OutcomeKind(kind), message=message, returncode=code),
        lines=lines, what="staging of libtorch", phase=phase, jobs=jobs, log=tmp_path / "x.log", state=tmp_path,
        short=short,
    ).error()  # fmt: skip


def kind_of(error: MegabuildError) -> FailureKind:
    assert error.failure is not None
    return error.failure.kind


KILLED = pytest.mark.parametrize(
    "text",
    [
        "g++: fatal error: Killed signal terminated program cc1plus",
        "/bin/sh: line 1: 4242 Killed  nvcc -c x.cu",
        "FAILED: [code=137] x.cu.o",  # ninja of an nvcc whose ptxas was killed; nvcc itself says only "Killed"
        "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
    ],
)


@KILLED
def test_a_killed_compiler_is_a_matter_of_memory_only_if_memory_was_short(tmp_path: Path, text: str) -> None:
    error = explained(tmp_path, "[1/9 1s] x", text)
    assert isinstance(error, OutOfMemoryError)
    assert "CPU_COUNT=4" in error.remedy
    error = explained(tmp_path, text, short=False)
    assert kind_of(error) is FailureKind.KILLED
    assert "CPU_COUNT" not in error.remedy


EXHAUSTED = "{standard input}: Assembler messages; virtual memory exhausted: Cannot allocate memory"


@pytest.mark.parametrize(
    ("lines", "how", "expected"),
    [
        # the compiler's own complaint needs no other evidence
        ((EXHAUSTED,), {}, OutOfMemoryError),
        ((EXHAUSTED,), {"short": False}, OutOfMemoryError),
        ((), {"kind": "killed", "code": 137}, OutOfMemoryError),
        ((), {"kind": "killed", "code": -9}, OutOfMemoryError),
        ((), {"kind": "killed", "code": 137, "short": False}, BuildError),
        ((), {"kind": "killed", "code": -9, "short": False}, BuildError),
        # even if the compiler dies of the full disk
        (
            ("ld: final link failed: No space left on device", "Killed signal terminated program ld"),
            {},
            OutOfSpaceError,
        ),
        (("c10.o is dirty",), {"phase": "swap"}, SwapRefused),
    ],
)
def test_the_cause_decides_the_kind_of_error(
    tmp_path: Path, lines: tuple[str, ...], how: dict[str, Any], expected: type[MegabuildError]
) -> None:
    error = explained(tmp_path, *lines, **how)
    assert type(error) is expected
    assert expected is not BuildError or kind_of(error) is FailureKind.KILLED


def test_a_worker_that_ends_during_the_swap_has_not_refused_it(tmp_path: Path) -> None:
    """A refusal has the staging made again."""
    for kind in ("other", "killed"):
        assert type(explained(tmp_path, "x", phase="swap", kind=kind, short=False)) is BuildError


def test_a_phase_that_printed_nothing_leaves_the_lines_before_it(tmp_path: Path) -> None:
    error = explained(tmp_path, "the last words", "::megabuild:: phase package", short=False)
    assert "the last words" in error.message


def test_a_download_that_was_repeated_well_is_no_network_error(tmp_path: Path) -> None:
    lines = ["HTTP Error 503: Service Unavailable", *["downloaded"] * 60]
    assert type(explained(tmp_path, *lines, kind="other", short=False)) is BuildError


def test_the_culprit_is_the_script_that_failed_not_the_tests_that_ran_after_it() -> None:
    recent = LogTail()

    def said(kind: str, package: str, text: str) -> None:
        recent.add(Script(ScriptKind(kind), package, "" if kind == "test" else "b"), text)

    said("build", "", "staged")
    said("build", "pytorch", "error")
    said("test", "libtorch", "fine")
    build = Outcome(ok=False, kind=OutcomeKind.BUILD, message="", returncode=1)
    assert recent.culprit(build, ()) == ("pytorch", "b", "build of pytorch b", ["error"])
    recent.add(ENGINE, "the worker's last words")
    assert recent.culprit(build, ()).lines == ["error", "the worker's last words"]
    failing = Outcome(ok=False, kind=OutcomeKind.TEST, message="", returncode=1)
    said("test", "pytorch", "no torch")
    said("test", "other", "fine")
    assert recent.culprit(failing, ["pytorch-1-b.conda"]) == (
        "pytorch", "", "test of pytorch", ["no torch", "the worker's last words"]
    )  # fmt: skip
    said("test", "pytorch-cpu", "fine")
    said("test", "pytorch", "also fine")
    broken = ["pytorch-cpu-1-b.conda"]
    assert recent.culprit(failing, broken).package == "pytorch-cpu", "no other name that begins like it"
    assert LogTail().culprit(build, ()) == ("", "", "rattler-build", [])


def test_a_test_whose_log_nobody_read_is_known_by_its_package() -> None:
    recent = LogTail()
    recent.add(ENGINE, "failed test: test_a.py::test_b")
    failing = Outcome(ok=False, kind=OutcomeKind.TEST, message="", returncode=1)
    found = recent.culprit(failing, ["pytorch-tests-2.13.0-cpu_py312_h1_0.conda"])
    assert (found.package, found.build_string) == ("pytorch-tests", "cpu_py312_h1_0")
    assert (found.what, found.lines) == (
        "test of pytorch-tests cpu_py312_h1_0", ["failed test: test_a.py::test_b"],
    )  # fmt: skip
    assert recent.culprit(failing, ()).what == "rattler-build"
    recent.add(Script(ScriptKind.BUILD, "pytorch-tests", "cpu_py313_h1_0"), "built after it, and passed")
    found = recent.culprit(failing, ["pytorch-tests-2.13.0-cpu_py312_h1_0.conda"])
    assert found.what == "test of pytorch-tests cpu_py312_h1_0"
    unusual = ["a.conda", "pytorch-tests-2.13.0-cpu_py312_h1_0.conda"]
    assert recent.culprit(failing, unusual).package == "pytorch-tests", "a build may write any file"
    assert recent.culprit(failing, ()).what == "test of pytorch-tests cpu_py313_h1_0"


@pytest.mark.parametrize("more", [0, 3000], ids=["all lines", "more lines than are kept"])
def test_the_lines_of_a_failed_test_are_its_own_not_those_of_another_python(more: int) -> None:
    """Logs of tests name a package without its build string; rattler-build prints all scripts of a package's test."""
    recent = LogTail()
    script = Script(ScriptKind.TEST, "scatter")
    begins = ["  Platform: linux-64 [__unix=0=0]", "error: a package's name", "Testing commands:"]
    for python in ("311", "312", "313"):
        first = [f"error: first script of {python}", "+ true"]
        second = [*["noise"] * more, "Testing commands:", f"+ check {python}"]
        for line in (*first, *second):
            recent.add(script, line)
        if python == "313":
            continue  # a test that passes is not printed
        mark = f"{FAILED_TEST}scatter-1-py{python}_0.conda"
        status = ["Script failed with status 3", "PyRattlerBuildError: failed to run test: IO Error"]
        for line in (mark, *begins, *first, *begins, *second, *status):
            recent.add(ENGINE, line)
    broken = ["scatter-1-py311_0.conda", "scatter-1-py312_0.conda"]
    message = f"{TEST_FAILED}{broken[1]}: PyRattlerBuildError: failed to run test: IO Error"
    failing = Outcome(ok=False, kind=OutcomeKind.TEST, message=message, returncode=1)
    found = recent.culprit(failing, broken)
    assert (found.package, found.build_string, found.what) == (
        "scatter",
        "py312_0",
        "test of scatter py312_0",
    )
    assert [line for line in found.lines if line != "noise"] == ["Testing commands:", "+ check 312"]
    error = first_error(found.lines)
    assert error is not None
    assert error.message == "failed: check 312"


def test_a_failed_test_that_printed_nothing_has_the_engine_s_words() -> None:
    recent = LogTail()
    begins = ["  Platform: linux-64 [__unix=0=0]", "Testing commands:"]
    for line in (f"{FAILED_TEST}a-1-0.conda", *begins, "Script failed with status 3"):
        recent.add(ENGINE, line)
    failing = Outcome(ok=False, kind=OutcomeKind.TEST, message=f"{TEST_FAILED}a-1-0.conda: x", returncode=1)
    assert "Script failed with status 3" in recent.culprit(failing, ["a-1-0.conda"]).lines


def test_the_step_that_failed_is_remembered_however_much_is_said_after_it() -> None:
    recent = LogTail()

    def said(text: str) -> None:
        recent.add(Script(ScriptKind.BUILD), text)

    said("::megabuild:: phase configure")
    said("CMake Error: of another phase")
    said("::megabuild:: phase compile")
    said("codegen.py:1: error: which nobody minds")
    for line in (FAILURES / "ninja-error.log").read_text().splitlines():
        said(line)
    for number in range(1000):
        said(f"[{number}/2000 9s] Building CXX object {number}.cpp.o")
    found = recent.culprit(Outcome(ok=False, kind=OutcomeKind.BUILD, message="", returncode=1), ()).lines
    assert len(found) <= 2000
    assert first_error(found) == first_error((FAILURES / "ninja-error.log").read_text().splitlines())


def test_the_headline_names_the_file_below_the_tree_and_the_record_has_all_of_it(tmp_path: Path) -> None:
    text = (FAILURES / "ninja-several.log").read_text().replace("/src/", "/opt/megabuild/state/tree/c10/")
    error = Failure(
        outcome=Outcome(ok=False, kind=OutcomeKind.BUILD, message="Script failed", returncode=1),
        lines=["::megabuild:: phase compile", *text.splitlines()], what="staging of libtorch", phase="compile",
        jobs=8, log=tmp_path / "x.log", state=tmp_path, short=False, inside="/opt/megabuild/state",
    ).error()  # fmt: skip
    assert isinstance(error, BuildError)
    first, *rest = error.message.splitlines()
    assert first == "staging of libtorch: c10/error.cpp:2: error: #error broken on purpose"
    assert not any("-MD -MT" in line or "good" in line or "werror" in line for line in rest)
    assert error.failure is not None
    failure = error.failure.to_dict()
    assert (failure["kind"], failure["file"], failure["line"]) == ("compiler", "c10/error.cpp", 2)
    assert (failure["phase"], failure["package"], failure["log"]) == ("compile", "", str(tmp_path / "x.log"))
    assert str(failure["command"]).startswith("/usr/bin/c++ ")


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("{state}/tree/aten/x.h", "aten/x.h"),
        ("{state}/out/bld/rattler-build_x/work/csrc/x.cpp", "csrc/x.cpp"),
        ("{state}/out/bld/rattler-build_x/host_env_placehold_placehold/include/x.h", "$PREFIX/include/x.h"),
        ("{state}/out/bld/rattler-build_x/build_env/lib/x.h", "$BUILD_PREFIX/lib/x.h"),
        ("../aten/x.h", "aten/x.h"),
        ("/usr/include/x.h", "/usr/include/x.h"),
    ],
)
@pytest.mark.parametrize("inside", [True, False])
def test_files_are_named_as_people_know_them(tmp_path: Path, file: str, shown: str, inside: bool) -> None:
    state = "/opt/megabuild/state" if inside else str(tmp_path)
    failure = Failure(
        outcome=Outcome(ok=False, kind=OutcomeKind.BUILD, message="", returncode=1), what="", jobs=1, state=tmp_path,
        lines=[f"{file.format(state=state)}:7:1: error: no"], short=False, inside="/opt/megabuild/state",
    )  # fmt: skip
    assert failure.first is not None
    assert failure.first.headline == f"{shown}:7: error: no"


@pytest.mark.parametrize("kind", ["test", "solve", "other"])
def test_the_network_is_nobody_s_mistake(tmp_path: Path, kind: str) -> None:
    line = "HTTP status server error (530 <unknown status code>) for url (https://conda.invalid/noarch/repodata.json)"
    error = explained(tmp_path, "+ python -c 'import torch'", kind=kind, message=line, short=False)
    assert isinstance(error, ProviderError)
    assert "530" in error.message
    assert kind_of(error) is FailureKind.NETWORK
    assert not isinstance(explained(tmp_path, line, kind="build"), ProviderError), "a script's own download"
    if kind != "test":
        printed = explained(tmp_path, line, kind=kind, message="the worker failed", short=False)
        assert kind_of(printed) is FailureKind.NETWORK, "also if only the worker's lines have it"


def test_an_error_without_lines_has_the_worker_s_words(tmp_path: Path) -> None:
    error = explained(tmp_path, kind="other", message="the cache is locked", short=False)
    assert error.failure is not None
    assert error.failure.message == "the cache is locked"


def test_a_test_of_network_errors_that_passed_is_no_network_error(tmp_path: Path) -> None:
    passed = "test_retry[HTTP Error 503] PASSED: Connection reset by peer"
    failed = ["Traceback (most recent call last):", '  File "/w/test_a.py", line 3', "AssertionError: 1 != 2"]
    error = explained(tmp_path, passed, *["."] * 9, *failed, kind="test", short=False)
    assert isinstance(error, PackageTestError)
    unreachable = [*failed[:2], "ConnectionResetError: [Errno 104] Connection reset by peer"]
    error = explained(tmp_path, *unreachable, kind="test", short=False)
    assert isinstance(error, ProviderError)


def failed_tests(tmp_path: Path, *lines: str, short: bool = False, on_machine: str = "") -> MegabuildError:
    outcome = Outcome(ok=False, kind=OutcomeKind.TEST, message="2 of 9 failed", returncode=1)
    return Failure(
        outcome=outcome, lines=lines, what="test of pytorch-tests cpu_0", jobs=8, state=tmp_path, short=short,
        package="pytorch-tests", log=tmp_path / "x.log", install="megabuild env create ./env pytorch-tests",
        on_machine=on_machine,
    ).error()  # fmt: skip


UPSTREAM = ("test_linalg.py::TestLinalgCPU::test_det_cpu_float32", "test_nn.py")


def test_failed_tests_of_pytorch_are_named_with_the_command_that_repeats_one(tmp_path: Path) -> None:
    printed = ["E   RuntimeError: HTTP Error 503: Connection reset by peer", "E   no space left on device"]
    error = failed_tests(tmp_path, *printed, *(f"failed test: {name}" for name in UPSTREAM))
    assert isinstance(error, UpstreamTestError)
    headline = "test of pytorch-tests cpu_0: 2 of PyTorch's own tests failed; its packages are kept"
    named = [f"  {name}" for name in UPSTREAM]
    assert error.message.splitlines() == [headline, *named, f"log: {tmp_path}/x.log"]
    repeat = f"megabuild env create ./env pytorch-tests && env/bin/pytorch-tests {UPSTREAM[0]}"
    assert error.remedy == f"repeat one alone: {repeat}"
    assert error.failure is not None
    document = error.failure.to_dict()
    assert (document["kind"], document["tests"]) == ("upstream_tests", list(UPSTREAM))


def test_of_many_failed_tests_ten_are_named(tmp_path: Path) -> None:
    error = failed_tests(tmp_path, *(f"failed test: test_nn.py::test_{number}" for number in range(12)))
    assert error.message.splitlines()[10:12] == ["  test_nn.py::test_9", "  and 2 more"]
    last = "812 of 9000 failed; to repeat one alone: pytorch-tests 'test_nn.py::test_0'"
    error = failed_tests(tmp_path, *(f"failed test: test_nn.py::test_{number}" for number in range(50)), last)
    assert "812 of PyTorch's own tests failed" in error.message
    assert error.message.splitlines()[11] == "  and 802 more"


def test_a_failed_test_is_repeated_where_its_program_runs(tmp_path: Path) -> None:
    error = failed_tests(tmp_path, "failed test: test_nn.py", on_machine=" on a linux-aarch64 machine")
    assert error.remedy.startswith("repeat one alone on a linux-aarch64 machine: megabuild env create ")


def test_tests_of_pytorch_that_the_kernel_ended_are_a_lack_of_memory(tmp_path: Path) -> None:
    error = failed_tests(tmp_path, f"crashed test: {UPSTREAM[0]}", short=True)
    assert isinstance(error, OutOfMemoryError)
    assert error.fewer_jobs_help
    error = failed_tests(tmp_path, f"crashed test: {UPSTREAM[0]}")
    assert isinstance(error, UpstreamTestError)
    assert UPSTREAM[0] in error.message


def test_a_test_of_pytorch_that_fails_while_memory_runs_out_elsewhere_has_failed(tmp_path: Path) -> None:
    error = failed_tests(tmp_path, f"failed test: {UPSTREAM[0]}", short=True)
    assert isinstance(error, UpstreamTestError)
    assert UPSTREAM[0] in error.message


def test_a_test_package_that_names_no_test_is_another_failure(tmp_path: Path) -> None:
    assert isinstance(
        failed_tests(tmp_path, "ModuleNotFoundError: No module named 'pytest'"), PackageTestError
    )


def test_an_environment_that_was_solved_and_not_made_is_no_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ("╭────────┬──────╮", "│ Package ┆ Version │", "│ ninja   ┆ 1.13.2  │", "╰────────┴──────╯", "")
    wrong = "PyRattlerBuildError: failed to setup test environment"
    made = explained(tmp_path, *table, wrong, kind="solve", message=wrong, short=False)
    assert kind_of(made) is FailureKind.ENVIRONMENT
    conflict = explained(
        tmp_path, *table, *["another line"] * 9, wrong, kind="solve", message=wrong, short=False
    )
    assert (type(conflict), kind_of(conflict)) == (PreflightError, FailureKind.SOLVE)
    # without room, the engine says the same
    monkeypatch.setattr("megabuild.run.failure.disk_free", lambda folder: 120_000_000)
    error = explained(tmp_path, *table, wrong, kind="solve", message=wrong, short=False)
    assert isinstance(error, OutOfSpaceError)
    assert not isinstance(explained(tmp_path, *table, "x.cpp:1: error: no", short=False), OutOfSpaceError)


@pytest.mark.parametrize(
    ("message", "short", "kind"),
    [
        ("IO Error: Script failed with status 137", True, "memory"),
        ("IO Error: Script failed with status 137", False, "killed"),
        ("IO Error: Script failed with status 143", False, "killed"),
        ("IO Error: Script failed with status 153", True, "disk"),
        ("IO Error: Script failed with status 139", True, "other"),
    ],
)
def test_the_script_s_exit_status_is_a_fact(tmp_path: Path, message: str, short: bool, kind: str) -> None:
    error = explained(tmp_path, "[1/9 1s] x", message=message, short=short)
    assert kind_of(error) == kind


def test_the_exit_status_of_a_package_s_test_is_a_fact(tmp_path: Path) -> None:
    engine = "PyRattlerBuildError: failed to run test: IO Error: Script failed with status 137"
    error = explained(tmp_path, "ok", kind="test", message=f"Test failed: a-1-0.conda: {engine}")
    assert isinstance(error, OutOfMemoryError)


def test_a_test_cannot_claim_the_script_s_exit_status(tmp_path: Path) -> None:
    said = "Test failed: Script failed with status 137"
    error = explained(tmp_path, said, kind="test", message=said)
    assert isinstance(error, PackageTestError)


def test_a_full_disk_is_measured_wherever_the_build_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "ccache"
    cache.mkdir()
    monkeypatch.setattr("megabuild.run.failure.is_full", cache.samefile)  # fails if there is none
    failure = Failure(
        outcome=Outcome(ok=False, kind=OutcomeKind.BUILD, message="", returncode=1), what="demo", jobs=1,
        state=tmp_path,        lines=["ccache: error: no"], short=False, disks=[tmp_path / "gone", cache],
    )  # fmt: skip
    error = failure.error()
    assert isinstance(error, OutOfSpaceError)
    assert f"({cache})" in error.message
    assert "ccache: error: no" in error.message


def test_a_program_without_space_on_a_disk_that_is_not_known_says_what_is_free(tmp_path: Path) -> None:
    error = explained(tmp_path, "+ tar xf a", "tar: a: Cannot write: No space left on device", short=False)
    assert isinstance(error, OutOfSpaceError)
    assert f"free in {tmp_path}" in error.message
    assert error.message.count("tar: a: Cannot write") == 1


def test_fewer_jobs_help_only_if_memory_ran_out_on_the_machine(tmp_path: Path) -> None:
    for short in (True, False):
        error = explained(tmp_path, EXHAUSTED, short=short)
        assert isinstance(error, OutOfMemoryError)
        assert error.fewer_jobs_help == short
        assert ("CPU_COUNT=4" in error.remedy) == short
    assert explained(tmp_path, EXHAUSTED, jobs=1).remedy.startswith("build on a machine with more memory")


@pytest.mark.parametrize(
    ("message", "line", "name"),
    [
        ("Script failed with status 143", "", "(SIGTERM)"),
        ("", "/w/conda_build.sh: line 12: 4711 Terminated              cmake --build build", "(SIGTERM)"),
        ("Script failed with status 137", "", "(kill -9?)"),
        ("", "c++: fatal error: Killed signal terminated program cc1plus", "(kill -9?)"),
    ],
)
def test_the_signal_is_named(tmp_path: Path, message: str, line: str, name: str) -> None:
    error = explained(tmp_path, line, message=message, short=False)
    assert f"killed by a signal {name}; memory did not run out" in error.message


@pytest.mark.parametrize(
    ("kind", "message", "codes"),
    [
        (OutcomeKind.BUILD, "Script failed with status 137", [3, 9, 137]),
        (
            OutcomeKind.TEST,
            "x: PyRattlerBuildError: failed to run test: IO Error: Script failed with status 139",
            [3, 9, 139],
        ),
        (OutcomeKind.TEST, "Script failed with status 137", [3, 9]),
        (OutcomeKind.BUILD, "another error", [3, 9]),
    ],
)
@pytest.mark.parametrize("step", [9, None])
def test_exit_codes_of_worker_step_and_script_are_facts_about_a_failure(
    kind: OutcomeKind, message: str, codes: list[int], step: int | None
) -> None:
    outcome = SimpleNamespace(returncode=3, kind=kind, message=message)
    failure = SimpleNamespace(outcome=outcome, _step=SimpleNamespace(exit_code=step))
    assert Failure._find_exit_codes(cast(Any, failure)) == [3, step or 0, *codes[2:]]
