"""In which order a run publishes, records and uploads, so that a kill or an error in between does no harm."""

from __future__ import annotations

import logging
import os
import queue
import shutil
import subprocess
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from small_files import write
from test_run_places import started
from test_run_places import tiny as tiny
from test_run_places import tiny_channel as tiny_channel
from tiny import Tiny, kept_sentences, make_package, publish

from groundwork import channel_folder, files, in_use
from groundwork.channel import Channel
from groundwork.error_patterns import ErrorKind
from groundwork.error_report import FirstError
from groundwork.errors import (
    BuildError,
    DeadlineError,
    Interrupted,
    IsolationError,
    MegabuildError,
    OutOfSpaceError,
    PreflightError,
    SwapRefused,
)
from groundwork.jobs import Budget
from groundwork.names import PackageId
from groundwork.redact import Mask
from megabuild.engine import archive, output_folder
from megabuild.engine.job import Outcome, OutcomeKind
from megabuild.engine.supervisor import TESTS, Place
from megabuild.isolation.base import Host
from megabuild.plan import object_cache, tree_reuse
from megabuild.plan.plan import Method
from megabuild.plan.tree_reuse import TreeUse
from megabuild.run import (
    attempt,
    driver,
    extension,
    failure_shell,
    package_build,
    preflight,
    pytorch,
    session,
    store_transfer,
)
from megabuild.run.attempt import Attempt
from megabuild.run.build_output import BuildStep, Culprit, StepKind
from megabuild.run.driver import Driver
from megabuild.run.graph import TaskResult
from megabuild.run.launcher import COMPILER_LAUNCHER
from megabuild.run.package_build import PackageBuild
from megabuild.run.package_test import _find_needs, package_test
from megabuild.run.progress import Progress
from megabuild.run.session import execute
from megabuild.run.shelf import Shelf
from megabuild.run.summary import ResultStatus, name_of_test
from megabuild.status.record import PackageState, RunStatus
from megabuild.status.status import Status
from megabuild.store import published
from pyg_extensions import find_wheel
from pyg_extensions.install import installer
from pyg_extensions.sources import BASE
from pyg_extensions.table import EXTENSIONS, find


