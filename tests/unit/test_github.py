"""What GitHub's logs and step summaries get."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from command_line import github
from command_line.progress_display import Screen
from command_line.streams import Output
from groundwork.names import PackageId
from groundwork.progress import Preparing
from groundwork.redact import Mask
from megabuild.run.summary import PackageResult
from megabuild.status.status import PHASE, Status, logger

FAILED = """staging of libtorch: the build script failed
[3/9 0.1s] Building CXX object c10/cuda/CUDAFunctions.cpp.o
c10/cuda/CUDAFunctions.cpp:2:10: fatal error: no 100 % luck
::set-output name=x::y"""


def test_phases_are_groups_and_the_last_one_is_closed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    stream = io.StringIO()
    status = Status("linux_64_cpu", tmp_path)
    with Screen(Console(file=stream)) as screen, status.task("pytorch", level=PHASE) as task:
        screen.follow(status)
        status.note(Preparing(what="downloading 3 wheels", total=9_000, unit="bytes"))
        status.note(Preparing(what="downloading 3 wheels", done=9_000, total=9_000, unit="bytes"))
        task.phase("libtorch: configure")
        task.phase("libtorch: compile")
        task.advance(9, 9)
        logger.info("✓ libtorch 2.6.0: built in 3 s")
    lines = stream.getvalue().splitlines()
    commands = [line for line in lines if line.startswith("::")]
    assert commands == [
        "::group::downloading 3 wheels",
        "::endgroup::",
        "::group::libtorch: configure",
        "::endgroup::",
        "::group::libtorch: compile",
        "::endgroup::",
    ]
    assert lines[-2].endswith("libtorch 2.6.0: built in 3 s")


def test_an_error_is_put_at_the_file_and_line_that_the_compiler_named() -> None:
    assert github.error(FAILED) == (
        "::error file=c10/cuda/CUDAFunctions.cpp,line=2::staging of libtorch: the build script failed: no 100 %25 luck"
    )
    assert github.error("a\nb") == "::error::a%0Ab"


def test_a_build_gives_github_no_commands() -> None:
    hostile = "::a\n  ::b\nc ::d\n"
    lines = github.harmless(hostile + FAILED).splitlines()
    assert not [line for line in lines if line.strip().startswith("::")]


@pytest.mark.parametrize("on_github", [True, False])
def test_nothing_that_is_printed_on_github_gives_commands(
    on_github: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the name of an object in the line of each minute, which a build chooses."""
    monkeypatch.setenv("GITHUB_ACTIONS", str(on_github).lower())
    stream = io.StringIO()
    output = Output(stream, Mask({}))
    output.writelines(["compile 1/2, 3 s: ##[stop-commands]x.cpp\n", "::group::ours\n"])
    assert ("##[" in stream.getvalue()) is not on_github
    assert "\n::group::ours" in stream.getvalue()


def test_the_step_summary_grows_by_a_table_of_packages(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    rows = [
        PackageResult(
            package=PackageId("libtorch", "2.6.0", "cpu_h0_0"), status="built", size=1_200_000, seconds=61.0
        ),
        PackageResult(package=PackageId("a|b", "1", "0"), status="failed"),
    ]
    github.add_to_summary(
        "tiny", rows, 70.0, "no\x1b[2J luck\n# no heading", {"GITHUB_STEP_SUMMARY": str(path)}
    )
    text = path.read_text()
    assert text.startswith("before\n### tiny: failed in 1:10 min\n")
    assert "| libtorch 2.6.0 | built | 1.2 MB | 1:01 min |" in text
    assert r"| a\|b 1 | **failed** |  |  |" in text
    assert "\n    # no heading\n" in text
    assert "\x1b" not in text


def test_a_run_that_the_next_job_takes_up_has_not_failed(tmp_path: Path) -> None:
    environ = {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    github.add_to_summary("tiny", [], 0.0, "the deadline has come", environ, goes_on=True)
    assert (tmp_path / "summary.md").read_text().startswith("### tiny: to be continued\n")
    assert github.notice("the deadline\nhas come") == "::notice::the deadline%0Ahas come"


def test_elsewhere_nothing_is_written(tmp_path: Path) -> None:
    github.add_to_summary("tiny", [], 1.0, "", {})
    assert not github.runs_here({})
    assert list(tmp_path.iterdir()) == []
