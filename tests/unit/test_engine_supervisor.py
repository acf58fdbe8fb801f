"""A worker under the supervisor: its lines and its outcome arrive, and none of its processes survives."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from groundwork import guard
from groundwork.errors import IsolationError, MegabuildError
from megabuild.engine import supervisor
from megabuild.engine.job import Job
from megabuild.engine.supervisor import TESTS, Place, end_strays, run_worker
from megabuild.engine.worker import LOGINS
from megabuild.isolation.base import Host, Mount

SLEEP = "import time; time.sleep(60)"
WORKER = f"""
import json, os, pathlib, sys
job, outcome = map(pathlib.Path, sys.argv[1:])
recipe = json.loads(job.read_text())["recipe"]
print(os.getpid(), recipe, "without an end of the line", sep="\\n", end="", flush=True)
if recipe == "endless":
    {SLEEP}
outcome.write_text(json.dumps(dict(ok=True, kind="", message="", passed=[recipe])))
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place whose worker builds nothing."""
    for program in ("groundwork/guard.py", "megabuild/engine/worker.py"):
        (tmp_path / program).parent.mkdir(parents=True)
    shutil.copy(guard.__file__, tmp_path / "groundwork")
    (tmp_path / "megabuild" / "engine" / "worker.py").write_text(WORKER)
    state = tmp_path / "state"
    state.mkdir()
    return Place(
        isolation=Host(), state=state, state_inside=str(state), packages_inside=str(tmp_path), python=sys.executable,
        site_inside=str(tmp_path), mounts=(),
    )  # fmt: skip


def job(recipe: str) -> Job:
    return Job(recipe=recipe, output_dir="", platform="linux-64", build_platform="linux-64")


def test_every_line_and_the_outcome_arrive(place: Place) -> None:
    lines: list[str] = []
    outcome = run_worker(place, job("short"), on_line=lines.append, on_tick=lambda: None)
    assert lines[1:] == ["short", "without an end of the line"]
    assert (outcome.ok, outcome.passed, outcome.returncode) == (True, ("short",), 0)


class Stopping(Host):
    """An isolation whose containers outlive their run."""

    def stop(self, name: str) -> None:
        print(name)


def test_what_a_killed_run_left_is_stopped_before_the_worker_starts(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    stopping = replace(place, isolation=Stopping())
    seen: list[str] = []
    run_worker(
        stopping, job("short"), on_line=lambda _: seen.append(capsys.readouterr().out), on_tick=lambda: None
    )
    assert seen[0] == f"{place.name}\n"
    assert capsys.readouterr().out == f"{place.name}\n", "and again at its end"


def test_other_users_cannot_read_the_variables_of_a_job(place: Place) -> None:
    run_worker(place, job("short"), on_line=print, on_tick=lambda: None)
    assert (place.state / "job.json").stat().st_mode & 0o777 == 0o600


class Refusing(Host):
    """An isolation that takes any end for its own failure."""

    def failure(self, returncode: int, *, output: str) -> MegabuildError | None:
        return IsolationError("cannot start", "x")


def test_an_isolation_that_cannot_start_the_worker_is_the_error(place: Place) -> None:
    """But a worker that has told its outcome was started, whatever its exit code seems to say."""
    refusing = replace(place, isolation=Refusing())
    assert run_worker(refusing, job("short"), on_line=print, on_tick=lambda: None).ok
    (place.state.parent / "megabuild/engine/worker.py").write_text("raise SystemExit(125)")
    with pytest.raises(IsolationError, match="cannot start"):
        run_worker(refusing, job("short"), on_line=print, on_tick=lambda: None)
    outcome = run_worker(place, job("short"), on_line=print, on_tick=lambda: None)
    assert (outcome.ok, outcome.returncode) == (False, 125)


def test_an_error_that_only_the_worker_prints_arrives(place: Place) -> None:
    lines: list[str] = []
    text = "import sys\nsys.stderr.write('its last words')\nraise SystemExit(3)\n"
    (place.state.parent / "megabuild/engine/worker.py").write_text(text)
    outcome = run_worker(place, job("short"), on_line=lines.append, on_tick=lambda: None)
    assert lines == ["its last words"]
    assert (outcome.ok, outcome.returncode) == (False, 3)


def test_an_error_of_the_driver_ends_the_worker(place: Place) -> None:
    lines: list[str] = []

    def stop() -> None:
        if lines:
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_worker(place, job("endless"), on_line=lines.append, on_tick=stop)
    assert time.monotonic() - started < 30
    assert not psutil.pid_exists(int(lines[0]))


def test_only_processes_of_this_state_are_ended(tmp_path: Path) -> None:
    state = tmp_path / "state"
    environments = [
        {"MEGABUILD_STATE": str(state)}, {"PREFIX": f"{state}/out/env"}, {"SRC_DIR": f"{state}/{TESTS}/a/work"},
        {"PREFIX": f"{state}-2/out/env"},
    ]  # fmt: skip
    processes = [
        subprocess.Popen([sys.executable, "-c", SLEEP], env=environ, start_new_session=True)
        for environ in environments
    ]
    try:
        assert end_strays(state, but=state / TESTS) == 2
        assert [process.poll() is None for process in processes] == [False, False, True, True]
        assert end_strays(state) == 1
        assert end_strays(state) == 0
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_worker_that_does_not_end_is_killed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its guard may be stopped, and cannot end it then."""
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", -2.5)
    lines: list[str] = []

    def stop() -> None:
        if lines:
            (child,) = psutil.Process().children()
            child.suspend()
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_worker(place, job("endless"), on_line=lines.append, on_tick=stop)
    assert time.monotonic() - started < 30
    assert not psutil.Process().children()
    with suppress(
        psutil.NoSuchProcess
    ):  # an orphan stays until the first process of the machine takes its end
        assert psutil.Process(int(lines[0])).status() == psutil.STATUS_ZOMBIE


class Started(Exception):
    """Raised in place of the start of a worker."""


class NotStarting(Host):
    """Notes the variables and mounts of a worker."""

    def command(self, *_: object, env: Mapping[str, str], mounts: Sequence[Mount], **__: object) -> list[str]:
        raise Started(dict(env), [mount.target for mount in mounts])


@pytest.mark.parametrize("logins", ["", "channel"])
def test_a_worker_has_its_packages_its_folder_and_a_marker(logins: str, tmp_path: Path) -> None:
    """Without byte code, which a build may not write; the next run ends processes with the marker."""
    place = Place(
        isolation=NotStarting(), state=tmp_path, state_inside="/state", packages_inside="/packages", python="python",
        site_inside="/site", logins=logins, mounts=[Mount(source=tmp_path, target="/a")],
        passing_mounts=[Mount(source=tmp_path, target="/jobs")],
    )  # fmt: skip
    job = Job(recipe="a", output_dir="", platform="linux-64", build_platform="linux-64")
    with pytest.raises(Started) as started:
        supervisor.run_worker(place, job, on_line=print, on_tick=lambda: None)
    wanted = {
        "PYTHONPATH": "/site",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": "/state/tmp",
        supervisor._MARKER: str(tmp_path),
    }
    if logins:
        wanted[LOGINS] = logins
    assert started.value.args == (wanted, ["/a", "/jobs", "/state/job.json"])


def test_each_state_folder_has_a_container_of_its_own(place: Place, tmp_path: Path) -> None:
    """Two output folders have one for each config; a run stops the container of its name before it starts."""
    names = {replace(place, state=tmp_path / output / "linux_64_cpu").name for output in ("one", "two")}
    assert len(names) == 2
