"""Of several parts, one that fails fails the whole, whichever it is: subjects, runs, extensions, packages, tests."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import rattler_build
from calling import call
from small_files import write
from test_install_pyg import ended, environment
from test_upload import Channel
from test_upload import release as release

import check_staged
from command_line.run_command import Invocation
from gpu_tools.slim.check import Check
from gpu_tools.verify import check, gpu, verify_report
from gpu_tools.verify.check import LibraryVerdict, Verdict
from gpu_tools.verify.verify_report import verdict_result
from groundwork.channel import Channel as CondaChannel
from groundwork.errors import (
    BuildError,
    IntegrityError,
    MegabuildError,
    OutOfSpaceError,
    PreflightError,
    ProviderError,
    UnknownError,
    VerdictError,
)
from groundwork.network import index
from groundwork.network.client import NetworkError, NotFound
from groundwork.network.index import Configured
from groundwork.network.resolver import NoFittingWheels
from megabuild import environments
from megabuild import upload as uploading
from megabuild.configs.platforms import Platforms
from megabuild.engine import archive, worker
from megabuild.plan import planning, solving
from megabuild.plan.plan import Task
from megabuild.providers.conda_forge.provider import ChannelError
from megabuild.providers.pypi import download, lock
from megabuild.providers.wheel import torch_wheels
from megabuild.run import driver, extension, plan_report
from megabuild.run.graph import Graph
from megabuild.run.package_build import PackageBuild
from megabuild.run.progress import Progress
from megabuild.run.summary import ResultStatus
from megabuild.status.reading import RunState, Standing
from megabuild.status.record import RunRecord, RunStatus
from megabuild.status.show import status_result
from megabuild.status.status import Status
from megabuild.store import published
from pin_audit import command
from pyg_extensions import find_wheel, sources
from pyg_extensions.install.install_report import install_result
from pyg_extensions.install.installation import Origin
from upstream_tests import run as upstream_run
from upstream_tests.selection import Selection


@dataclass(frozen=True)
class World:
    """Three parts, of which some fail."""

    fails: Sequence[bool]
    folder: Path
    release: Callable[[], Channel]
    invocation: Invocation
    patch: pytest.MonkeyPatch


def verify(world: World) -> int:
    libraries = [LibraryVerdict(path="a.so", module="a", ok=not fails) for fails in world.fails]
    return verdict_result([Verdict(subject="a", libraries=(library,)) for library in libraries]).exit_code


def verify_of_one_subject(world: World) -> int:
    libraries = [LibraryVerdict(path="a.so", module="a", ok=not fails) for fails in world.fails]
    return verdict_result([Verdict(subject="a", libraries=tuple(libraries))]).exit_code


def verify_without_an_answer(world: World) -> int:
    libraries = [
        LibraryVerdict(path="a.so", module="a", ok=not fails, unknown=fails) for fails in world.fails
    ]
    return verdict_result([Verdict(subject="a", libraries=(library,)) for library in libraries]).exit_code


def status(world: World) -> int:
    """Of three followed runs."""
    runs = []
    for fails in world.fails:
        record = RunRecord(
            config="a", status=RunStatus.FAILED if fails else RunStatus.DONE, began=0.0, updated=1.0, pid=1,
            process_began=0.0, host="a", exit_code=8 if fails else 0,
        )  # fmt: skip
        runs.append(RunState(folder=Path("/a"), standing=Standing.ENDED, record=record))
    return status_result(runs, 1.0, followed=True).exit_code


def status_of_damaged_records(world: World) -> int:
    standings = [Standing.UNREADABLE if fails else Standing.RUNNING for fails in world.fails]
    return status_result([RunState(folder=Path("/a"), standing=one) for one in standings], 1.0).exit_code


def install_pyg(world: World) -> int:
    names = ("torch_scatter", "torch_sparse", "torch_cluster")
    items = [
        ended(
            name, **({"error": BuildError("x")} if fails else {"origin": Origin.INSTALLED, "installed": "1"})
        )
        for name, fails in zip(names, world.fails, strict=True)
    ]
    return install_result(environment(), (), items, only_plan=False).exit_code


def upload(world: World) -> int:
    artifacts = uploading.find_release(world.release().output, "linux_64_cuda130").artifacts[:3]
    failing = [one.path.name for one, fails in zip(artifacts, world.fails, strict=True) if fails]
    program = f"import os, sys; sys.exit(3 if os.path.basename(sys.argv[3]) in {failing} else 0)"
    world.patch.setattr(uploading, "_UPLOAD", program)
    uploading.upload(artifacts, "me", "main", scratch=world.folder / "scratch")
    return 0


def packages_tests(world: World, why: str = "Test failed") -> int:
    wrong = {f"{number}.conda": why if fails else None for number, fails in enumerate(world.fails)}
    world.patch.setattr(worker, "test", lambda package, *_: wrong[package.name])
    packages = [Path(name) for name in wrong]
    passed, problem = worker.test_all(packages, [], None, None)
    assert set(passed) == {name for name, why in wrong.items() if why is None}
    return 0 if problem is None else 1


def environments_of_packages_tests(world: World) -> int:
    """Of packages that need one that was not built."""
    return packages_tests(world, "Cannot solve the request because of: nothing provides libtorch")


def packages_of_an_extension(world: World) -> int:
    """Which fit neither the GPUs nor the PyTorch that they were built against."""
    names = {f"{number}.conda": fails for number, fails in enumerate(world.fails)}

    def check(package: Path, **_: object) -> None:
        if names[package.name]:
            raise IntegrityError("x")

    class Built(PackageBuild):
        def __init__(self, *_: object, **__: object) -> None:
            self.missing = {}

        def run(self, *_: object) -> Any:
            return None, None

        def finish(self, _: object) -> list[archive.Archive]:
            return [cast(Any, SimpleNamespace(path=Path(name))) for name in names]

    world.patch.setattr(extension, "PackageBuild", Built)
    world.patch.setattr(extension, "_describe", lambda *_, **__: (None, None))
    world.patch.setattr(find_wheel, "check_package", check)
    options = SimpleNamespace(state=world.folder)
    config = SimpleNamespace(accelerator="cpu", variant={}, torch_version="2.13.0")
    plan = SimpleNamespace(options=options, config=config, extensions=(), staged_name="libtorch", untested="")
    run = SimpleNamespace(plan=plan, status=Status("x", world.folder), progress=None)
    task = SimpleNamespace(name="scatter-py312", python="3.12", needs=(), items=())
    result = extension._build(cast(Any, run), cast(Any, task), {}, 1, threading.Event())
    assert [one.path.name for one in result.archives] == list(names)
    return 0


def packages_of_a_run(world: World, failed: ResultStatus = ResultStatus.FAILED) -> int:
    """A run with --keep-going ends without an error, and may have published some packages."""
    there = (ResultStatus.BUILT, ResultStatus.SKIPPED, ResultStatus.BUILT)
    rows = []
    for fails, status in zip(world.fails, there, strict=True):
        rows.append(SimpleNamespace(status=failed if fails else status, tested=True))
    world.patch.setattr(driver, "package_results", lambda *_: tuple(rows))
    world.patch.setattr(driver, "install_line", lambda *_: "")
    world.patch.setattr(driver, "mark_complete", lambda _: None)
    config = SimpleNamespace(platform="linux-64")
    options = SimpleNamespace(run_name="x", packages=world.folder, config=config)
    progress = SimpleNamespace(
        plan=SimpleNamespace(options=options, untested=""),
        needs_staging=False,
        tree=SimpleNamespace(use=None),
    )
    run = SimpleNamespace(
        _plan=progress.plan, _progress=progress, _failed={}, _pytorch=None, _began=0.0,
        _log=SimpleNamespace(path=world.folder),
    )  # fmt: skip
    return 0 if driver.Driver.summary(cast(Any, run), "").ok else BuildError.exit_code


def packages_that_a_run_lacks(world: World) -> int:
    return packages_of_a_run(world, ResultStatus.MISSING)


def packages_of_a_task(world: World) -> int:
    """Of an extension, some of which were published before: the task is done with all of them only."""
    names = [f"{number}.conda" for number, _ in enumerate(world.fails)]
    items = tuple(cast(Any, SimpleNamespace(file_name=name, package=None)) for name in names)
    task = Task(extension="scatter", python="3.12", recipe=world.folder, items=items, overrides={})
    existing = frozenset(name for name, fails in zip(names, world.fails, strict=True) if not fails)
    plan = SimpleNamespace(extensions=(task,), file_names=names)
    progress = Progress(plan=cast(Any, plan), existing=existing)
    assert plan_report._task_document(task, progress)["exists"] == progress.is_done
    assert progress.is_done == (not progress.missing_tasks)
    return len(progress.missing_tasks)


def owners_of_paths(world: World) -> int:
    """Packages, each of which installs one path of another one if it fails."""
    archives = []
    for number, fails in enumerate(world.fails):
        for name, path in (("a", f"lib/{number}"), ("b", f"lib/{number}{'' if fails else 'b'}")):
            package = SimpleNamespace(name=f"{name}{number}")
            archives.append(SimpleNamespace(package=package, files=(path,)))
    archive.check_owners(cast(Any, archives))
    return 0


def checks_after_slimming(world: World) -> int:
    commands = [f"exit {3 * fails}; # {number}" for number, fails in enumerate(world.fails)]
    Check(world.folder, commands, lambda _: None).after()
    return 0


def imports_after_slimming(world: World) -> int:
    slimming = Check(world.folder, (), lambda _: None)
    errors = {f"module{number}": "gone" * fails for number, fails in enumerate(world.fails)}
    slimming.modules = list(errors)
    world.patch.setattr(slimming, "_import", lambda *_: errors)
    slimming.after()
    return 0


def own_tests_of_a_package(world: World) -> int:
    """A recipe may have several for a package."""
    results = [SimpleNamespace(success=not fails, output=["why", ""]) for fails in world.fails]
    package = SimpleNamespace(run_tests=lambda **_: results)
    world.patch.setattr(rattler_build.Package, "from_file", lambda _: package, raising=False)
    wrong = worker.test(Path("a.conda"), [], None)
    assert wrong == ("why" if any(world.fails) else None)
    return int(wrong is not None)


def _verdict(world: World) -> Verdict:
    """Of libraries, some of which fit, and one of which only an import can judge."""
    path = "torch_scatter/{}.so"
    libraries = [LibraryVerdict(path=path.format("x"), module="torch_scatter", ok=False, unknown=True)]
    for number, fails in enumerate(world.fails):
        libraries.append(LibraryVerdict(path=path.format(number), module="torch_scatter", ok=not fails))
    return Verdict(subject="a", libraries=tuple(libraries))


def libraries_of_a_wheel(world: World) -> int:
    world.patch.setattr(check, "verify", lambda *_, **__: _verdict(world))
    target = SimpleNamespace(tag="cpu", python="3.12", torch_version="2.13.0")
    wanted = SimpleNamespace(
        target=target,
        archs=(),
        exact_archs=False,
        beside=None,
        extension=SimpleNamespace(name="torch_scatter"),
    )
    return int(find_wheel.find_fault(Path("a.whl"), cast(Any, wanted)) != "")


def libraries_of_an_extension(world: World) -> int:
    world.patch.setattr(check, "verify", lambda *_, **__: _verdict(world))
    find_wheel.check_package(
        Path("a.conda"), accelerator="cpu", archs=(), python="3.12", torch_version="2.13.0"
    )
    return 0


def libraries_of_the_staging(world: World) -> int:
    """Of which some cannot be loaded."""
    libraries = {
        write(world.folder / f"torch/lib/lib{number}.so"): fails for number, fails in enumerate(world.fails)
    }
    write(world.folder / "torch/_C.so")
    world.patch.setattr(check_staged, "EXTENSION_SUFFIXES", [".so"])
    world.patch.setattr(check_staged, "binaries", lambda _: list(libraries))
    world.patch.setattr(check_staged, "lay_out", lambda *_: None)
    world.patch.setattr(check_staged, "import_fault", str)
    world.patch.setattr(check_staged, "is_loadable", lambda library: not libraries[library])
    world.patch.setattr(sys, "path", [*sys.path])
    faults = list(check_staged.broken(world.folder, world.folder / "torch"))
    assert len(faults) == sum(world.fails)
    return int(bool(faults))


def files_of_upstreams_tests(world: World) -> int:
    names = {f"test_{number}.py": "" for number, _ in enumerate(world.fails)}

    def run_file(name: str, *_: object) -> upstream_run.Result:
        failed = [name] if world.fails[list(names).index(name)] else []
        counts = dict.fromkeys(upstream_run.Outcome, 3)
        return upstream_run.Result(counts=counts, failed=failed)

    world.patch.setattr(upstream_run, "run_file", run_file)
    return upstream_run.run(Selection(sections={"each Python": names}), list(names), 1)


def operations_on_a_gpu(world: World) -> int:
    operations = [{"name": str(number), "ok": not fails} for number, fails in enumerate(world.fails)]
    device = {"arch": "9.0", "name": "x", "capability": [9, 0]}
    answer = {"devices": [device], "operations": operations, "driver": {"count": 1, "cuda": "13.0"}}
    answer |= {"torch": "2.13.0", "torch_cuda": "13.0"}
    world.patch.setattr(gpu, "verify", lambda _: None)
    world.patch.setattr(gpu, "_pair_libraries", lambda *_: [])
    world.patch.setattr(gpu, "_find_torch_faults", lambda *_: [])
    world.patch.setattr(gpu, "_find_failure", lambda _: "")
    report = gpu.compare_with_gpus(world.folder, answer)
    world.patch.setattr(verify_report, "gpu_lines", lambda _: [])
    return verify_report.gpu_result(report).exit_code


def gpus_of_a_machine(world: World) -> int:
    """Of different architectures, for some of which a library has no code."""
    archs = ["sm_75", "sm_80", "sm_90"]
    served = tuple(arch for arch, fails in zip(archs, world.fails, strict=True) if not fails)
    library = LibraryVerdict(path="a.so", module="a", archs=served or ("sm_120",))
    world.patch.setattr(gpu, "verify", lambda _: Verdict(subject="a", libraries=(library,)))
    devices = [{"arch": arch, "name": arch, "capability": [8, 0]} for arch in archs]
    answer = {"devices": devices, "driver": {"count": 3, "cuda": "13.0"}, "torch_cuda": "13.0"}
    report = gpu.compare_with_gpus(world.folder, answer)
    assert len(report["faults"]) == sum(world.fails)
    return verify_report.gpu_result(report).exit_code


def audit(world: World, attribute: str = "with_status") -> int:
    """With --fail-on, of three packages."""
    audits = []
    for number, fails in enumerate(world.fails):
        found = [f"row{number}"] if fails else []
        methods = {
            "with_status": lambda _: [],
            "not_read": lambda: [],
            attribute: lambda *_, found=found: found,
        }
        audits.append(SimpleNamespace(target=SimpleNamespace(package=str(number)), **methods))
    report = SimpleNamespace(audits=audits, warnings=())
    world.patch.setattr(command, "make", lambda *_, **__: report)
    world.patch.setattr(command, "markdown", lambda *_, **__: "")
    world.patch.setattr(command, "to_document", lambda _: {})
    return call(world.invocation, "audit", "--package", "all", "--fail-on", "conflict").exit_code


def audit_of_sources_not_read(world: World) -> int:
    return audit(world, "not_read")


#: The exit code, or the error, of each.
PARTS: dict[Callable[[World], int], int | type[MegabuildError]] = {
    verify: VerdictError.exit_code,
    verify_of_one_subject: VerdictError.exit_code,
    verify_without_an_answer: UnknownError.exit_code,
    status: BuildError.exit_code,
    status_of_damaged_records: 6,
    install_pyg: BuildError.exit_code,
    upload: BuildError,
    packages_tests: 1,
    environments_of_packages_tests: 1,
    packages_of_an_extension: IntegrityError,
    packages_of_a_run: BuildError.exit_code,
    packages_that_a_run_lacks: BuildError.exit_code,
    packages_of_a_task: 1,
    owners_of_paths: IntegrityError,
    checks_after_slimming: VerdictError,
    imports_after_slimming: VerdictError,
    own_tests_of_a_package: 1,
    libraries_of_a_wheel: 1,
    libraries_of_an_extension: IntegrityError,
    libraries_of_the_staging: 1,
    files_of_upstreams_tests: 1,
    operations_on_a_gpu: VerdictError.exit_code,
    gpus_of_a_machine: VerdictError.exit_code,
    audit: VerdictError.exit_code,
    audit_of_sources_not_read: UnknownError.exit_code,
}


@pytest.mark.parametrize("failing", [(), (0,), (1,), (2,), (0, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("whole", PARTS, ids=lambda whole: whole.__name__)
def test_one_part_that_fails_fails_the_whole(
    whole: Callable[[World], int], failing: tuple[int, ...], tmp_path: Path, request: pytest.FixtureRequest,
    invocation: Invocation, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def made() -> Channel:
        return cast(Channel, request.getfixturevalue("release"))

    world = World([number in failing for number in range(3)], tmp_path, made, invocation, monkeypatch)
    expected = PARTS[whole] if failing else 0
    if isinstance(expected, int):
        assert whole(world) == expected
    else:
        with pytest.raises(expected):
            whole(world)


@pytest.mark.parametrize("failing", [(), ("3.13t",), ("3.14t",), ("3.13t", "3.14t")], ids=str)
def test_each_free_threaded_python_that_cannot_be_built_for_is_named(
    failing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def built_with(package: Any) -> None:
        if package.python in failing:
            raise PreflightError(f"none for {package.python}")

    monkeypatch.setattr(solving, "Solver", lambda *_: SimpleNamespace(built_with=built_with))
    pythons = ("3.13", "3.13t", "3.14t")
    packages = [SimpleNamespace(name="pytorch", python=python) for python in pythons]
    environment = SimpleNamespace(pythons=pythons)
    gaps = solving.free_threaded_gaps(
        cast(Any, packages), cast(Any, environment), Platforms.native("linux-64")
    )
    assert gaps == {python: f"none for {python}" for python in failing}


@pytest.mark.parametrize("errors", [(8, 12), (12, 8), (0, 12, 8), (8, 0, 12), (0, 0), (0, 4)], ids=str)
def test_of_different_errors_the_first_one_is_the_exit_code(errors: tuple[int, ...]) -> None:
    """Of extensions, and of followed runs."""
    kinds = {one.exit_code: one for one in (BuildError, OutOfSpaceError, PreflightError)}
    items = []
    runs = []
    for number, code in enumerate(errors):
        name = ("torch_scatter", "torch_sparse", "torch_cluster")[number]
        more: dict[str, Any] = (
            {"error": kinds[code]("x")} if code else {"origin": Origin.INSTALLED, "installed": "1"}
        )
        items.append(ended(name, **more))
        record = RunRecord(
            config="a", status=RunStatus.FAILED if code else RunStatus.DONE, began=0.0, updated=1.0, pid=1,
            process_began=0.0, host="a", exit_code=code,
        )  # fmt: skip
        runs.append(RunState(folder=Path("/a"), standing=Standing.ENDED, record=record))
    first = next((code for code in errors if code), 0)
    assert install_result(environment(), (), items, only_plan=False).exit_code == first
    assert status_result(runs, 1.0, followed=True).exit_code == first


@pytest.mark.parametrize("order", [1, -1])
def test_a_fault_counts_more_than_a_part_without_an_answer(
    order: int, release: Callable[[], Channel], invocation: Invocation, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    fault = LibraryVerdict(path="a.so", module="a", ok=False)
    silent = LibraryVerdict(path="b.so", module="b", ok=False, unknown=True)
    verdicts = [Verdict(subject="a", libraries=(one,)) for one in (fault, silent)][::order]
    assert verdict_result(verdicts).exit_code == VerdictError.exit_code
    monkeypatch.setattr(verify_report, "gpu_lines", lambda _: [])
    assert (
        verify_report.gpu_result({"present": 0, "faults": ["x"], "ok": False}).exit_code
        == VerdictError.exit_code
    )
    assert (
        verify_report.gpu_result({"present": 0, "faults": [], "ok": False}).exit_code
        == UnknownError.exit_code
    )
    world = World((True, False), tmp_path, release, invocation, monkeypatch)
    audits = [
        SimpleNamespace(
            target=SimpleNamespace(package="a"), with_status=lambda _: ["row"], not_read=lambda: []
        ),
        SimpleNamespace(
            target=SimpleNamespace(package="b"), with_status=lambda _: [], not_read=lambda: ["pinning"]
        ),
    ][::order]
    monkeypatch.setattr(command, "make", lambda *_, **__: SimpleNamespace(audits=audits, warnings=()))
    monkeypatch.setattr(command, "markdown", lambda *_, **__: "")
    monkeypatch.setattr(command, "to_document", lambda _: {})
    code = call(world.invocation, "audit", "--package", "all", "--fail-on", "conflict").exit_code
    assert code == VerdictError.exit_code


def test_of_several_failed_tests_that_end_no_others_the_first_is_the_run_s() -> None:
    running = Graph.__new__(Graph)
    running._error = None
    running._late = None
    work = cast(Any, SimpleNamespace(vital=True, ends_others=False))
    kept = [running._is_runs_error(work, cast(Any, name)) for name in ("first", "second")]
    assert kept == [True, False]
    assert str(running._late) == "first"


@pytest.mark.parametrize(
    "errors", [(ProviderError, IntegrityError), (IntegrityError, ProviderError)], ids=str
)
def test_of_several_wheels_without_success_the_first_reason_is_told(
    errors: tuple[type[MegabuildError], ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(wheel: Any, *_: object) -> Path:
        raise errors[wheel.number](f"reason {wheel.number}")

    wheels = [SimpleNamespace(name="a.whl", number=number) for number in (0, 1)]
    monkeypatch.setattr(find_wheel, "offers", lambda *_: (wheels, ""))
    monkeypatch.setattr(find_wheel, "_in_cache", fetch)
    choice = find_wheel.find_wheel(cast(Any, None), "", index=cast(Any, None), cache=tmp_path, report=print)
    assert (choice.wheel, choice.reason) == (None, "reason 0")


@pytest.mark.parametrize("answered", [(True, True), (True, False), (False, True), (False, False)], ids=str)
def test_a_wheel_is_known_to_be_missing_only_if_every_question_was_answered(
    answered: tuple[bool, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = list(answered)

    def resolve(*_: object, **__: object) -> None:
        raise (NoFittingWheels if left.pop(0) else ProviderError)("no wheel")

    monkeypatch.setattr(lock, "resolve", resolve)
    config = cast(Any, SimpleNamespace(torch_version="2.13.0", cuda_version=None))
    found = torch_wheels._find_lock(config, cast(Any, None), tmp_path, None)
    assert isinstance(found, torch_wheels.NoWheel)
    assert found.is_known == all(answered)


@pytest.mark.parametrize("damaged", [False, True])
@pytest.mark.parametrize("silent", [(), (0,), (1,), (0, 1)], ids=str)
def test_a_wheel_comes_from_any_index_and_each_one_s_error_is_named(
    silent: tuple[int, ...], damaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = SimpleNamespace(name="a", file_name="a-1.whl", sha256=hashlib.sha256(b"a").hexdigest())
    listed = [
        SimpleNamespace(name="a-1.whl", sha256=wheel.sha256, url=f"https://i{number}") for number in range(2)
    ]

    def save(file: Any, _: object, target: Path) -> None:
        if int(file.url[-1]) in silent:
            raise NetworkError(f"{file.url} is silent")
        target.write_bytes(b"another" if damaged else b"a")

    answer = (tuple(listed), ("https://i2 refused",))
    monkeypatch.setattr(download, "offered", lambda *_: answer)
    monkeypatch.setattr(download, "_save", save)
    final = tmp_path / "wheels" / "a-1.whl"
    if not damaged and len(silent) < 2:
        download._fetch(cast(Any, wheel), Configured(), tmp_path, final)
        assert final.read_bytes() == b"a"
        return
    with pytest.raises(MegabuildError) as caught:
        download._fetch(cast(Any, wheel), Configured(), tmp_path, final)
    assert not final.exists()
    assert isinstance(caught.value, ProviderError if silent else IntegrityError)
    for number in silent:
        assert f"https://i{number} is silent" in caught.value.message
    assert ("https://i2 refused" in caught.value.message) == bool(silent)
    assert f"run: rm -r {tmp_path}/locks" in caught.value.remedy, "another index may have others"
    answer = ((), ("https://i2 refused",))
    reason = "no index has it with the hash of its lock; https://i2 refused"
    with pytest.raises(ProviderError, match=reason) as absent:
        download._fetch(cast(Any, wheel), Configured(), tmp_path, final)
    assert absent.value.remedy == caught.value.remedy


@pytest.mark.parametrize("missing", [(), (0,), (1,), (0, 1)], ids=str)
def test_channels_of_which_one_is_gone_are_not_used(missing: tuple[int, ...], tmp_path: Path) -> None:
    """An environment would get the packages of the others alone."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    channels = [CondaChannel.of_folder(folder) for folder in folders]
    (tmp_path / "packages").mkdir()
    published.note_channels(tmp_path / "packages", channels)
    for number in missing:
        folders[number].rmdir()
    assert published.needed_channels(tmp_path / "packages") == ([] if missing else [tuple(channels)])


