"""What the user is told when something failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundwork.errors import (
    BuildError,
    KilledError,
    MegabuildError,
    OutOfMemoryError,
    OutOfSpaceError,
    PackageTestError,
    SwapRefused,
)
from groundwork.package_id import PackageId
from megabuild.engine.job import Outcome
from megabuild.engine.logs import ScriptLine
from megabuild.run.failure import EXCERPT_LINES, Failure, Recent, excerpt


def explained(
    tmp_path: Path,
    *lines: str,
    kind: str = "build",
    message: str = "Script failed",
    phase: str = "compile",
    code: int = 1,
    short: bool = True,
) -> MegabuildError:
    return Failure(
        outcome=Outcome(ok=False, kind=kind, message=message, returncode=code),
        lines=lines, what="staging of libtorch", phase=phase, jobs=8, log=tmp_path / "x.log", state=tmp_path,
        short=short,
    ).error()  # fmt: skip


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
def test_a_killed_compiler_is_a_matter_of_memory_with_fewer_jobs_as_remedy(tmp_path: Path, text: str) -> None:
    error = explained(tmp_path, "[1/9 1s] x", text)
    assert isinstance(error, OutOfMemoryError)
    assert "CPU_COUNT=4" in error.remedy


def test_with_one_job_fewer_are_no_remedy(tmp_path: Path) -> None:
    error = Failure(
        outcome=Outcome(ok=False, kind="killed", message="", returncode=137),
        lines=(), what="staging", phase="compile", jobs=1, log=tmp_path / "x.log", state=tmp_path,
        short=True,
    ).error()  # fmt: skip
    assert "CPU_COUNT" not in error.remedy
    assert "more memory" in error.remedy


@KILLED
def test_a_compiler_that_somebody_killed_while_there_was_memory_is_none(tmp_path: Path, text: str) -> None:
    error = explained(tmp_path, text, short=False)
    assert isinstance(error, KilledError)
    assert "CPU_COUNT" not in error.remedy


@pytest.mark.parametrize("short", [True, False])
def test_a_compiler_s_own_complaint_needs_no_other_evidence(tmp_path: Path, short: bool) -> None:
    text = "{standard input}: Assembler messages; virtual memory exhausted: Cannot allocate memory"
    assert isinstance(explained(tmp_path, text, short=short), OutOfMemoryError)


@pytest.mark.parametrize("code", [137, -9])
def test_a_killed_engine_is_a_matter_of_memory_only_if_memory_was_short(tmp_path: Path, code: int) -> None:
    assert isinstance(explained(tmp_path, kind="killed", code=code, short=True), OutOfMemoryError)
    assert isinstance(explained(tmp_path, kind="killed", code=code, short=False), KilledError)


def test_a_full_disk_is_one_even_if_the_compiler_dies_of_it(tmp_path: Path) -> None:
    error = explained(
        tmp_path, "ld: final link failed: No space left on device", "Killed signal terminated program ld"
    )
    assert isinstance(error, OutOfSpaceError)


def test_a_build_that_fails_in_the_swap_is_a_refused_swap(tmp_path: Path) -> None:
    assert isinstance(explained(tmp_path, "c10.o is dirty", phase="swap"), SwapRefused)


def test_a_failing_test_shows_its_own_lines(tmp_path: Path) -> None:
    error = explained(
        tmp_path, "+ python -c 'import torch'", "ImportError: no torch", kind="test", message="Test failed"
    )
    assert isinstance(error, PackageTestError)
    assert "ImportError: no torch" in error.message
    assert "+ python" not in error.message


def test_an_unknown_failure_is_told_in_the_engine_s_words(tmp_path: Path) -> None:
    error = explained(tmp_path, kind="other", message="Failed to parse recipe")
    assert isinstance(error, BuildError)
    assert "Failed to parse recipe" in error.message


def test_an_excerpt_begins_at_the_first_error_and_has_an_end() -> None:
    lines = ["[1/9 1s] fine", "x.cpp:1: error: no", *(f"note {number}" for number in range(100))]
    assert excerpt(lines).splitlines() == lines[1 : 1 + EXCERPT_LINES]


def test_an_excerpt_is_of_the_phase_that_failed() -> None:
    compiled = ["::megabuild:: phase compile", *(f"[{number}/30 9s] c10/error.cpp.o" for number in range(30))]
    found = [
        "error: what would be packed asks for",
        "  libc10.so needs libcuda.so.1",
        "keep the linker from it",
    ]
    assert excerpt([*compiled, "::megabuild:: phase check", *found]).splitlines() == found
    assert excerpt([*compiled, "::megabuild:: phase check"])


def test_the_culprit_is_the_script_that_failed_not_the_tests_that_ran_after_it() -> None:
    recent = Recent()

    def said(kind: str, package: str, text: str) -> None:
        recent.add(ScriptLine(kind=kind, package=PackageId(package, "1", "b"), python="", text=text))

    said("build", "", "staged")
    said("build", "pytorch", "error")
    said("test", "libtorch", "fine")
    build = Outcome(ok=False, kind="build", message="", returncode=1)
    assert recent.culprit(build, ()) == ("build of pytorch b", ["error"])
    failing = Outcome(ok=False, kind="test", message="", returncode=1)
    said("test", "pytorch", "no torch")
    said("test", "other", "fine")
    assert recent.culprit(failing, ["pytorch-1-b.conda"]) == ("test of pytorch", ["no torch"])
    assert Recent().culprit(build, ()) == ("the engine", [])