@pytest.mark.parametrize(
    ("error", "steps"),
    [
        (None, ["build", "upload"]),
        (BuildError("x"), ["build", "upload"]),
        (OutOfSpaceError("x"), ["build"]),
        (DeadlineError("x"), ["build"]),
        (KeyboardInterrupt(), ["build"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_finished_is_uploaded_after_the_build_also_after_an_error(
    error: BaseException | None, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def build() -> None:
        done.append("build")
        if error is not None:
            raise error

    monkeypatch.setattr(store_transfer, "put", lambda *_: done.append("upload"))
    plan = SimpleNamespace(options=SimpleNamespace(deadline=None))
    run = SimpleNamespace(_build=build, _plan=plan, status=None, _progress=SimpleNamespace(is_done=False))
    if error is None:
        Driver.go(cast(Any, run))
    else:
        with pytest.raises(type(error)):
            Driver.go(cast(Any, run))
    assert done == steps
    run._progress.is_done = True
    done.clear()
    Driver.go(cast(Any, run))
    assert done == ["upload"], "an upload that failed is retried by a run with nothing to build"


def test_after_the_deadline_nothing_is_uploaded_whatever_failed_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build() -> None:
        raise BuildError("x")

    monkeypatch.setattr(store_transfer, "put", lambda *_: pytest.fail("no time is left"))
    plan = SimpleNamespace(options=SimpleNamespace(deadline=SimpleNamespace(left=-1.0)))
    run = SimpleNamespace(_build=build, _plan=plan, status=None, _progress=SimpleNamespace(is_done=False))
    with pytest.raises(BuildError):
        Driver.go(cast(Any, run))


@pytest.mark.parametrize("left", [None, 60.0])
def test_what_a_failed_run_has_finished_is_uploaded_while_there_is_time(
    left: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def build() -> None:
        raise BuildError("x")

    monkeypatch.setattr(store_transfer, "put", lambda *_: done.append("upload"))
    deadline = None if left is None else SimpleNamespace(left=left)
    plan = SimpleNamespace(options=SimpleNamespace(deadline=deadline))
    run = SimpleNamespace(_build=build, _plan=plan, status=None, _progress=SimpleNamespace(is_done=False))
    with pytest.raises(BuildError):
        Driver.go(cast(Any, run))
    assert done == ["upload"]


def test_channels_and_the_status_name_a_package_only_when_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package with the path of a published one is not published at all."""
    here = SimpleNamespace(path=SimpleNamespace(name="a.conda"))
    other = SimpleNamespace(path=SimpleNamespace(name="b.conda"))
    done: list[str] = []

    def check(archives: list[object]) -> None:
        assert archives == [here, other]
        done.append("check")

    def publish(channel: Path, archives: list[object], **facts: object) -> dict[str, Any]:
        assert (channel, archives) == (tmp_path, [here])
        assert facts == {
            "platform": "linux-64", "fingerprints": {"a.conda": "f", "b.conda": "g"}, "seconds": {"a.conda": 7.0},
            "is_tested": True, "awaited": {"a.conda": "tests"},
        }  # fmt: skip
        done.append("publish")
        return {"a.conda": SimpleNamespace(size=1)}

    monkeypatch.setattr(archive, "check_owners", check)
    monkeypatch.setattr(published, "publish", publish)
    options = SimpleNamespace(packages=tmp_path, config=SimpleNamespace(platform="linux-64"))
    items = [
        SimpleNamespace(file_name=name, fingerprint=key) for name, key in (("a.conda", "f"), ("b.conda", "g"))
    ]
    run = SimpleNamespace(
        _plan=SimpleNamespace(options=options, all_items=items, untested=""), _other_archives=lambda names: [other],
        _archives={}, note_channels=lambda: done.append("channels"), _log=SimpleNamespace(write=lambda *_: None),
        status=SimpleNamespace(set_packages=lambda *_: done.append("status")),
        _progress=SimpleNamespace(awaited_tests={"a.conda": "tests"}),
    )  # fmt: skip
    result = TaskResult(archives=[cast(Any, here)], seconds={"a.conda": 7.0})
    Driver._publish_archives(cast(Any, run), result)
    assert done == ["check", "publish", "channels", "status"]
    assert set(run._archives) == {"a.conda", "b.conda"}


class FakeDriver(SimpleNamespace):
    """A run that ends with an error, or with this summary."""

    def __init__(self, end: BaseException | None, summary: Any, done: list[str]) -> None:
        def go() -> None:
            done.append("go")
            if end is not None:
                raise end

        super().__init__(go=go, summary=lambda error: summary, note_channels=lambda: done.append("channels"))


ENDS = [
    (None, True, RunStatus.DONE, 0),
    (None, False, RunStatus.FAILED, BuildError.exit_code),
    (BuildError("x"), False, RunStatus.FAILED, BuildError.exit_code),
    (OutOfSpaceError("x"), False, RunStatus.FAILED, OutOfSpaceError.exit_code),
    (DeadlineError("x"), False, RunStatus.INTERRUPTED, DeadlineError.exit_code),
    (KeyboardInterrupt("SIGTERM"), False, RunStatus.INTERRUPTED, Interrupted.exit_code),
    (ValueError("x"), False, RunStatus.FAILED, 70),
]


@pytest.mark.parametrize("full", [False, True], ids=["", "full disk"])
@pytest.mark.parametrize(("end", "ok", "status", "code"), ENDS, ids=lambda value: type(value).__name__)
def test_a_run_has_ended_when_its_summary_is_on_the_disk(
    end: BaseException | None, ok: bool, status: RunStatus, code: int, full: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Who follows it reads the summary then. A summary that cannot be written hides no other error."""
    done: list[str] = []

    def write_summary(path: Path) -> None:
        done.append(f"summary {path.name}")
        if full:
            raise OSError(28, "No space left")

    rows = [SimpleNamespace(status=status) for status in (ResultStatus.SKIPPED, ResultStatus.BUILT)]
    summary = SimpleNamespace(ok=ok, packages=rows, seconds=1.0, write=write_summary)
    monkeypatch.setattr(session, "Driver", lambda *_: FakeDriver(end, summary, done))
    output = tmp_path / "output"
    options = SimpleNamespace(output=output, state=output / "x", packages=tmp_path / "p", run_name="x")
    record = Status("x", options.state)
    ending = record.end

    def noted(*arguments: Any) -> None:
        done.append("end")
        ending(*arguments)

    monkeypatch.setattr(record, "end", noted)
    outlook = cast(Any, SimpleNamespace(options=options))
    if end is not None:
        expected = Interrupted if isinstance(end, KeyboardInterrupt) else type(end)
        with pytest.raises(expected):
            execute(outlook, record)
    elif full:
        with pytest.raises(OSError, match="No space"):
            execute(outlook, record)
        return
    else:
        execute(outlook, record)
    assert done == ["go", "channels", "summary run.json", "end"]
    assert in_use.is_marked(output), "else clean would leave the folders for ever"
    assert in_use.is_marked(options.state)
    assert (record.record.status, record.record.exit_code) == (status, code)


@pytest.mark.parametrize("kind", [BuildError, DeadlineError, Interrupted, ValueError])
def test_no_secret_is_in_the_message_of_a_runs_end(kind: type[Exception]) -> None:
    """Every user of the machine can read it in the run's record."""
    end = session._end_of(kind("https://x.example/hunter22: refused"), Mask({"A_TOKEN": "hunter22"}))
    assert end.message.endswith("https://x.example/***: refused")


def test_the_channel_for_extensions_has_the_plans_packages_alone_and_lists_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("former", "torn"):
        make_package(tmp_path / extension._TORCH / "linux-64", name, "1", "0")
    one = make_package(tmp_path / "published" / "linux-64", "one", "1", "0")
    built = [make_package(tmp_path / "built" / "linux-64", name, "1", "0") for name in ("two", "three")]
    monkeypatch.setattr(extension, "paths", lambda *_: [one])
    config = SimpleNamespace(platform="linux-64")
    options = SimpleNamespace(state=tmp_path, packages=tmp_path / "published", config=config)
    progress = SimpleNamespace(plan=SimpleNamespace(options=options), published_torch=[one.name])
    extension.make_torch_channel(cast(Any, progress), tmp_path / "built")
    channel = tmp_path / extension._TORCH
    expected = {f"linux-64/{path.name}": files.sha256(path) for path in (one, *built)}
    assert channel_folder.listed_hashes(channel) == expected
    found = channel_folder.package_files(channel)
    assert {path.relative_to(channel).as_posix() for path in found} == set(expected)


@pytest.mark.parametrize("kind", [OutcomeKind.TEST, OutcomeKind.KILLED], ids=["failed", "killed"])
def test_a_package_is_built_again_if_its_test_has_failed_not_if_it_was_killed(
    kind: OutcomeKind, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = Outcome(ok=False, kind=kind, message="x")
    monkeypatch.setattr(Attempt, "follow", lambda *_, **__: outcome)
    with started(tiny, Host()) as run:
        state = run.plan.options.state
        item, other = run.plan.items[:2]
        shelf = Shelf(state, queue.SimpleQueue())
        for each in (item.package, other.package):
            made = make_package(state / "out" / each.subdir, each.name, each.version, each.build_string)
            shelf.add(made, 1.0)
        run.status.plan({item.file_name: False})
        with kept_sentences() as said:
            result = package_test(run, Budget(1), shelf, item).run(1, threading.Event())
        shelf.drop_rejected()
    assert isinstance(result.error, MegabuildError)
    assert not [one for one in said if ": tested in" in one.getMessage()]
    left = {path.name for path in channel_folder.package_files(state / "out")}
    assert left == ({other.file_name} if kind is OutcomeKind.TEST else {item.file_name, other.file_name})
    assert len(shelf.copies()) == 2, "other tests use them"
    shown = run.status.record.packages[item.file_name]
    assert shown is PackageState.TESTING, "the graph may repeat a test that was killed"


def test_a_package_waits_for_the_tests_of_those_that_it_needs(tiny: Tiny) -> None:
    """It is published after its test: without libtorch, pytorch cannot be installed."""
    with started(tiny, Host()) as run:
        items = run.plan.items
        awaited: dict[str, list[str]] = {}
        for item in items:
            work = package_test(run, Budget(1), cast(Any, None), item)
            alternatives = [name for need in work.needs if not isinstance(need, str) for name in need]
            awaited[item.file_name] = [name for name in alternatives if name.startswith("test ")]
    library, *others = items
    assert awaited.pop(library.file_name) == []
    assert len(others) == 2
    assert awaited == {item.file_name: [name_of_test(library.file_name)] for item in others}


@pytest.mark.parametrize("kind", ["run", "test"])
def test_a_package_s_test_waits_for_the_packages_of_its_environment(kind: str, tiny: Tiny) -> None:
    """For those that it needs at run time, and for those that only its test needs."""
    needed: dict[str, Any] = {"run": (), "test": (), kind: ("tinylib",)}
    library, item = tiny.plan().items[:2]
    tested = replace(item, package=replace(item.package, **needed))
    run = SimpleNamespace(plan=SimpleNamespace(items=[library, tested]))
    work = package_test(cast(Any, run), Budget(1), cast(Any, None), tested)
    assert {tested.file_name, library.file_name} <= {*work.needs}


def test_a_test_waits_for_one_of_the_pythons_packages_and_for_each_variant_without_python() -> None:
    """If the package of one Python fails, a test that any Python's package serves is still done."""
    packages: list[tuple[str, str, str | None, str]] = [
        ("libtorch", "cpu_0", None, ""), ("libtorch", "cuda_0", None, ""), ("pytorch", "py311_0", "3.11", "libtorch"),
        ("pytorch", "py312_0", "3.12", "libtorch"), ("meta", "0", None, "pytorch"),
    ]  # fmt: skip
    items = []
    for name, build, python, needed in packages:
        file_name = f"{name}-1-{build}.conda"
        package = SimpleNamespace(
            id=PackageId(name, "1", build), file_name=file_name, python=python, run=needed.split()
        )
        items.append(SimpleNamespace(file_name=file_name, package=package))
    needs = [*_find_needs(cast(Any, items[-1].package), cast(Any, items), ["pytorch", "another"])]
    assert needs == [
        ("pytorch-1-py311_0.conda", "pytorch-1-py312_0.conda"), "libtorch-1-cpu_0.conda", "libtorch-1-cuda_0.conda"
    ]  # fmt: skip


def test_a_test_gets_this_runs_and_published_packages_whatever_a_killed_one_left(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []

    def follow(one: Attempt, *_: object) -> Outcome:
        channel = one.state / "channel"
        found = list(channel_folder.package_files(channel))
        names = {path.name for path in found}
        index = channel_folder.listed_hashes(channel)
        assert index is not None
        assert set(index) == {path.relative_to(channel).as_posix() for path in found}
        seen.append(names)
        return Outcome(ok=True, kind=OutcomeKind.OK, message="")

    monkeypatch.setattr(Attempt, "follow", follow)
    with started(tiny, Host()) as run:
        state = run.plan.options.state
        item = run.plan.items[0]
        package = item.package
        shelf = Shelf(state, queue.SimpleQueue())
        shelf.add(make_package(state / "out" / package.subdir, package.name, package.version,
                               package.build_string), 2.0)  # fmt: skip
        work = package_test(run, Budget(1), shelf, item)
        result = work.run(1, threading.Event())
        (archived,) = result.archives
        assert (archived.path.name, result.seconds) == (item.file_name, {item.file_name: 2.0})
        left = {path.name for path in (state / TESTS).iterdir()}
        assert left == {"built", "passed"}, "a passed test leaves no folder"
        short = f"{package.name}-{zlib.crc32(package.file_name.encode()):08x}"
        make_package(state / TESTS / short / "channel/linux-64", "former", "1", "0")
        other = run.plan.items[1].package
        former = make_package(
            tiny.output / "made" / other.subdir, other.name, other.version, other.build_string
        )
        publish(run.plan.options.packages, [former])
        resumed = replace(run, progress=replace(run.progress, existing=frozenset({other.file_name})))
        package_test(resumed, Budget(1), shelf, item).run(1, threading.Event())
    assert seen == [{item.file_name}, {item.file_name, other.file_name}]


def test_tests_of_two_pythons_packages_have_a_folder_each(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run at the same time, and each begins with an empty folder."""
    folders: list[Path] = []

    def follow(one: Attempt, *_: object) -> Outcome:
        folders.append(one.state)
        return Outcome(ok=True, kind=OutcomeKind.OK, message="")

    monkeypatch.setattr(Attempt, "follow", follow)
    with started(tiny, Host()) as run:
        state = run.plan.options.state
        shelf = Shelf(state, queue.SimpleQueue())
        items = [item for item in run.plan.items if item.package.python]
        for number, item in enumerate(items):
            package = item.package
            made = make_package(
                state / "out" / package.subdir, package.name, package.version, package.build_string
            )
            shelf.add(made, float(number))
        for number, item in enumerate(items):
            result = package_test(run, Budget(1), shelf, item).run(1, threading.Event())
            assert result.seconds == {item.file_name: float(number)}
    assert len({item.package.name for item in items}) < len(items)
    assert len({*folders}) == len(items)
    assert not run.status.record.activities, "tests that have ended are not shown"


def test_a_build_keeps_packages_of_the_plans_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, object] = {}

    def prepare(_: Path, **values: object) -> list[str]:
        given.update(values)
        return []

    monkeypatch.setattr(output_folder, "prepare_output", prepare)
    monkeypatch.setattr(package_build, "paths", lambda _, names: [*names])
    options = SimpleNamespace(packages=tmp_path, config=SimpleNamespace(platform="linux-64"))
    progress = SimpleNamespace(plan=SimpleNamespace(options=options), existing={"b.conda"})
    items = [
        SimpleNamespace(file_name=f"{name}.conda", fingerprint=f"of {name}", package=name)
        for name in ("a", "b")
    ]
    build = PackageBuild(
        cast(Any, SimpleNamespace(state=tmp_path)),
        cast(Any, progress),
        cast(Any, items),
        {},
        needs=["c.conda"],
    )
    assert given["inputs"] == {"a.conda": "of a", "b.conda": "of b"}
    assert given["published"] == ["c.conda", "b.conda"]
    assert build.missing == {"a.conda": cast(Any, "a")}


def test_a_package_that_is_built_again_under_its_name_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of former inputs is removed before the folder is looked at."""
    former = write(tmp_path / "out/linux-64/a-1-0.conda", "former")

    def prepare(*_: object, **__: object) -> list[str]:
        former.unlink()
        return []

    monkeypatch.setattr(output_folder, "prepare_output", prepare)
    monkeypatch.setattr(package_build, "paths", lambda *_: [])
    taken: list[Path] = []
    monkeypatch.setattr(PackageBuild, "_take_package", lambda _, path: taken.append(path))
    options = SimpleNamespace(packages=tmp_path, config=SimpleNamespace(platform="linux-64"))
    progress = SimpleNamespace(plan=SimpleNamespace(options=options), existing=set())
    item = SimpleNamespace(file_name=former.name, fingerprint="new", package="a")
    build = PackageBuild(
        cast(Any, SimpleNamespace(state=tmp_path)), cast(Any, progress), cast(Any, [item]), {}
    )
    write(former, "new")
    build._look()
    assert taken == [former]


def test_a_package_that_a_killed_run_left_is_tested_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not announced as built by this run."""
    left = write(tmp_path / "out/linux-64/a-1-0.conda")
    monkeypatch.setattr(output_folder, "prepare_output", lambda *_, **__: [f"linux-64/{left.name}"])
    monkeypatch.setattr(package_build, "paths", lambda *_: [])
    monkeypatch.setattr(PackageBuild, "_take_package", lambda *_: pytest.fail("it was there before"))
    options = SimpleNamespace(packages=tmp_path, config=SimpleNamespace(platform="linux-64"))
    progress = SimpleNamespace(plan=SimpleNamespace(options=options), existing=set())
    item = SimpleNamespace(file_name=left.name, fingerprint="same", package="a")
    shelf: dict[Path, float] = {}
    build = PackageBuild(
        cast(Any, SimpleNamespace(state=tmp_path)), cast(Any, progress), cast(Any, [item]), {left.name: 7.0},
        shelf=cast(Any, SimpleNamespace(add=shelf.__setitem__)),
    )  # fmt: skip
    build._look()
    assert shelf == {left: 7.0}


def test_the_time_of_the_compile_is_of_the_first_package_that_is_made_of_it() -> None:
    build = PackageBuild.__new__(PackageBuild)
    parser = SimpleNamespace(seconds_of=lambda *_, with_staging: 60.0 if with_staging else 1.0)
    build._attempt = cast(Any, SimpleNamespace(parser=parser))
    build._counted_staging = False
    packages = [("", None), ("libtorch", "3.12"), ("libtorch", None), ("libtorch", None)]
    took: list[float] = []
    for staging, python in packages:
        package = SimpleNamespace(id=None, staging=staging, python=python)
        took.append(build._seconds_of(cast(Any, package)))
    assert took == [1.0, 1.0, 60.0, 1.0]


def test_a_build_that_fails_seals_its_finished_staging(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run need not compile again."""

    def follow(one: Attempt, *_: object) -> Outcome:
        staging = one.state / "out/build_cache/staging_1"
        write(staging / "prefix/lib/libc10.so")
        write(staging / "metadata.json", "{}")
        return Outcome(ok=False, kind=OutcomeKind.KILLED, message="x")

    monkeypatch.setattr(Attempt, "follow", follow)
    with started(tiny, Host()) as run:
        state = run.plan.options.state
        build = pytorch.PyTorchBuild(run, Shelf(state, queue.SimpleQueue()))
        result = build.work.run(1, threading.Event())
    assert isinstance(result.error, MegabuildError)
    assert [path.name for path in output_folder.staging_caches(state / "out")] == ["staging_1"]
    assert (state / tree_reuse.LAST_STAGING).is_file(), "it outlives the tree and rattler-build's copy"


def test_each_step_of_a_build_is_shown_and_a_staging_sealed_before_packages_are_made_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is killed while it packs need not compile again."""
    done: list[object] = []
    monkeypatch.setattr(output_folder, "seal_stagings", lambda _: done.append("seal"))
    row = SimpleNamespace(
        phase=lambda text, level=None, expected=0.0: done.append((text, expected) if expected else text),
        advance=lambda *numbers: done.append(numbers),
    )
    status = SimpleNamespace(set_packages=lambda names, state: done.append((*names, state)))
    estimate = SimpleNamespace(compile_seconds=4500.0)
    run = SimpleNamespace(plan=SimpleNamespace(staged_name="libtorch"), status=status, estimate=estimate)
    attempt = SimpleNamespace(name="pytorch", phase="", row=row, run=run)
    build = PackageBuild.__new__(PackageBuild)
    build._attempt = cast(Any, attempt)
    build._out = tmp_path / "out"
    build.missing = {f"{name}.conda": cast(Any, SimpleNamespace(name=name)) for name in ("a", "b")}
    steps = [
        BuildStep(kind=StepKind.PHASE, phase="configure"),
        BuildStep(kind=StepKind.PHASE, phase="compile"),
        BuildStep(kind=StepKind.COUNT, done=1, total=2),
        BuildStep(kind=StepKind.PACKAGE, package="libtorch"),
        BuildStep(kind=StepKind.PHASE, package="pytorch", python="3.12", phase="compile"),
        BuildStep(kind=StepKind.PHASE, package="pytorch", python="3.12", phase="swap"),
        BuildStep(kind=StepKind.TEST, package="a"),
    ]
    build._take(steps)
    assert done == [
        "libtorch: configure", ("libtorch: compile", 4500.0), (1, 2), "seal", "libtorch: build script",
        "pytorch 3.12: compile", "pytorch 3.12: swap", "testing pytorch", ("a.conda", PackageState.TESTING),
    ]  # fmt: skip
    assert attempt.phase == "swap", "an error names it"


def test_a_new_package_is_announced_once_and_gets_its_place_on_the_shelf(tmp_path: Path) -> None:
    done: list[object] = []
    row = SimpleNamespace(phase=lambda *_, level: done.append(level))
    status = SimpleNamespace(set_packages=lambda names, state: done.append((*names, state)))
    parser = SimpleNamespace(seconds_of=lambda *_, with_staging: 90.04)
    build = PackageBuild.__new__(PackageBuild)
    build._attempt = cast(Any, SimpleNamespace(row=row, run=SimpleNamespace(status=status), parser=parser))
    build._out = tmp_path
    build._seen = {"former.conda"}
    build._seconds = {}
    build._counted_staging = False
    build._shelf = cast(Any, SimpleNamespace(add=lambda path, seconds: done.append((path.name, seconds))))
    package = SimpleNamespace(id=SimpleNamespace(label="a"), python="3.12", staging="")
    build.missing = {name: cast(Any, package) for name in ("a.conda", "former.conda")}
    for name in ("a", "former", "of another plan"):
        write(tmp_path / f"linux-64/{name}.conda")
    for _ in range(2):
        build._take(())
    assert done == [("a.conda", PackageState.BUILT), logging.DEBUG, ("a.conda", 90.0)]
    assert build._seconds == {"a.conda": 90.0}, "also for a later attempt"


@pytest.mark.parametrize(
    ("untested", "ok", "finished"),
    [("", True, ["b"]), ("", False, ["b"]), ("no emulator", True, ["a", "b"]), ("no emulator", False, ["b"])],
)
def test_a_package_is_finished_if_it_has_passed_its_tests(
    untested: str, ok: bool, finished: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others stay in the folder of a build: they need a package that was not built, or are of another run."""
    for name in ("a", "b", "elsewhere"):
        make_package(tmp_path / "out/linux-64", name, "1", "0")
    planned = {f"{name}-1-0.conda": SimpleNamespace(name=name, python=None) for name in ("a", "b")}
    monkeypatch.setattr(package_build, "finish", lambda attempt, package, *_: package.name)
    run = SimpleNamespace(plan=SimpleNamespace(untested=untested))
    attempt = SimpleNamespace(run=run, state=tmp_path, row=SimpleNamespace(phase=lambda _: None))
    build = SimpleNamespace(_attempt=attempt, _out=tmp_path / "out", missing=planned)
    outcome = SimpleNamespace(ok=ok, passed=["b-1-0.conda", "elsewhere-1-0.conda"])
    made: Sequence[object] = PackageBuild.finish(cast(Any, build), cast(Any, outcome))
    assert made == finished


def refused(swaps: list[BaseException | None], uses: list[TreeUse]) -> Callable[..., TaskResult]:
    def attempted(build: Any, *_: object) -> TaskResult:
        build.progress = SimpleNamespace(tree=SimpleNamespace(use=uses.pop(0)))
        error = swaps.pop(0)
        return TaskResult(seconds={}, error=cast(Any, error))

    return attempted


@pytest.mark.parametrize(
    ("error", "use", "retries"),
    [
        (SwapRefused("x"), TreeUse.REUSE, True),
        (SwapRefused("x"), TreeUse.RESUME, False),
        (BuildError("x"), TreeUse.REUSE, False),
        (None, TreeUse.REUSE, False),
    ],
)
def test_a_refused_swap_of_a_reused_tree_is_tried_again_without_the_staging(
    error: BaseException | None, use: TreeUse, retries: bool, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [error, BuildError("again")]
    monkeypatch.setattr(pytorch.PyTorchBuild, "_attempt", refused(errors, [use, TreeUse.RESUME]))
    with started(tiny, Host()) as run:
        state = run.plan.options.state
        write(state / "out/build_cache/staging_1/metadata.json", "{}")
        output_folder.seal_stagings(state / "out")
        build = pytorch.PyTorchBuild(run, Shelf(state, queue.SimpleQueue()))
        result = build.work.run(1, threading.Event())
    assert len(errors) == (0 if retries else 1)
    assert bool(output_folder.staging_caches(state / "out")) != retries
    if retries:
        assert str(result.error) == "again"
    else:
        assert result.error is error


CHECKS = ("check_build_path", "check_disk", "_check_memory", "_check_source", "check_caches", "Solver")


@pytest.mark.parametrize("failing", [*CHECKS, "the isolation", "a package"])
def test_each_check_before_a_run_ends_it(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(name: str) -> Callable[..., str]:
        def checked(*_: object) -> str:
            if name == failing:
                raise PreflightError(name)
            return ""

        return checked

    for name in CHECKS[:-1]:
        monkeypatch.setattr(preflight, name, check(name))
    solvers = iter([check("first"), check("a package")])
    built_with = SimpleNamespace(built_with=lambda package: next(solvers)())

    def solver(*_: object) -> Any:
        check("Solver")()
        return built_with

    monkeypatch.setattr(preflight, "Solver", solver)
    packages = [SimpleNamespace(package=SimpleNamespace(name=name)) for name in ("libtorch", "pytorch")]
    options = SimpleNamespace(state_inside=lambda _: Path("/x"), config=SimpleNamespace(platforms=None))
    plan = SimpleNamespace(options=options, items=packages, environment=None)
    isolation = SimpleNamespace(check=check("the isolation"))
    with pytest.raises(PreflightError, match=failing):
        preflight.check(cast(Any, plan), cast(Any, None), cast(Any, isolation))


@pytest.mark.parametrize(("full", "left", "error"), [
    (False, None, None), (False, 9.0, None), (True, None, OutOfSpaceError), (True, 9.0, OutOfSpaceError),
    (False, 0.0, DeadlineError), (False, -1.0, DeadlineError),
])  # fmt: skip
def test_a_full_disk_and_a_deadline_end_a_run(
    full: bool, left: float | None, error: type[MegabuildError] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "is_full", lambda _: full)
    monkeypatch.setattr(driver, "progress_of", lambda _: "")
    deadline = None
    if left is not None:
        deadline = SimpleNamespace(left=left, error=lambda _: DeadlineError("x"))
    options = SimpleNamespace(state=Path("/x"), deadline=deadline)
    shown: list[str] = []
    status = SimpleNamespace(publish=lambda: shown.append("status"), record=None)
    run = cast(Any, SimpleNamespace(status=status, _plan=SimpleNamespace(options=options)))
    if error is None:
        Driver._tick(run)
    else:
        with pytest.raises(error):
            Driver._tick(run)
    assert shown == ["status"]


def test_an_extension_that_cannot_be_made_has_failed_and_the_others_are_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    methods = {"a": Method.COMPILE, "b": Method.NOTHING, "c": Method.COMPILE, "d": Method.NOTHING}
    tasks = []
    for name, method in methods.items():
        tasks.append(
            SimpleNamespace(name=name, method=method, reason="no sources", file_names=[f"{name}.conda"])
        )
    monkeypatch.setattr(driver, "extension_work", lambda run, budget, task: task.name)
    run = SimpleNamespace(_failed={}, _progress=SimpleNamespace(missing_tasks=tasks))
    context = SimpleNamespace(budget=lambda tasks: None)
    works: list[Any] = Driver._extension_works(cast(Any, run), cast(Any, context))
    assert works == ["a", "c"]
    assert {name: error.packages for name, error in run._failed.items()} == {
        "b": {"b.conda"},
        "d": {"d.conda"},
    }


STEPS = ("separate", "fetch", "show", "check", "end_strays", "drop_unpacked", "record", "tasks")


@pytest.mark.parametrize("pending", [False, True], ids=["", "with a provider's environment"])
@pytest.mark.parametrize("done", [False, True], ids=["", "all fetched"])
def test_a_build_separates_fetches_checks_and_cleans_before_its_tasks(
    pending: bool, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work of isolated builds goes before something is fetched beside it; strays end before files are removed.

    A run that ends before its tasks leaves the record of the former run's environments.
    """
    steps: list[str] = []

    def step(name: str, result: Any = None) -> Callable[..., Any]:
        def made(*_: object) -> Any:
            steps.append(name)
            return result

        return made

    options = SimpleNamespace(state=Path("/x"), unpacked_folder=lambda _: Path("/x"))
    plan = SimpleNamespace(
        environment=SimpleNamespace(pending=pending), options=options, usable_isolation=lambda: None
    )
    before = SimpleNamespace(is_done=False, exists={}, plan=plan)
    after = SimpleNamespace(is_done=done, exists={}, plan=plan)
    monkeypatch.setattr(store_transfer, "fetch", step("fetch", after))
    monkeypatch.setattr(driver, "check", step("check"))
    monkeypatch.setattr(driver, "end_strays", step("end_strays", 0))
    monkeypatch.setattr(driver, "drop_unpacked", step("drop_unpacked"))
    monkeypatch.setattr(driver, "keep_record", step("record"))
    run = SimpleNamespace(
        _plan=plan, _progress=before, _estimate=None, status=None, _show_progress=step("show"),
        _prepare_environment=step("prepare"), _separate_work=step("separate"), _run_tasks=step("tasks"),
    )  # fmt: skip
    Driver._build(cast(Any, run))
    expected = ["prepare"] * pending + list(STEPS[:3] if done else STEPS)
    assert steps == expected, "shown again: the estimate counts from then on"
    assert run._progress is after


def test_a_program_enters_the_folder_of_the_package_that_failed(tmp_path: Path) -> None:
    """Packages of several Pythons have one name."""
    for number, build in enumerate(("py312_0", "py313_0")):
        text = f"export PKG_NAME='pytorch'\nexport PKG_BUILD_STRING='{build}'\n"
        path = write(tmp_path / f"out/bld/{build}/work/build_env.sh", text)
        os.utime(path, (number, number))
    for build in ("py312_0", "py313_0"):
        failed = Culprit(package="pytorch", build_string=build, what="", lines=[])
        assert failure_shell._find_work_folder(tmp_path, failed) == tmp_path / "out/bld" / build / "work"
    assert failure_shell._find_work_folder(tmp_path, failed._replace(build_string="py314_0")) is None
    again = write(tmp_path / "out/bld/again/work/build_env.sh", text)
    os.utime(again, (9, 9))
    assert failure_shell._find_work_folder(tmp_path, failed) == again.parent, (
        "a former attempt left the other"
    )


@pytest.mark.parametrize(
    ("outputs", "folder"),
    [("a/x.o b/y.o", "tree/build"), ("c/x.o", "work"), ("/c/x.o", None), ("../c/x.o", None)],
)
def test_a_failed_step_is_of_the_tree_if_its_object_can_be_there(
    outputs: str, folder: str | None, tmp_path: Path
) -> None:
    """A build prints the object's path: it may not lead elsewhere."""
    for place in ("tree/build/a", "work/a", "work/c", "c"):
        write(tmp_path / place / "../build.ninja")
    found = failure_shell._find_ninja_folder(tmp_path, tmp_path / "work", outputs)
    assert found == (tmp_path / folder if folder else None)


def test_programs_of_a_failure_have_the_variables_and_a_container_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of a container engine sets some, and both programs may run at once."""
    monkeypatch.setenv("DOCKER_HOST", "another")
    isolation = SimpleNamespace(
        environment=lambda _: {**os.environ, "DOCKER_HOST": "tcp://x"},
        interactive=lambda *_, name, **__: [f"run {name}"],
    )
    place = SimpleNamespace(isolation=isolation, mounts=(), state_inside="/in", name="x")
    texts: list[str] = []
    for name in ("enter", "again"):
        failure_shell.write_program(tmp_path / name, cast(Any, place), ["true"], name=name)
        texts.append((tmp_path / name).read_text())
    assert texts == [f"#!/bin/sh\nexport DOCKER_HOST=tcp://x\nrun x-{name}\n" for name in ("enter", "again")]


def test_a_failed_step_is_repeated_in_its_folder_with_the_variables_of_its_recipe(tmp_path: Path) -> None:
    """The scripts of some recipes enter another folder."""
    work = tmp_path / "out/bld/x/work"
    place = work / "build/CMakeFiles/place"
    variables = {"PKG_NAME": "x", "PKG_BUILD_STRING": "0", "RECIPE_DIR": f"{tmp_path}/recipe"}
    write(work / "build_env.sh", "".join(f"export {name}='{value}'\n" for name, value in variables.items()))
    write(tmp_path / "recipe/build_env.sh", "export STEP=7\ncd /\n")
    write(work / "build/build.ninja")
    place.parent.mkdir()
    sandbox = Place(
        isolation=Host(), state=tmp_path, state_inside=str(tmp_path), packages_inside="", python="", site_inside="",
        mounts=(),
    )  # fmt: skip
    error = FirstError(
        kind=ErrorKind.COMPILER, message="x", command=f"echo $STEP $PWD > {place}", outputs="CMakeFiles/a.o"
    )
    culprit = Culprit(package="x", build_string="0", what="", lines=[])
    shell = failure_shell.write_failure_shell(sandbox, culprit, error)
    assert shell.again is not None
    done = subprocess.run([shell.again], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert "this step succeeds now" in done.stdout
    assert place.read_text().split() == ["7", str(work / "build")]
    assert shell.enter is not None
    typed = f"echo $PKG_NAME $PWD > {place}"
    subprocess.run([shell.enter], input=typed, capture_output=True, text=True, check=True)
    assert place.read_text().split() == ["x", str(work)]


def test_a_run_counts_the_packages_that_a_repair_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run may have ended since the plan was made, too."""
    steps: list[str] = []
    options = SimpleNamespace(packages=tmp_path, state=tmp_path, config=SimpleNamespace(platform="linux-64"))
    plan = SimpleNamespace(options=options)
    now = SimpleNamespace(plan=plan, is_done=False, exists={"c.conda": True})

    def read(*given: object) -> Any:
        assert given == (plan, "found in the store")
        steps.append("read")
        return now

    def repair(*_: object) -> list[str]:
        steps.append("repair")
        return ["a.conda is damaged", "b.conda is missing"]

    monkeypatch.setattr(published, "repair", repair)
    monkeypatch.setattr(Progress, "read", read)
    outlook = SimpleNamespace(
        options=options,
        plan=plan,
        progress=SimpleNamespace(stored="found in the store"),
        estimate=SimpleNamespace(expected=7.0),
    )
    shown: list[object] = []
    status = SimpleNamespace(record=SimpleNamespace(log=""), plan=lambda *facts: shown.append(facts))
    log = SimpleNamespace(path=tmp_path / "log", become_latest=lambda: None)
    with kept_sentences() as said:
        run = Driver(cast(Any, outlook), cast(Any, log), cast(Any, status))
    assert steps == ["repair", "read"]
    assert shown == [({"c.conda": True}, 7.0)]
    warnings = [one.getMessage() for one in said if one.levelno == logging.WARNING]
    assert warnings == ["a.conda is damaged", "b.conda is missing"]
    assert run._progress is cast(Any, now)


@pytest.mark.parametrize(
    ("last", "keeps"), [(RunStatus.DONE, True), (RunStatus.FAILED, False), (None, False)]
)
def test_a_run_with_nothing_to_do_keeps_the_log_and_the_record_of_a_run_that_succeeded(
    last: RunStatus | None, keeps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = SimpleNamespace(packages=tmp_path, state=tmp_path, config=SimpleNamespace(platform="linux-64"))
    done = SimpleNamespace(plan=SimpleNamespace(options=options), is_done=True, exists={})
    monkeypatch.setattr(published, "repair", lambda *_: [])
    monkeypatch.setattr(Progress, "read", lambda *_: done)
    former = SimpleNamespace(record=SimpleNamespace(status=last) if last else None)
    monkeypatch.setattr(driver, "read_run_state", lambda _: former)
    outlook = SimpleNamespace(
        options=options,
        plan=done.plan,
        progress=SimpleNamespace(stored=None),
        estimate=SimpleNamespace(expected=0.0),
    )
    status = SimpleNamespace(record=SimpleNamespace(log=""), plan=lambda *_: None, keeps_file=None)
    log = SimpleNamespace(path=tmp_path / "log", become_latest=None)
    Driver(cast(Any, outlook), cast(Any, log), cast(Any, status))
    assert status.keeps_file is keeps


@pytest.mark.parametrize(
    ("use", "is_complete", "missing", "has_cache", "has_objects"),
    [
        (TreeUse.RESUME, True, None, False, True),
        (TreeUse.RESUME, False, 1, True, False),
        (TreeUse.RECOMPILE, False, None, True, False),
        (TreeUse.RECOMPILE, False, 9, True, False),
        (TreeUse.RECOMPILE, False, 1, True, True),
        (TreeUse.RECOMPILE, False, 1, False, False),
    ],
)
def test_objects_are_expected_if_it_is_known_which_are_missing(
    use: TreeUse, is_complete: bool, missing: int | None, has_cache: bool, has_objects: bool
) -> None:
    """Of nine: else a plan would promise minutes for hours."""
    tree = SimpleNamespace(use=use, is_complete=is_complete, missing=missing, objects=9)
    progress = SimpleNamespace(tree=tree, has_object_cache=has_cache)
    assert cast(Any, Progress.has_objects).fget(progress) is has_objects


def test_each_attempt_looks_at_what_is_published(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier one may have finished packages."""
    with started(tiny, Host()) as run:
        build = pytorch.PyTorchBuild(run, Shelf(run.plan.options.state, queue.SimpleQueue()))
        finished = SimpleNamespace(missing=())
        monkeypatch.setattr(Progress, "read", lambda _: finished)
        assert build._attempt(1, threading.Event()) == TaskResult(seconds={})
    assert build.progress is cast(Any, finished)


@pytest.mark.parametrize("source", [None, "/opt/megabuild/source"])
@pytest.mark.parametrize("digest", ["one", "two"])
def test_rattler_builds_staging_depends_on_the_plans(
    digest: str, source: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own key has the recipe and packages alone, not the source tree or the place."""
    monkeypatch.setattr(pytorch, "make_job", lambda attempt, sandbox, part, overrides: (part, overrides))
    plan = SimpleNamespace(
        environment=SimpleNamespace(overrides={"python": ("3.12",), "torch_source_path": ("/source",)}),
        options=SimpleNamespace(keep_going=False), staging=SimpleNamespace(digest=digest),
    )  # fmt: skip
    attempt = SimpleNamespace(run=SimpleNamespace(plan=plan))
    sandbox = SimpleNamespace(source=source, state_inside="/x")
    part, overrides = cast(Any, pytorch._job(cast(Any, attempt), cast(Any, sandbox), planned=["a.conda"]))
    assert part.env == {
        "STAGING_FINGERPRINT": digest, "TORCH_TREE": "/x/tree", "TORCH_CCACHE": f"/x/{COMPILER_LAUNCHER}",
    }  # fmt: skip
    assert (part.planned, part.test_built) == (["a.conda"], False), "other tasks test packages"
    assert overrides == {"python": ("3.12",), "torch_source_path": (source or "/source",)}


@pytest.mark.parametrize("objects_in", ["here", "another cache", "", None])
def test_a_staging_is_left_for_others_if_the_object_cache_still_has_its_objects(
    objects_in: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache may have been deleted and begun again since."""
    left: list[object] = []
    staging = None if objects_in is None else SimpleNamespace(objects_in=objects_in)
    monkeypatch.setattr(tree_reuse, "keep_last_staging", lambda *_: staging)
    identity = "here" if objects_in == "another cache" else objects_in
    monkeypatch.setattr(object_cache, "read_identity", lambda *_: identity)
    monkeypatch.setattr(pytorch, "keep_left_staging", lambda *given: left.append(given[-1]))
    pytorch._keep_staging(cast(Any, SimpleNamespace(options=SimpleNamespace(state=Path("/x")))), Host())
    assert left == ([staging] if objects_in == "here" else [])


@pytest.mark.parametrize("seconds", [0, 90])
def test_a_clock_that_was_set_back_is_a_warning(
    seconds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"class Mended:\n    seconds = {seconds}\ndef mend(tree):\n    return Mended\n"
    write(tmp_path / "tree_dates.py", text)
    monkeypatch.setattr(tree_reuse, "prepare_tree", lambda *_: None)
    monkeypatch.setattr(object_cache, "identify", lambda *_: "")
    monkeypatch.setattr(pytorch, "staging_sentence", lambda _: "")
    options = SimpleNamespace(state=tmp_path, recipes=tmp_path, own=True)
    progress: Any = SimpleNamespace(plan=SimpleNamespace(options=options, staging=None), tree=None)
    with kept_sentences() as kept:
        pytorch._prepare_tree(progress, Host())
    warnings = [one.getMessage() for one in kept if one.levelno == logging.WARNING]
    assert len(warnings) == bool(seconds)
    assert all("clock was set back" in text and "90 s" in text for text in warnings)


def test_programs_of_a_former_failure_go_before_a_worker_starts(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would enter a folder in which another package is built."""
    left: list[bool] = []
    with started(tiny, Host()) as run:
        state = run.plan.options.state
        programs = [write(state / name) for name in (failure_shell.ENTER, failure_shell.AGAIN)]

        def run_worker(*_: object, **__: object) -> Outcome:
            left.extend(path.exists() for path in programs)
            return Outcome(ok=True, kind=OutcomeKind.OK, message="")

        monkeypatch.setattr(attempt, "run_worker", run_worker)
        Attempt(run, "x", state, jobs=1, stop=threading.Event()).follow(cast(Any, None), cast(Any, None))
    assert left == [False, False]


@pytest.mark.parametrize("code", [0, 1, -9])
@pytest.mark.parametrize("text", ["", '{"ok": true, "kind": "", "message": ""}',
                                  '{"ok": false, "kind": "", "message": "x"}'])  # fmt: skip
def test_a_worker_has_succeeded_if_it_says_so_and_ends_with_success(
    text: str, code: int, tmp_path: Path
) -> None:
    path = tmp_path / "outcome.json"
    if text:
        path.write_text(text)
    assert Outcome.read(path, code).ok == ("true" in text and code == 0)


@pytest.mark.parametrize("fault", ["", "has no kernel for the GPU"])
def test_a_compiled_wheel_is_kept_when_it_is_verified(fault: str, tmp_path: Path) -> None:
    """A kept one is installed into the next environments without a compile."""
    made = write(tmp_path / "work/scatter/wheels/a.whl")
    kept = tmp_path / "kept"
    seen: list[bool] = []

    def find_fault(*_: object) -> str:
        seen.append((kept / "a.whl").exists())
        return fault

    request = SimpleNamespace(name="scatter", version="2", archs=())
    options = SimpleNamespace(jobs=1, progress=lambda _: None)
    ready = installer._Compile(source=tmp_path, environ={}, kept=kept)
    install = SimpleNamespace(
        _log=lambda _: tmp_path / "log", _ready={"scatter": ready}, _options=options, _report=list,
        _environment=SimpleNamespace(python="3.12"), _builder=SimpleNamespace(build=lambda *_: made),
        _fault=find_fault, _folder=tmp_path / "work",
    )  # fmt: skip
    if fault:
        with pytest.raises(BuildError, match=fault):
            installer._Installer._compile(cast(Any, install), cast(Any, request))
    else:
        assert installer._Installer._compile(cast(Any, install), cast(Any, request)) == kept / "a.whl"
    assert seen == [False]
    assert (kept / "a.whl").exists() == (not fault)


@pytest.mark.parametrize("failing", ["usable_isolation", "check_disk", ""])
def test_an_environment_is_made_when_its_disk_has_room_for_it(
    failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes gigabytes, and minutes."""
    steps: list[str] = []

    def step(name: str, result: Any = None) -> Callable[..., Any]:
        def made(*_: object) -> Any:
            steps.append(name)
            if name == failing:
                raise PreflightError(name)
            return result

        return made

    outlook = SimpleNamespace(progress="new", estimate="new")
    monkeypatch.setattr(driver, "check_disk", step("check_disk"))
    monkeypatch.setattr(driver, "make_plan", step("make_plan"))
    monkeypatch.setattr(driver, "look_ahead", step("look_ahead", outlook))
    environment = SimpleNamespace(root=None)
    plan = SimpleNamespace(environment=environment, usable_isolation=step("usable_isolation"), options=None)
    status = SimpleNamespace(note=None)
    run = SimpleNamespace(
        _plan=plan, _estimate=None, status=status, _show_progress=step("show"), _progress=None
    )
    order = ["usable_isolation", "check_disk", "make_plan", "look_ahead", "show"]
    if failing:
        with pytest.raises(PreflightError, match=failing):
            Driver._prepare_environment(cast(Any, run))
        assert steps == order[: order.index(failing) + 1]
    else:
        Driver._prepare_environment(cast(Any, run))
        assert steps == order
        assert (run._progress, run._estimate) == ("new", "new")


def test_a_package_is_compared_with_the_published_ones_of_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with its own former build, nor with packages of other inputs, which the run replaces."""
    names = ("own", "same", "read", "other", "missing")
    items = [SimpleNamespace(file_name=name, fingerprint="f") for name in names]
    records = {}
    for name in names[:-1]:
        records[name] = SimpleNamespace(fingerprint="g" if name == "other" else "f", path=f"linux-64/{name}")
    monkeypatch.setattr(published, "records", lambda _: records)
    monkeypatch.setattr(archive, "read", lambda path: f"read {path.name}")
    plan = SimpleNamespace(options=SimpleNamespace(packages=tmp_path), all_items=items)
    run = SimpleNamespace(_plan=plan, _archives={"same": "known"})
    others: list[Any] = Driver._other_archives(cast(Any, run), ["own"])
    assert others == ["known", "read read"]


@pytest.mark.parametrize("is_there", [(), ("a",), ("a", "b")], ids=str)
def test_tasks_are_done_if_all_of_their_packages_exist(is_there: tuple[str, ...]) -> None:
    task = SimpleNamespace(name="scatter")
    missing = [name for name in ("a", "b") if name not in is_there]
    progress = SimpleNamespace(existing=set(is_there), missing=missing, missing_tasks=(task,) * bool(missing))
    run = SimpleNamespace(_progress=progress, _plan=SimpleNamespace(extensions=[task]))
    done = Driver._done_tasks(cast(Any, run))
    tests = {name_of_test(name) for name in is_there}
    assert done == {*is_there, *tests} | ({"scatter", pytorch.NAME} if not missing else set())


@pytest.mark.parametrize("error", [None, BuildError("x"), KeyboardInterrupt()], ids=repr)
def test_the_folder_of_tests_is_empty_before_the_tasks_and_kept_after_an_error(
    error: BaseException | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed package stays there for its user; rejected ones leave the build's folder however the tasks end."""
    done: list[str] = []
    former = write(tmp_path / TESTS / "former")
    made = tmp_path / TESTS / "broken"

    def run_graph() -> None:
        assert not former.exists()
        write(made)
        done.append("graph")
        if error is not None:
            raise error

    def make_graph(*_: object, **how: object) -> Any:
        assert (how["keep_going"], how["failed"], how["publish"]) == (True, {"x": error}, "publish")
        return SimpleNamespace(run=run_graph)

    monkeypatch.setattr(driver, "Graph", make_graph)
    monkeypatch.setattr(published, "await_tests", lambda channel, awaited: done.append(awaited))
    options = SimpleNamespace(state=tmp_path, packages=tmp_path / "packages", keep_going=True)
    plan = SimpleNamespace(options=options)
    run = SimpleNamespace(
        _plan=plan, _progress=SimpleNamespace(plan=plan, awaited_tests="awaited"), _estimate=None, status=None,
        _log=None, _failed={"x": error},
        _torch_works=lambda _: [], _extension_works=lambda _: [], _done_tasks=set, _publish="publish", _inbox=None,
        _tick=None, _shelf=SimpleNamespace(drop_rejected=lambda: done.append("dropped")),
    )  # fmt: skip
    if error is None:
        Driver._run_tasks(cast(Any, run), cast(Any, None))
    else:
        with pytest.raises(type(error)):
            Driver._run_tasks(cast(Any, run), cast(Any, None))
    assert done == ["awaited", "graph", "dropped"]
    assert made.exists() == (error is not None)


@pytest.mark.parametrize("existing", [(), ("a",), ("a", "b"), ("a", "b", "c")], ids=str)
def test_each_missing_package_is_built_and_tested(
    existing: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channels: list[Path] = []
    monkeypatch.setattr(driver, "make_torch_channel", lambda _, built: channels.append(built))
    monkeypatch.setattr(driver, "package_test", lambda run, budget, shelf, item: item.file_name)
    monkeypatch.setattr(driver, "PyTorchBuild", lambda *_: SimpleNamespace(work="build"))
    items = [SimpleNamespace(file_name=name, package=SimpleNamespace(name=name)) for name in ("a", "b", "c")]
    plan = SimpleNamespace(options=SimpleNamespace(state=tmp_path), items=items)
    missing = [item.file_name for item in items if item.file_name not in existing]
    progress = SimpleNamespace(existing=existing, missing=missing)
    estimate = SimpleNamespace(jobs=SimpleNamespace(count=2))
    run = SimpleNamespace(_plan=plan, _progress=progress, _estimate=estimate, _shelf=None)
    works: list[Any] = Driver._torch_works(cast(Any, run), cast(Any, None))
    assert works == (["build", *missing] if missing else [])
    assert bool(channels) == (not missing), "extensions are built against the published ones"


def test_no_other_test_waits_for_pytorch_s_own_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budgets: dict[str, Budget] = {}
    monkeypatch.setattr(
        driver, "package_test", lambda run, budget, shelf, item: budgets.update({item.file_name: budget})
    )
    monkeypatch.setattr(driver, "PyTorchBuild", lambda *_: SimpleNamespace(work="build"))
    items: list[Any] = []
    for python in ("py311", "py312"):
        for name in ("pytorch", "pytorch-tests"):
            items.append(SimpleNamespace(file_name=f"{name} {python}", package=SimpleNamespace(name=name)))
    plan = SimpleNamespace(options=SimpleNamespace(state=tmp_path), items=items)
    run = SimpleNamespace(
        _plan=plan, _progress=SimpleNamespace(existing=(), missing=items), _shelf=None,
        _estimate=SimpleNamespace(jobs=SimpleNamespace(count=8)),
    )  # fmt: skip
    Driver._torch_works(cast(Any, run), cast(Any, None))
    assert budgets["pytorch-tests py311"] is budgets["pytorch-tests py312"]
    assert budgets["pytorch py311"] is budgets["pytorch py312"]
    assert [budgets["pytorch-tests py311"].acquire(last=False) for _ in range(2)] == [8, 0], "one at a time"
    assert [budgets["pytorch py311"].acquire(last=False) for _ in range(2)] == [4, 4]


@pytest.mark.parametrize(("name", "is_brief"), [("pytorch", True), ("pytorch-tests", False)])
def test_after_a_failure_tests_of_packages_are_finished_but_pytorch_s_own(name: str, is_brief: bool) -> None:
    """Built packages are published; PyTorch's own tests take hours."""
    package = SimpleNamespace(name=name, file_name="a-1-0.conda", run=(), test=())
    item = SimpleNamespace(package=package, file_name=package.file_name)
    run = SimpleNamespace(plan=SimpleNamespace(items=[item]))
    work = package_test(cast(Any, run), cast(Any, None), cast(Any, None), cast(Any, item))
    assert (work.vital, work.ends_others, work.brief) == (True, is_brief, is_brief)


@pytest.mark.parametrize(
    ("name", "error", "archives", "tasks", "channel"),
    [
        (pytorch.NAME, None, ["a"], ["scatter"], True),
        (pytorch.NAME, None, [], ["scatter"], True),
        (pytorch.NAME, None, ["a"], [], False),
        (pytorch.NAME, BuildError("x"), ["a"], ["scatter"], False),
        ("scatter", None, ["a"], ["scatter"], False),
        ("test a", BuildError("x"), [], ["scatter"], False),
    ],
)
def test_finished_packages_are_published_also_of_a_task_that_failed(
    name: str, error: BuildError | None, archives: list[str], tasks: list[str], channel: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    done: list[str] = []
    monkeypatch.setattr(driver, "make_torch_channel", lambda *_: done.append("channel"))
    progress = SimpleNamespace(missing_tasks=tasks)
    run = SimpleNamespace(
        _progress=progress,
        _shelf=SimpleNamespace(folder=None),
        _publish_archives=lambda _: done.append("publish"),
    )
    result = TaskResult(archives=cast(Any, archives), seconds={}, error=error)
    Driver._publish(cast(Any, run), cast(Any, SimpleNamespace(name=name)), result)
    assert done == ["publish"] * bool(archives) + ["channel"] * channel


@pytest.mark.parametrize("pending", [False, True])
def test_channels_are_recorded_when_they_exist(pending: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[object] = []
    monkeypatch.setattr(published, "note_channels", lambda *arguments: noted.append(arguments))
    environment = SimpleNamespace(pending=pending, channels=("c",))
    plan = SimpleNamespace(options=SimpleNamespace(packages="p"), environment=environment)
    Driver.note_channels(cast(Any, SimpleNamespace(_plan=plan)))
    assert noted == ([] if pending else [("p", ("c",))])


@pytest.mark.parametrize("error", ["", "x"])
@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("needs_staging", [True, False])
def test_only_a_run_of_pytorch_that_succeeded_is_a_measure_for_the_next(
    error: str, built: bool, needs_staging: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[object] = []
    monkeypatch.setattr(driver, "measure_run", lambda *values: values[-1])
    monkeypatch.setattr(driver, "keep_last_runs", lambda _, runs: kept.append(runs))
    completed: list[object] = []
    monkeypatch.setattr(driver, "mark_complete", completed.append)
    status = ResultStatus.BUILT if built else ResultStatus.FAILED
    rows = [SimpleNamespace(status=status, tested=tested) for tested in (True, False)]
    monkeypatch.setattr(driver, "package_results", lambda *_: tuple(rows))
    monkeypatch.setattr(driver, "install_line", lambda *_: "")
    config = SimpleNamespace(platform="linux-64")
    options = SimpleNamespace(run_name="x", packages=tmp_path, config=config)
    plan = SimpleNamespace(options=options, untested="no emulator")
    progress = SimpleNamespace(plan=plan, needs_staging=needs_staging, tree=SimpleNamespace(use=None))
    run = SimpleNamespace(
        _plan=plan, _progress=progress, _failed={}, _pytorch=None, _began=0.0,
        _log=SimpleNamespace(path=tmp_path), status=SimpleNamespace(seconds=5.0),
    )  # fmt: skip
    summary = Driver.summary(cast(Any, run), error)
    assert summary.ok == (built and not error)
    assert summary.untested == ("no emulator" if built else ""), "also of one package alone"
    assert bool(completed) == summary.ok
    assert kept == ([5.0] if summary.ok and needs_staging else [])


def test_a_summary_has_the_figures_of_the_last_attempt_and_all_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused swap has the staging made again."""
    monkeypatch.setattr(driver, "package_results", lambda *_: ())
    monkeypatch.setattr(driver, "install_line", lambda *_: "")
    options = SimpleNamespace(run_name="x", packages=tmp_path, config=SimpleNamespace(platform="linux-64"))
    plan = SimpleNamespace(options=options, untested="")
    progress = SimpleNamespace(plan=plan, needs_staging=True, tree=SimpleNamespace(use=TreeUse.REUSE))
    last = SimpleNamespace(
        parser=SimpleNamespace(staging_seconds=12.34, swaps={"3.12": {"steps": 4, "core": 0}}),
        progress=SimpleNamespace(tree=SimpleNamespace(use=TreeUse.RESUME)),
    )
    failed = {"a": BuildError("x"), "b": BuildError("y"), "c": BuildError("needs b")}
    for name in ("a", "b"):
        failed[name].failure = cast(Any, f"details of {name}")
    run = SimpleNamespace(
        _plan=plan, _progress=progress, _failed=failed, _pytorch=last, _began=0.0, _log=SimpleNamespace(path=tmp_path),
        status=SimpleNamespace(seconds=5.0),
    )  # fmt: skip
    summary = Driver.summary(cast(Any, run), "x")
    assert (summary.staging, summary.staging_seconds, summary.swaps) == (
        TreeUse.RESUME,
        12.3,
        last.parser.swaps,
    )
    assert [*map(str, summary.failures)] == ["details of a", "details of b"]


@pytest.mark.parametrize("isolation", ["host", IsolationError("x", "y")], ids=["host", "none"])
@pytest.mark.parametrize("done", [False, True])
def test_work_of_isolated_builds_goes_before_a_build_only(
    isolation: object, done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    separated: list[object] = []
    monkeypatch.setattr(driver, "separate_work", lambda _, isolation: separated.append(isolation))
    plan = SimpleNamespace(options=SimpleNamespace(state=Path("/x")), isolation=isolation)
    Driver._separate_work(cast(Any, SimpleNamespace(_plan=plan, _progress=SimpleNamespace(is_done=done))))
    assert separated == (["host"] if isolation == "host" and not done else [])


def test_an_extension_waits_for_the_tests_of_its_pythons_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    items = []
    for name, python in (("libtorch", None), ("py311", "3.11"), ("py312", "3.12"), ("linalg", None)):
        items.append(SimpleNamespace(file_name=name, package=SimpleNamespace(name=name, python=python)))
    own_tests = SimpleNamespace(name="pytorch-tests", python="3.12")
    items.append(SimpleNamespace(file_name="pytorch-tests py312", package=own_tests))
    run = SimpleNamespace(plan=SimpleNamespace(items=items))
    task = SimpleNamespace(
        name="sparse", base_python="3.12", method=Method.NOTHING, needs=("scatter",), cpu_seconds=1,
        extension="sparse", file_names=("a", "b"),
    )  # fmt: skip
    work = extension.extension_work(cast(Any, run), Budget(1), cast(Any, task))
    tests = [name_of_test(name) for name in ("libtorch", "py312", "linalg")]
    assert sorted(map(str, work.needs)) == sorted([pytorch.NAME, "scatter", *tests]), (
        "not for PyTorch's own tests"
    )
    assert work.packages == ("a", "b")


def test_an_extension_is_built_with_all_that_it_needs_and_checked_for_the_values_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []

    class Built(PackageBuild):
        def __init__(self, *_: object, needs: Sequence[str], **__: object) -> None:
            seen.append(list(needs))
            self.missing = {}

        def run(self, *_: object) -> Any:
            return None, None

        def finish(self, _: object) -> Any:
            return [SimpleNamespace(path=Path("x.conda"))]

    def make_place(_: object, *, channels: Sequence[Channel], **__: object) -> object:
        seen.append([channel.address for channel in channels])
        return SimpleNamespace(state_inside="/in", more={})

    monkeypatch.setattr(extension, "PackageBuild", Built)
    monkeypatch.setattr(extension, "make_place", make_place)
    monkeypatch.setattr(extension, "make_job", lambda *_, **__: None)
    monkeypatch.setattr(find_wheel, "check_package", lambda path, **expected: seen.append((path, expected)))
    addresses = ("https://a.example/x", "https://b.example/x")
    environment = SimpleNamespace(channels=tuple(map(Channel.parse, addresses)))
    variant = {"torch_cuda_arch_list": ("9.0;12.0+PTX",)}
    plan = SimpleNamespace(
        options=SimpleNamespace(state=tmp_path), environment=environment, untested="", staged_name="libtorch",
        config=SimpleNamespace(accelerator="cuda130", variant=variant, torch_version="2.13.0"),
        extensions=[SimpleNamespace(name=name, file_names=[f"{name}.conda"]) for name in ("one", "two", "three")],
    )  # fmt: skip
    task = SimpleNamespace(
        name="sparse-py312", extension="sparse", python="3.12", needs=("one", "three"), items=(), wheel=None,
        recipe=tmp_path, overrides={"python": ("3.12.*",)},
    )  # fmt: skip
    run = SimpleNamespace(plan=plan, status=Status("x", tmp_path), progress=None)
    extension._build(cast(Any, run), cast(Any, task), {}, 1, threading.Event())
    expected = {
        "accelerator": "cuda130", "archs": ("9.0", "12.0+PTX"), "python": "3.12", "torch_version": "2.13.0",
    }  # fmt: skip
    assert seen == [
        ["one.conda", "three.conda"],
        [str(tmp_path / "pyg" / "torch"), *addresses],
        (Path("x.conda"), expected),
    ]


@pytest.mark.parametrize("untested", ["", "no emulator"])
@pytest.mark.parametrize("wheel", [None, Path("/wheels/a.whl")], ids=["compiled", "wheel"])
def test_an_extension_is_tested_if_packages_are_and_told_its_wheel_cache_and_sources(
    wheel: Path | None, untested: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs of make that started the run are not the task's."""
    mounted: dict[str, Path] = {}

    def make_place(*_: object, more: dict[str, Path], **__: object) -> object:
        mounted.update(more)
        return SimpleNamespace(state_inside="/in", more={name: f"/in/{name}" for name in more})

    monkeypatch.setattr(extension, "make_place", make_place)
    monkeypatch.setattr(extension, "make_job", lambda _, place, part, overrides: (part, overrides))
    options = SimpleNamespace(state=Path("/state"))
    plan = SimpleNamespace(options=options, untested=untested, environment=SimpleNamespace(channels=()))
    overrides = {
        "python": ("3.12.*",),
        BASE: ("file:///sources/pyg",),
        "pyg_scatter_git": ("/sources/scatter",),
    }
    task = SimpleNamespace(extension="torch_scatter", wheel=wheel, recipe=Path("/r"), overrides=overrides)
    attempt = SimpleNamespace(run=SimpleNamespace(plan=plan))
    described: Any = extension._describe(cast(Any, task), cast(Any, attempt), planned=["a.conda"])
    part, chosen = described[1]
    assert (part.planned, part.test_built) == (["a.conda"], not untested)
    in_place = "" if wheel is None else "/in/wheel/a.whl"
    assert part.env == {"PYG_CCACHE": f"/in/{COMPILER_LAUNCHER}", "PYG_WHEEL": in_place, "MAKEFLAGS": ""}
    key = f"{find('torch_scatter').key}_git"
    assert chosen == {**overrides, BASE: (f"file:///in/{BASE}",), key: (f"/in/{key}",)}
    wheels = {} if wheel is None else {"wheel": Path("/wheels")}
    assert mounted == {BASE: Path("/sources/pyg"), key: Path("/sources/scatter"), **wheels}


@pytest.mark.parametrize(("method", "installed", "alone"), [
    (Method.COMPILE, True, True), (Method.COMPILE, False, False), (Method.NOTHING, True, False)
])  # fmt: skip
def test_an_extension_waits_for_another_python_if_the_cache_keeps_its_objects(
    method: Method, installed: bool, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/x" if installed else None)
    task = SimpleNamespace(
        name="a-py312",
        extension="a",
        method=method,
        needs=(),
        cpu_seconds=1,
        file_names=(),
        base_python="3.12",
    )
    run = SimpleNamespace(plan=SimpleNamespace(items=()))
    work = extension.extension_work(cast(Any, run), Budget(1), cast(Any, task))
    assert work.alone == ("a" if alone else "")


@pytest.mark.parametrize("name", [extension.name for extension in EXTENSIONS])
def test_all_sources_of_this_machine_are_mounted_for_an_extension(name: str) -> None:
    found = find(name)
    keys = [BASE, f"{found.key}_git"]
    if found.checkout is not None:
        keys.append(found.checkout.key)
    overrides = {key: (f"/sources/{number}",) for number, key in enumerate(keys)}
    task = cast(Any, SimpleNamespace(extension=name, overrides={**overrides, "python": ("/x",)}))
    assert extension._local_sources(task) == {key: value for key, (value,) in overrides.items()}
    remote = dict.fromkeys(keys, ("https://sources.example/x",))
    assert extension._local_sources(cast(Any, SimpleNamespace(extension=name, overrides=remote))) == {}
