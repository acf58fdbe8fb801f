"""Extensions as people see them: in the plan, while several are built, and at the end."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from megabuild.cli.narrate import narrate
from megabuild.cli.reporters import LiveReporter, PlainReporter
from megabuild.cli.text import Signs
from megabuild.cli.views import extension_lines, package_lines
from megabuild.configs.config import load
from megabuild.run import events
from megabuild.run.pyg import planning, tasks
from megabuild.run.pyg.sources import Sources
from megabuild.run.pyg.tasks import Extensions
from megabuild.run.summary import PackageResult

SIGNS = Signs.of(io.StringIO())


def progress(done: int) -> events.Progress:
    return events.Progress(
        phase="compile",
        package="pytorch_scatter",
        python="3.12",
        done=done,
        total=8,
        seconds=10,
        eta_seconds=30,
    )


def live(width: int = 80) -> LiveReporter:
    return LiveReporter(Console(file=io.StringIO(), force_terminal=True, width=width))


class Wheels:
    """Offers a wheel for one extension."""

    def __init__(self, extension: str, wheel: Path) -> None:
        self.wheel: Path | None = None
        self.reason = ""
        self._extension, self._wheel = extension, wheel

    def __call__(self, extension: str, python: str) -> planning.Choice:
        fits = extension == self._extension
        self.wheel = self._wheel if fits else None
        self.reason = "prebuilt: torch_scatter-2.1.2.whl" if fits else "compile: no wheel for Python 3.12"
        return self


def decided(repository: Path, *, mode: str, sources: Sources) -> Extensions:
    config, recipes = load(repository, "linux_64_cpu"), tasks.recipes(repository)
    pins = tuple(pin for pin in config.variant["python"] if pin.startswith("3.12"))
    found = planning.rendered(
        config, recipes, {"python": pins}, extensions=("pytorch_scatter", "pytorch_cluster"), sources=sources
    )
    return planning.decided(
        found, mode=mode, sources=sources, choose=Wheels("pytorch_scatter", Path("/cache/torch_scatter.whl"))
    )


def test_a_wheel_that_fits_is_repackaged_and_the_rest_is_compiled(repository: Path) -> None:
    made = decided(repository, mode="auto", sources=Sources())
    assert {task.extension: task.how for task in made.tasks} == {
        "pytorch_scatter": "repackage",
        "pytorch_cluster": "compile",
    }
    lines = extension_lines(made, SIGNS)
    (scatter,) = (line for line in lines if line.startswith("pytorch_scatter"))
    assert scatter.split() == ["pytorch_scatter", "2.1.2", "py3.12", "repackage", "torch_scatter-2.1.2.whl"]
    (cluster,) = (line for line in lines if line.startswith("pytorch_cluster"))
    assert cluster.endswith("compile    no wheel for Python 3.12")


def test_only_wheels_or_no_sources_means_nothing_where_none_fits(repository: Path) -> None:
    made = decided(repository, mode="prebuilt", sources=Sources())
    assert [task.how for task in made.tasks if task.extension == "pytorch_cluster"] == ["nothing"]
    without = Sources(left_out={"pytorch_cluster": "no archive", "pytorch_scatter": "no archive"})
    made = decided(repository, mode="auto", sources=without)
    assert {task.extension: (task.how, task.reason) for task in made.tasks} == {
        "pytorch_scatter": ("repackage", "torch_scatter-2.1.2.whl"),
        "pytorch_cluster": ("nothing", "no archive"),
    }


def test_several_tasks_move_at_once_a_line_each() -> None:
    shown = live()
    for task in ("pytorch_scatter-py312", "pytorch_sparse-py312", "pyg-lib-abi3"):
        shown(events.TaskStarted(task=task, step="build"))
    shown(events.InTask(task="pytorch_scatter-py312", event=progress(4)))
    shown(events.InTask(task="pyg-lib-abi3", event=events.PhaseStarted(phase="configure", package="pyg-lib")))
    lines = shown.lines().plain.splitlines()
    assert len(lines) == 3
    assert "4/8  30 s left  pytorch_scatter-py312" in lines[0]
    assert "environment  pytorch_sparse-py312" in lines[1]
    assert "configure  pyg-lib-abi3" in lines[2]
    shown(events.TaskEnded(task="pytorch_sparse-py312", status="built"))
    assert len(shown.lines().plain.splitlines()) == 2


def test_of_many_tasks_some_are_counted_only() -> None:
    shown = live()
    for number in range(11):
        shown(events.TaskStarted(task=f"task-{number}", step="build"))
    assert shown.lines().plain.splitlines()[-1].startswith("and 3 more")


def test_without_a_terminal_a_task_that_is_done_compiling_says_so() -> None:
    text = io.StringIO()
    shown = PlainReporter(Console(file=text, soft_wrap=True))
    shown(events.InTask(task="pytorch_scatter-py312", event=progress(3)))
    shown(events.InTask(task="pytorch_scatter-py312", event=progress(8)))
    assert text.getvalue().count("\n") == 1
    assert "pytorch_scatter 3.12: compile 8/8" in text.getvalue()


def test_a_failed_task_is_told_with_its_reason() -> None:
    line = narrate(events.TaskEnded(task="pytorch_sparse-py312", status="failed", message="no header"), SIGNS)
    assert line == "x pytorch_sparse-py312: no header"
    row = PackageResult(
        name="pytorch_sparse",
        version="0.6.18",
        build_string="cpu_mkl_py312_h0_100",
        status="failed",
        note="no header",
    )
    assert "  pytorch_sparse py3.12: no header" in package_lines([row], SIGNS)
