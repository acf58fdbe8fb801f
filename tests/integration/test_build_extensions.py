"""Whole runs with extensions: several at once, one limit, nothing twice, nothing lost."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from engines import bubblewrap
from small_files import write
from tiny import PACKAGES, Tiny, build_with, make_channel, provider

from groundwork.errors import IntegrityError, UsageError
from megabuild.configs.config import load
from megabuild.engine.supervisor import strays
from megabuild.isolation.engine import Engine
from megabuild.plan import extensions, planning
from megabuild.plan.options import Options
from megabuild.plan.run_choices import PygMode
from megabuild.run.plan_report import plan_document, plan_lines
from megabuild.run.summary import Summary, package_lines
from megabuild.status.status import Task
from pyg_extensions import find_wheel
from pyg_extensions.find_wheel import Choice

ROOT = Path(__file__).resolve().parent.parent / "data" / "tiny_pyg"
LOG = "compilers.log"


class TinyPyg(Tiny):
    """One output folder with what it takes to run the tiny megabuild with extensions there."""

    def options(self, **choices: Any) -> Options:
        """Options of a run for three compilers."""
        values = {
            "cache": self.output / "cache",
            "engine": Engine.HOST,
            "pyg": PygMode.SOURCE,
            "cpu_count": 3,
            **choices,
        }
        return Options(config=load(self.root, "tiny_pyg"), root=self.root, output=self.output, **values)

    def most_compilers(self) -> int:
        """Most compilers that ran at once."""
        now = most = 0
        for line in self.compiles():
            now += 1 if line.startswith("begin") else -1
            most = max(most, now)
        return most

    def compiles(self) -> list[str]:
        """Lines of the compilers' log: ``begin pytorch_scatter-3.11``."""
        log = self.output.parent / LOG
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyPyg:
    """A megabuild of seconds with extensions: real compiles by a real ninja, against empty packages."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    program = shutil.which("ninja", path=path)
    if not program:
        pytest.skip("there is no ninja")
    channel = make_channel(tmp_path / "channel")
    build_with(channel, monkeypatch)
    own = {"TINY_NINJA": program, "TINY_LOG": str(tmp_path / LOG), "TINY_SECONDS": "0.2"}
    for name, value in {**own, "TORCH_CCACHE": "no-such-cache"}.items():
        monkeypatch.setenv(name, value)
    # packages are not looked into, since they hold no real extensions
    monkeypatch.setattr(find_wheel, "check_package", lambda package, **expected: None)
    shutil.copytree(ROOT, tmp_path / "root")
    return TinyPyg(output=tmp_path / "output", channel=channel, root=tmp_path / "root")


def statuses(summary: Summary) -> dict[str, str]:
    """Status of the extensions: ``scatter 3.11``."""
    return {
        f"{row.package.name.removeprefix('pytorch_')} {row.package.build_string.split('_')[1]}": row.status
        for row in summary.packages
        if row.package.name.startswith("pytorch_")
    }


def test_a_changed_script_or_dependency_builds_an_extension_again_but_not_pytorch(
    tiny: TinyPyg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = tiny.root / "recipe" / "pyg" / "pytorch_cluster" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("  host:\n", "  host:\n    - tool\n"))
    cluster: dict[str, Any] = {"pythons": ("3.11",), "extensions": ("cluster",)}
    tiny.run(**cluster)
    with (tiny.root / "recipe" / "pyg" / "common" / "build.sh").open("a") as file:
        file.write("# nothing\n")
    assert [row.status for row in tiny.run(**cluster).packages] == ["skipped", "skipped", "built"]
    newer = make_channel(tmp_path / "newer", (*PACKAGES, ("tool", "1.1", "0")))
    monkeypatch.setattr(planning, "choose_provider", provider(newer))
    assert statuses(tiny.run(**cluster)) == {"cluster py311": "built"}


def test_an_extension_that_another_ones_test_needs_comes_with_it_and_is_published_first(
    tiny: TinyPyg,
) -> None:
    summary = tiny.run(pythons=("3.12",), extensions=("sparse",))
    assert statuses(summary) == {"scatter py312": "built", "sparse py312": "built"}
    begun = [text.removesuffix(": started") for text in tiny.sentences() if text.endswith(": started")]
    assert begun == ["pytorch_scatter-py312", "pytorch_sparse-py312"]


def test_a_failure_stops_only_what_needs_it_and_the_next_run_builds_that_alone(
    tiny: TinyPyg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_FAIL", "pytorch_scatter-3.11")
    summary = tiny.run()
    assert not summary.ok
    left = [name for name, status in statuses(summary).items() if status != "built"]
    assert left == ["scatter py311", "sparse py311"]
    notes = {row.package.name: row.note for row in summary.packages if row.note}
    assert "error: pytorch_scatter does not compile" in notes["pytorch_scatter"]
    assert "pytorch_scatter-py311" in notes["pytorch_sparse"]
    assert any("pytorch_scatter-py311" in line for line in package_lines(summary.packages))
    assert tiny.most_compilers() == 3
    monkeypatch.delenv("TINY_FAIL")
    compiled = len(tiny.compiles())
    summary = tiny.run()
    assert summary.ok
    assert len(tiny.compiles()) == compiled + 2 * 4 * 2  # of the two that there were not, and nothing else
    assert len(statuses(summary)) == 6
    repodata = json.loads((tiny.options().packages / "linux-64" / "repodata.json").read_text())
    assert {row.path.rpartition("/")[2] for row in summary.packages} == set(repodata["packages.conda"])
    logs = [
        path.read_text() for path in tiny.options().state.glob("pyg/pytorch_scatter-py312/logs/*-py312-*.log")
    ]
    assert any("::megabuild:: phase compile" in text for text in logs)
    assert "phase compile" not in tiny.log_text()
    assert set(statuses(tiny.run()).values()) == {"skipped"}
    assert not tiny.phases()


@pytest.mark.parametrize("engine", ["host", "bubblewrap"])
def test_the_object_that_failed_is_named_and_can_be_compiled_alone_in_its_environment(
    tiny: TinyPyg, engine: str
) -> None:
    if engine == "bubblewrap":
        bubblewrap()
    script = tiny.root / "recipe" / "pyg" / "common" / "build.sh"
    script.write_text(
        script.read_text()
        .replace("objects=()", 'objects=(); broken="#error on purpose"')
        .replace(
            'echo "int f$number() { return $number; }" >"f$number.cc"',
            'printf "int x;\\n${broken}\\nint f$number() { return 0; }\\n" >"f$number.cc"; broken=',
        )
    )
    summary = tiny.run(pythons=("3.11",), extensions=("scatter",), engine=engine)
    (details,) = summary.failures
    failure = details.to_dict()
    assert (failure["kind"], failure["file"], failure["line"]) == ("compiler", "f1.cc", 2)
    assert (failure["package"], failure["phase"], failure["outputs"]) == (
        "pytorch_scatter",
        "compile",
        "f1.o",
    )
    (note,) = (row.note for row in summary.packages if row.note)
    assert "f1.cc:2: error: #error on purpose" in note
    assert json.loads((tiny.options().state / "run.json").read_text())["failures"] == [failure]
    again, enter = str(failure["again"]), str(failure["enter"])

    def run(*command: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)

    assert ("bwrap" in Path(again).read_text()) == (engine == "bubblewrap")
    failed = run(again)
    assert "f1.cc:2:2: error: #error on purpose" in failed.stderr
    assert failed.returncode != 0
    assert "succeeds" not in failed.stdout
    source = next(tiny.options().state.glob("pyg/*/out/bld/*/work/f1.cc"))
    source.write_text("int f1() { return 1; }\n")
    mended = run(again)
    assert mended.returncode == 0
    assert "succeeds now" in mended.stdout
    assert source.with_name("f1.o").is_file()
    inside = run(enter, given="echo name=$PKG_NAME; ls f1.o; exit 7\n")
    assert "name=pytorch_scatter\nf1.o\n" in inside.stdout
    assert inside.returncode == 7
    script.write_text((ROOT / "recipe" / "pyg" / "common" / "build.sh").read_text())
    assert tiny.run(pythons=("3.11",), extensions=("scatter",), engine=engine).ok
    assert not Path(again).exists(), "they lead nowhere any more"
    assert not Path(enter).exists()


def test_what_cannot_be_built_or_is_not_what_it_should_be_is_not_published(
    tiny: TinyPyg, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(package: Path, **expected: object) -> None:
        raise IntegrityError("compiled without CUDA", "rebuild with FORCE_CUDA=1")

    monkeypatch.setattr(find_wheel, "check_package", refuse)
    recipe = tiny.root / "recipe" / "pyg" / "pytorch_cluster" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("  host:\n", "  host:\n    - nosuchlibrary\n"))
    summary = tiny.run(pythons=("3.11",), extensions=("cluster", "scatter"))
    assert statuses(summary) == {"cluster py311": "failed", "scatter py311": "failed"}
    notes = {row.package.name: row.note for row in summary.packages}
    assert "nosuchlibrary" in notes["pytorch_cluster"]
    assert notes["pytorch_scatter"] == "compiled without CUDA"
    assert not list((tiny.options().packages / "linux-64").glob("pytorch_*"))
    assert "FORCE_CUDA=1" in str(tiny.sentences(logging.ERROR))


def test_a_file_that_a_published_package_owns_is_refused_in_another_one(tiny: TinyPyg) -> None:
    with (tiny.root / "recipe" / "pyg" / "common" / "build.sh").open("a") as script:
        script.write('mkdir "$PREFIX/share/pyg"\ntouch "$PREFIX/share/pyg/common"\n')
    summary = tiny.run(pythons=("3.11",), extensions=("cluster", "scatter"))
    assert sorted(statuses(summary).values()) == ["built", "failed"]
    (refused,) = (row.note for row in summary.packages if row.note)
    assert "share/pyg/common (pytorch_cluster, pytorch_scatter)" in refused
    assert len(list((tiny.options().packages / "linux-64").glob("pytorch_*"))) == 1


def test_a_worker_killed_for_want_of_memory_is_started_once_more_and_its_jobs_are_not_lost(
    tiny: TinyPyg, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = itertools.count()  # the kernel's, one more at every look
    monkeypatch.setattr("groundwork.machine.kernel_kills", lambda: next(kills))
    killed: list[str] = []
    advance = Task.advance

    def kill(task: Task, done: int, total: int) -> None:
        advance(task, done, total)
        if task.name.startswith("pytorch_") and not killed:
            killed.append(task.name)
            for process in strays(tiny.options().state / "pyg" / task.name):
                with contextlib.suppress(psutil.Error):
                    process.kill()  # the engine, ninja and its compilers: nobody gives a job back

    monkeypatch.setattr(Task, "advance", kill)
    assert tiny.run(rehearse=False, pythons=("3.11",)).ok
    begun = [text.removesuffix(": started") for text in tiny.sentences() if text.endswith(": started")]
    assert [begun.count(task) for task in killed] == [2]
    assert len(begun) == 4
    assert any("retrying" in text for text in tiny.sentences(logging.WARNING))


def test_the_plan_says_what_becomes_of_every_extension(tiny: TinyPyg) -> None:
    assert not tiny.plan(rehearse=True).extensions
    assert not tiny.plan(pyg=PygMode.NONE).extensions
    outlook = tiny.outlook(pythons=("3.11",), extensions=("torch_scatter",))
    (line,) = (line for line in plan_lines(outlook) if line.startswith("pytorch_scatter 2.1.2 py3.11  "))
    assert "compile" in line
    document = json.loads(json.dumps(plan_document(outlook)))["extensions"]
    assert [task["how"] for task in document["tasks"]] == ["compile"]
    with pytest.raises(UsageError, match="nosuch"):
        tiny.plan(extensions=("nosuch",))
    with pytest.raises(UsageError, match="for CPUs"):
        tiny.plan(arch_list="9.0;12.0")


def test_a_wheel_that_fits_is_repackaged_without_a_compiler_and_another_one_makes_another_package(
    tiny: TinyPyg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = write(tmp_path / "wheels" / "torch_cluster-1.6.3.whl", "one")
    choice = Choice(wheel=wheel, reason=wheel.name)
    monkeypatch.setattr(extensions, "choose_wheel", lambda *_: choice)

    def run() -> dict[str, str]:
        return statuses(tiny.run(pyg=PygMode.AUTO, pythons=("3.11",), extensions=("cluster",)))

    assert run() == {"cluster py311": "built"}
    assert run() == {"cluster py311": "skipped"}
    wheel.write_text("two")
    assert run() == {"cluster py311": "built"}
    assert not tiny.compiles()
