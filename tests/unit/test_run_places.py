"""What a task's worker gets of a run: mounted channels, options, jobs."""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
from small_files import write
from tiny import Tiny, build_with, make_channel

from groundwork.channel import Channel
from groundwork.job_pool import JobPool
from groundwork.machine import machine_platform
from groundwork.network import certificates
from groundwork.network.channel_logins import Login
from groundwork.redact import Mask
from megabuild.engine.job import Job, WorkerOptions
from megabuild.engine.supervisor import Place
from megabuild.isolation.base import Host, Isolation
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.plan.run_choices import RunChoices
from megabuild.run import pytorch, sandbox_paths
from megabuild.run.attempt import Attempt, RunContext
from megabuild.run.logfile import LogFile
from megabuild.run.package_build import PackageBuild
from megabuild.run.sandbox_paths import JobPart, make_job, make_place
from megabuild.run.shelf import Shelf
from megabuild.status.status import Status

pytestmark = pytest.mark.skipif(machine_platform() != "linux-64", reason="the tiny config is for linux-64")


@pytest.fixture(scope="module")
def tiny_channel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_channel(tmp_path_factory.mktemp("channel"))


@pytest.fixture
def tiny(tiny_channel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    build_with(tiny_channel, monkeypatch)
    return Tiny(output=tmp_path / "output", channel=tiny_channel)


@contextmanager
def started(tiny: Tiny, isolation: Isolation, **choices: Any) -> Iterator[RunContext]:
    outlook = tiny.outlook(**choices)
    state = outlook.options.state
    status = Status(outlook.options.run_name, state)
    with LogFile(state / "logs", "x", Mask({})) as log:
        yield RunContext(
            progress=outlook.progress,
            estimate=outlook.estimate,
            isolation=isolation,
            status=status,
            log=log,
        )


@pytest.mark.parametrize("spelling", ["path", "url", "text"])
def test_a_folder_of_packages_is_mounted_whatever_its_spelling(tiny: Tiny, spelling: str) -> None:
    folder = tiny.channel
    spelled = {
        "path": Channel.of_folder(folder),
        "url": Channel.parse(folder.as_uri()),
        "text": Channel.parse(str(folder)),
    }
    channels = (spelled[spelling], Channel.parse("https://c.example/x"))
    with started(tiny, Bubblewrap(root=Path("/"))) as run:
        options = run.plan.options
        attempt = Attempt(run, "x", options.state, jobs=1, stop=threading.Event())
        place = make_place(attempt, recipe=options.recipe, channels=channels)
    assert place.channels == ("file:///opt/megabuild/channel0", "https://c.example/x")
    assert [mount.source for mount in place.mounts if mount.target.endswith("/channel0")] == [folder]


def test_a_build_is_solved_for_the_machine_that_the_user_names(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the plan would be solved for one machine, and the build in a root folder or container for another."""
    monkeypatch.setenv("CONDA_OVERRIDE_ARCHSPEC", "x86_64_v2")
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "")
    monkeypatch.setenv("CONDA_OVERRIDE_GLIBC", "2.17")
    monkeypatch.setenv("CONDA_PREFIX", "/home/ann/env")
    with started(tiny, Bubblewrap(root=Path("/"))) as run:
        environment = replace(run.plan.environment, virtual_packages={"__glibc": "2.41"})
        run = replace(run, progress=replace(run.progress, plan=replace(run.plan, environment=environment)))
        attempt = Attempt(run, "x", run.plan.options.state, jobs=1, stop=threading.Event())
        place = make_place(attempt, recipe=run.plan.options.recipe, channels=())
    conda = {name: value for name, value in place.environment.items() if name.startswith("CONDA_")}
    assert conda == {
        "CONDA_OVERRIDE_ARCHSPEC": "x86_64_v2",
        "CONDA_OVERRIDE_CUDA": "",
        "CONDA_OVERRIDE_GLIBC": "2.41",  # of the root folder that the provider made
    }


@pytest.mark.parametrize("isolation", [Host(), Bubblewrap(root=Path("/"))], ids=lambda one: one.name)
def test_a_task_has_the_caches_of_its_isolation_and_the_values_of_its_job(
    isolation: Isolation, tiny: Tiny
) -> None:
    """A build with less rights writes none of the files that one on the host runs."""
    with started(tiny, isolation, optimization="0") as run:
        plan = run.plan
        login = Login(address="https://c.example/x", host="c.example", user="ann", password="secret")
        environment = replace(plan.environment, logins=(login,))
        zip_keys = (("blas_impl", "torch_source"),)
        config = replace(plan.options.config, zip_keys=zip_keys, build_platform="osx-64")
        plan = replace(plan, options=replace(plan.options, config=config), environment=environment)
        progress = replace(run.progress, plan=plan)
        run = replace(run, progress=progress)
        attempt = Attempt(run, "x", plan.options.state, jobs=1, stop=threading.Event())
        channels = (Channel.parse("https://c.example/x"),)
        place = make_place(attempt, recipe=plan.options.recipe, channels=channels)
        place.state.mkdir(parents=True, exist_ok=True)
        job = make_job(attempt, place, JobPart(), overrides={"blas_impl": ("mkl",), "python": ("3.12.*",)})
    mounts = {mount.target.rpartition("/")[2]: mount.source for mount in place.mounts}
    assert mounts["rattler"] == plan.options.unpacked_folder(isolation)
    assert mounts["ccache"] == plan.options.objects_folder(isolation)
    assert '"ann"' in place.logins
    variant = json.loads((place.state / sandbox_paths.VARIANT).read_text())
    assert (variant["blas_impl"], variant["python"]) == (["mkl"], ["3.12.*"])
    assert variant["torch_source"] == ["official"], "of the config: the job has all overrides"
    assert variant["zip_keys"] == [["blas_impl", "torch_source"]]
    assert (job.platform, job.build_platform) == ("linux-64", "osx-64")


@pytest.mark.parametrize("isolation", [Host(), Bubblewrap(root=Path("/"))], ids=lambda one: one.name)
def test_a_build_writes_its_own_folders_and_caches_and_reads_all_others(
    isolation: Isolation, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver and other builds use recipes, channels, sources and the launcher, too."""
    bundle = write(tmp_path / "ca.pem")
    monkeypatch.setattr(certificates, "system_bundle", lambda _: bundle)
    source = tmp_path / "source"
    torch = tmp_path / "torch"
    for folder in (source, torch):
        folder.mkdir()
    with started(tiny, isolation) as run:
        environment = replace(run.plan.environment, source=source)
        run = replace(run, progress=replace(run.progress, plan=replace(run.plan, environment=environment)))
        options = run.plan.options
        attempt = Attempt(run, "x", options.state, jobs=1, stop=threading.Event())
        place = make_place(
            attempt, recipe=options.recipes / "pyg" / "recipe.yaml", channels=[Channel.of_folder(tiny.channel)],
            more={"torch": torch}, written=["tree"],
        )  # fmt: skip
    writable = {mount.source for mount in place.mounts if mount.writable}
    own = {options.state / name for name in ("out", "tmp", "tree")}
    assert writable == {*own, options.objects_folder(isolation), options.unpacked_folder(isolation)}
    assert all(folder.is_dir() for folder in writable), "the isolation mounts them"
    read = {mount.source for mount in place.mounts if not mount.writable}
    assert read >= {source, torch, tiny.channel, options.recipes, options.state / "heavy-gate"}
    inside = {mount.source: isolation.path(mount.target, mount.source) for mount in place.mounts}
    assert (place.source, place.more) == (inside[source], {"torch": inside[torch]})
    assert place.recipe == f"{inside[options.recipes]}/pyg/recipe.yaml"
    trusted = {place.environment.get(name) for name in ("SSL_CERT_FILE", "GIT_SSL_CAINFO")}
    assert trusted == {inside.get(bundle)}, "programs on the host find the system's"
    assert place.python == (sys.executable if isolation.is_host else "python3")


def test_the_worker_of_pytorch_gets_the_runs_options(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """A field of WorkerOptions is filled by its name; its name and type must be those of a run's option."""
    choices = get_type_hints(RunChoices)
    assert {name: choices.get(name) for name in get_type_hints(WorkerOptions)} == get_type_hints(
        WorkerOptions
    )
    jobs: list[Job] = []
    writable: set[Path] = set()

    class Building(PackageBuild):
        def run(self, sandbox: Place, job: Job) -> tuple[Any, None]:
            jobs.append(job)
            writable.update(mount.source for mount in sandbox.mounts if mount.writable)
            return None, None

    monkeypatch.setattr(pytorch, "PackageBuild", Building)
    for keep_going in (True, False):
        with started(tiny, Bubblewrap(root=Path("/")), keep_going=keep_going) as run:
            build = pytorch.PyTorchBuild(run, Shelf(run.plan.options.state, queue.SimpleQueue()))
            build.work.run(3, threading.Event())
    assert [job.options.keep_going for job in jobs] == [True, False]
    assert {job.env["CPU_COUNT"] for job in jobs} == {"3"}
    assert {job.env["STAGING_FINGERPRINT"] for job in jobs} == {run.plan.staging.digest}
    assert run.plan.options.state / "tree" in writable, "the next run reuses it"
    assert set(build.work.provides) == set(run.plan.file_names)


def test_an_attempt_after_a_lack_of_memory_has_fewer_heavy_objects_at_once_and_is_measured(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates: list[str] = []
    parsers: list[object] = []

    class Building(PackageBuild):
        def run(self, sandbox: Place, job: Job) -> tuple[Any, None]:
            parsers.append(self._attempt.parser)
            gates.append((sandbox.state / "heavy-gate").read_text())
            return None, None

    monkeypatch.setattr(pytorch, "PackageBuild", Building)
    with started(tiny, Bubblewrap(root=Path("/"))) as run:
        jobs = replace(run.estimate.jobs, count=8)
        run = replace(run, estimate=replace(run.estimate, jobs=jobs, heavy_jobs=4))
        build = pytorch.PyTorchBuild(run, Shelf(run.plan.options.state, queue.SimpleQueue()))
        work = build.work
        work.run(8, threading.Event())
        work.run(work.budget.halve(), threading.Event())
    slots = [line for gate in gates for line in gate.splitlines() if line.startswith("slots=")]
    assert slots == ["slots='1 2 3 4'", "slots='1 2'"]
    assert build.parser is parsers[-1] is not parsers[0]


@dataclass(frozen=True, kw_only=True)
class NiceOptions(WorkerOptions):
    """Options of a worker with a further one."""

    nice: int = 0


def test_a_worker_of_each_task_gets_the_runs_options(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only PyTorch's worker has several packages, so that it alone can keep going."""
    monkeypatch.setattr(sandbox_paths, "worker_options", lambda _: NiceOptions(keep_going=True, nice=7))
    with started(tiny, Bubblewrap(root=Path("/"))) as run:
        options = run.plan.options
        attempt = Attempt(run, "x", options.state, jobs=1, stop=threading.Event())
        place = make_place(attempt, recipe=options.recipe, channels=())
        place.state.mkdir(parents=True, exist_ok=True)
        test = make_job(attempt, place, JobPart(tests=["a.conda"]), overrides={})
        torch = make_job(attempt, place, JobPart(keep_going=True), overrides={})
    assert test.options == NiceOptions(keep_going=False, nice=7)
    assert torch.options == NiceOptions(keep_going=True, nice=7)


@pytest.mark.parametrize("is_fixed", [False, True])
def test_a_build_takes_jobs_from_the_pool_of_its_command(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_fixed: bool
) -> None:
    """The pipe is mounted alone: with the folder, a build could reach the jobs of others."""
    jobs: list[Job] = []
    places: list[Place] = []

    class Building(PackageBuild):
        def run(self, sandbox: Place, job: Job) -> tuple[Any, None]:
            places.append(sandbox)
            jobs.append(job)
            return None, None

    monkeypatch.setattr(pytorch, "PackageBuild", Building)
    with JobPool(tmp_path / "pool", most=9, places=2, heavy_jobs=2) as pool:
        member = pool.join("tiny", is_fixed=is_fixed)
        with started(tiny, Bubblewrap(root=Path("/")), pool=member) as run:
            run = replace(run, estimate=replace(run.estimate, heavy_jobs=2))
            build = pytorch.PyTorchBuild(run, Shelf(run.plan.options.state, queue.SimpleQueue()))
            build.work.run(build.work.budget.acquire(last=True), threading.Event())
            gate = (run.plan.options.state / "heavy-gate").read_text()
    passing = {mount.target: mount.source for mount in places[0].passing_mounts}
    assert passing.pop("/opt/megabuild/locks") == member.locks
    assert "/opt/megabuild/locks/heavy-" in gate, "all configs share the slots of heavy compilers"
    assert jobs[0].env["CPU_COUNT"] == "4"
    assert run.estimate.jobs.count == 4
    assert not {mount.source for mount in places[0].mounts} & {member.pipe, member.locks}
    if is_fixed:
        assert passing == {}
        assert "MAKEFLAGS" not in jobs[0].env
    else:
        assert passing == {"/opt/megabuild/jobs": member.pipe}
        assert jobs[0].env["MAKEFLAGS"] == " -j --jobserver-auth=fifo:/opt/megabuild/jobs"


def test_a_test_of_a_package_takes_none(tiny: Tiny, tmp_path: Path) -> None:
    with JobPool(tmp_path / "pool", most=9, places=2, heavy_jobs=0) as pool:
        member = pool.join("tiny", is_fixed=False)
        with started(tiny, Bubblewrap(root=Path("/")), pool=member) as run:
            options = run.plan.options
            attempt = Attempt(run, "x", options.state, jobs=1, stop=threading.Event())
            place = make_place(attempt, recipe=options.recipe, channels=())
    assert not place.passing_mounts
    assert "MAKEFLAGS" not in place.environment


@pytest.mark.parametrize("named", [(), (0,), (2,), (3,), (0, 1, 2)], ids=str)
def test_rattler_build_gets_channels_in_the_variant_if_a_package_of_the_run_names_them(
    named: tuple[int, ...], tiny: Tiny
) -> None:
    """The fourth package is an extension's."""
    with started(tiny, Bubblewrap(root=Path("/"))) as run:
        items = []
        for number, item in enumerate([*run.plan.items, run.plan.items[0]]):
            package = replace(item.package, names_channels=number in named)
            items.append(replace(item, package=package))
        extension: Any = SimpleNamespace(items=items[3:])
        plan = replace(run.plan, items=tuple(items[:3]), extensions=(extension,))
        progress = replace(run.progress, plan=plan)
        run = replace(run, progress=progress)
        options = run.plan.options
        attempt = Attempt(run, "x", options.state, jobs=1, stop=threading.Event())
        place = make_place(attempt, recipe=options.recipe, channels=())
        place.state.mkdir(parents=True, exist_ok=True)
        job = make_job(attempt, place, JobPart(), overrides={})
    assert len(items) == 4
    assert job.named == bool(named)