def test_a_wheel_that_is_damaged_in_the_cache_is_said_to_be_downloaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / "damaged.whl", tmp_path / "missing.whl"]
    paths[0].write_text("cut")
    wheels = []
    for path in paths:
        wheel = SimpleNamespace(path=lambda _, path=path: path, sha256="1" * 64, size=1, file_name=path.name)
        wheels.append(wheel)
    said: list[object] = []
    monkeypatch.setattr(download, "places", lambda _: None)
    monkeypatch.setattr(download, "_fetch", lambda *_: None)
    download.download(cast(Any, wheels), tmp_path, said.append)
    damage = [text for text in said if "damaged" in str(text)]
    assert damage == ["! damaged.whl: damaged in the cache, downloading it again"]


@pytest.mark.parametrize("error", [ChannelError, PreflightError])
@pytest.mark.parametrize("failing", [(0,), (0, 1), (0, 1, 2)], ids=str)
def test_an_environment_is_solved_with_the_channels_of_any_run(
    failing: tuple[int, ...], error: type[MegabuildError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there is no solution, the error of the latest run's channels is told."""

    def solve(_: Path, specs: object, channels: int, *rest: object) -> str:
        if channels in failing:
            raise error(f"{channels} cannot be solved")
        return f"solved with {channels}"

    monkeypatch.setattr(environments, "_check_platform", lambda *_: None)
    monkeypatch.setattr(environments, "_channel_lists", lambda *_: [0, 1, 2])
    monkeypatch.setattr(environments, "_solve", solve)
    if len(failing) < 3:
        assert environments.solve(tmp_path, ["a"]) == cast(Any, f"solved with {len(failing)}")
    else:
        with pytest.raises(error, match="0 cannot be solved"):
            environments.solve(tmp_path, ["a"])


def test_a_python_that_the_provider_has_left_out_keeps_its_reason() -> None:
    config = SimpleNamespace(pythons=("3.10", "3.11", "3.12"))
    options = SimpleNamespace(config=config, pythons=("3.10", "3.11", "3.12"))
    reason = "/usr/include/python3.10/Python.h is missing"
    given = SimpleNamespace(overrides={}, pythons=("3.12",), left_out={"3.10": reason})
    reasons: dict[str, str] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "_leave_out", lambda _, overrides, why: (reasons.update(why), why))
        planning._narrow(cast(Any, options), cast(Any, given), {})
    assert reasons == {"3.10": reason, "3.11": "not found on this machine, or without headers"}


@pytest.mark.parametrize("without", [(0,), (1,), (0, 2), (0, 1, 2)], ids=str)
def test_an_index_without_the_project_is_no_trouble(
    without: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"https://i{number}" for number in range(3)]

    def listed(address: str, _: object) -> list[Any]:
        if names.index(address.removesuffix("/a/")) in without:
            raise NotFound(f"{address}: not found")
        return [SimpleNamespace(project="a", name="a-1.whl", sha256="", url=f"{address}a-1.whl")]

    monkeypatch.setattr(index, "listed", listed)
    where = Configured(indexes=tuple(names))
    if len(without) < 3:
        found, troubles = index.offered("a", where, cast(Any, None))
        assert (len(found), troubles) == (3 - len(without), ())
    else:
        with pytest.raises(NotFound, match="not found on any index"):
            index.offered("a", where, cast(Any, None))


@pytest.mark.parametrize("silent", [(0,), (1,), (0, 1), (0, 2), (0, 1, 2)], ids=str)
def test_each_index_that_does_not_answer_is_named(
    silent: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"https://i{number}" for number in range(3)]

    def listed(address: str, _: object) -> list[Any]:
        number = names.index(address.removesuffix("/a/"))
        if number in silent:
            raise NetworkError(f"{names[number]} is silent")
        return [SimpleNamespace(project="a", name="a-1.whl", sha256="", url=f"{address}a-1.whl")]

    monkeypatch.setattr(index, "listed", listed)
    where = Configured(indexes=tuple(names))
    reasons = tuple(f"{names[number]} is silent" for number in silent)
    if len(silent) < 3:
        assert index.offered("a", where, cast(Any, None))[1] == reasons
    else:
        with pytest.raises(NetworkError) as caught:
            index.offered("a", where, cast(Any, None))
        assert caught.value.message == "; ".join(reasons)


@pytest.mark.parametrize("error", [ProviderError, IntegrityError, OutOfSpaceError])
def test_archives_that_cannot_be_had_leave_their_extensions_out_and_a_full_disk_ends_the_plan(
    error: type[MegabuildError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error("the reason")

    left_out: dict[str, str] = {}
    monkeypatch.setattr(sources, "fetch", refuse)
    monkeypatch.setattr(sources, "archive_address", lambda *_: "")
    search = SimpleNamespace(_leave_out=lambda names, why: left_out.update(dict.fromkeys(names, why)))
    wanted = {"a": SimpleNamespace(archive="a", sha256=""), "b": SimpleNamespace(archive="b", sha256="")}
    with pytest.raises(error) if error is OutOfSpaceError else nullcontext():
        sources._Search._download_with_login(cast(Any, search), "https://i", cast(Any, wanted), tmp_path)
    assert left_out == ({} if error is OutOfSpaceError else dict.fromkeys("ab", "the reason"))


def test_the_first_environment_without_a_solution_and_a_failed_build_are_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {"a.conda": "Cannot solve: nothing provides a", "b.conda": "Cannot solve: nothing provides b"}
    monkeypatch.setattr(worker, "test", lambda package, *_: wrong[package.name])
    passed, problem = worker.test_all([Path(name) for name in wrong], [], None, None)
    assert (passed, problem) == ([], wrong["a.conda"])

    def build(*_: object) -> None:
        raise RuntimeError("Script failed with status 1")

    monkeypatch.setattr(worker, "build", build)
    monkeypatch.setattr(worker, "packages", lambda _: [Path("a.conda")])
    job = {"env": {}, "tests": [], "test": True, "channels": [], "output_dir": str(tmp_path)}
    arguments = [str(write(tmp_path / "job.json", json.dumps(job))), str(tmp_path / "outcome.json")]
    assert worker.main(arguments) == 1
    outcome = json.loads((tmp_path / "outcome.json").read_text())
    assert (outcome["kind"], outcome["message"]) == ("build", "Script failed with status 1")
