"""What is noted of a run while it goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from groundwork import events
from groundwork.package_id import PackageId
from groundwork.redact import Mask
from groundwork.run_state import RunState, TimeLeft
from megabuild.report.recorder import Recorder
from megabuild.report.timeline import Head, Timeline, read

STATE = RunState(
    config="tiny", status="building", began=1000.0, updated=1000.0, cores=4, memory=5, disk_free=7
)
PHASE = events.PhaseStarted(phase="compile", package="staging")


class Run:
    """A run whose clock is turned by hand."""

    def __init__(self, folder: Path, environ: dict[str, str] | None = None) -> None:
        self.now = 1000.0
        self.log = folder / "tree" / "build" / ".ninja_log"
        self.log.parent.mkdir(parents=True)
        self.path = folder / "runs" / "x.jsonl"
        head = Head(began=self.now, config="tiny")
        self.recorder = Recorder(folder, head, self.path, Mask(environ or {}), clock=lambda: self.now)

    def at(self, now: float, event: events.Event) -> None:
        self.now = now
        self.recorder.take(event)

    def ninja(self, *lines: str) -> None:
        self.log.write_text("\n".join(["# ninja log v7", *lines, ""]))

    def found(self) -> Timeline:
        timeline = read(self.path)
        assert timeline is not None
        return timeline


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_every_step_of_this_run_is_noted_once_also_where_the_next_pythons_replaced_it(
    run: Run,
) -> None:
    earlier = "0\t9\t900000000000\told.o\taa"
    first, second = "0\t9\t1001000000000\ta.o\tbb", "0\t9\t1050000000000\ta.o\tcc"
    run.ninja(earlier, first)
    run.at(1010.0, PHASE)
    run.ninja(earlier, first, second)
    run.at(1060.0, events.PhaseStarted(phase="package", package="pytorch", python="3.12"))
    run.ninja(earlier, second)  # what ninja does when it writes its log anew
    run.now = 1100.0
    run.recorder.end()
    assert [(round(step.at), step.output) for step in run.found().steps] == [(1001, "a.o"), (1050, "a.o")]


def test_phases_tests_and_extensions_have_lanes_of_their_own(run: Run) -> None:
    label = PackageId("pytorch", "2.13.0", "py312_h0_0")
    run.at(1001.0, PHASE)
    run.at(1005.0, events.TestRun(name="libtorch 2.13.0"))
    run.at(1006.0, events.TaskStarted(task="pytorch_scatter-py312"))
    run.at(1007.0, events.InTask(task="pytorch_scatter-py312", event=PHASE))
    run.at(1008.0, events.TestEnded(name="libtorch 2.13.0", seconds=3.0, passed=False))
    run.at(1009.0, events.PackageBuilt(package=label, seconds=8.0))
    run.at(1010.0, events.TaskEnded(task="pytorch_scatter-py312", status="failed", message="no"))
    assert [(span.lane, span.what, span.began, span.ended, span.failed) for span in run.found().spans] == [
        ("pytorch", "libtorch: compile", 1001.0, 1009.0, False),
        ("test libtorch 2.13.0", "testing libtorch 2.13.0", 1005.0, 1008.0, True),
        ("pytorch_scatter-py312", "pytorch_scatter-py312: environment", 1006.0, 1007.0, False),
        ("pytorch_scatter-py312", "libtorch: compile", 1007.0, 1010.0, True),
    ]
    assert "pytorch 2.13.0: built in 8 s" in " ".join(note.text for note in run.found().notes)


def test_what_is_prepared_is_noted_from_its_beginning_to_its_end(run: Run) -> None:
    for now, done in ((1001.0, 0), (1002.0, 5), (1004.0, 9)):
        run.at(now, events.Preparing(what="downloading 3 wheels", done=done, total=9, unit="bytes"))
    run.at(1005.0, events.Noted(text="one of many"))
    (span,) = run.found().spans
    assert (span.what, span.began, span.ended) == ("downloading 3 wheels", 1001.0, 1004.0)
    assert run.found().notes == []


def test_samples_of_a_long_run_are_some_thousands_and_of_a_short_one_every_two_seconds(run: Run) -> None:
    for second in range(1, 6 * 3600):
        run.at(1000.0 + second, events.Stands(state=STATE))
    samples = run.found().samples
    assert 1000 < len(samples) < 3000
    assert samples[1].at - samples[0].at == 2.0
    assert (samples[0].memory, samples[0].disk_free, samples[0].ours) == (5, 7, 0.0)
    left = TimeLeft(likely=1, earliest=1, latest=1, done=0, share=0.5)
    run.at(run.now + 99, events.Stands(state=replace(STATE, left=left)))
    assert run.found().samples[-1].ours == 2.0


def test_extensions_steps_are_read_while_their_folders_are_there(run: Run, tmp_path: Path) -> None:
    work = tmp_path / "pyg" / "pytorch_scatter-py312" / "out" / "bld" / "x_1" / "work" / "build" / "temp"
    work.mkdir(parents=True)
    (work / ".ninja_log").write_text(f"# ninja log v7\n0\t5000\t1001000000000\t{work}/scatter.o\taa\n")
    run.at(1010.0, events.InTask(task="pytorch_scatter-py312", event=PHASE))
    assert [(step.lane, step.output) for step in run.found().steps] == [
        ("pytorch_scatter-py312", "build/temp/scatter.o")
    ]


def test_what_builds_write_is_masked_without_control_characters_and_bounded(tmp_path: Path) -> None:
    run = Run(tmp_path, {"GH_TOKEN": "hunter2222"})
    run.ninja(f"0\t5\t1001000000000\t\x1b[31mhunter2222\x07{'x' * 5000}\taa")
    run.at(1010.0, events.Warned(message="hunter2222\x1b[2J"))
    text = run.path.read_text()
    assert "hunter2222" not in text
    assert "u001b" not in text
    assert len(run.found().steps[0].output) == 300


def test_a_tree_that_is_being_replaced_ends_no_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> object:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(Path, "glob", gone)
    run.at(1010.0, PHASE)
    monkeypatch.undo()
    run.ninja("0\t9\t1001000000000\ta.o\tbb")
    run.now = 1100.0
    run.recorder.end()
    assert [step.output for step in run.found().steps] == ["a.o"]
