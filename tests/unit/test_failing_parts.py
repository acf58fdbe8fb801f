"""A part that fails makes the whole fail: a test of a recipe, a library, a package, a record of a store."""

from __future__ import annotations

import errno
import importlib
import json
import os
import queue
import runpy
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from calling import call
from small_files import program, shared_library, write
from test_run_places import started
from test_run_places import tiny as tiny
from test_run_places import tiny_channel as tiny_channel
from tiny import Tiny, make_package
from wheel_files import make_wheel

import check_staged
import install_libtorch
import share_libtorch
import verify_package
from command_line.run_command import Invocation
from gpu_tools.slim import users
from gpu_tools.slim.manifest import TouchedFile, read_manifest
from gpu_tools.verify import gpu, gpu_probe
from groundwork import bootstrap, channel_folder, files, in_use, process
from groundwork.errors import (
    AuditError,
    BuildError,
    ConfigError,
    IntegrityError,
    MegabuildError,
    OutOfMemoryError,
    OutOfSpaceError,
    PackageTestError,
    PreflightError,
    ProviderError,
    UpstreamTestError,
)
from groundwork.jobs import Budget
from groundwork.network import wheel_contents
from groundwork.network.cache import Cache
from groundwork.network.client import Client, NetworkError, NotFound
from groundwork.network.index import Configured
from groundwork.redact import Mask
from megabuild import environments
from megabuild.configs.platforms import Platforms, choose_build_platform
from megabuild.engine import archive
from megabuild.engine.job import Outcome, OutcomeKind
from megabuild.engine.supervisor import TESTS
from megabuild.isolation.base import Host, Mount
from megabuild.plan import environment_record, fingerprint, planning, solving
from megabuild.plan.environment_packages import Requirements, solve_all
from megabuild.plan.options import OFFICIAL
from megabuild.plan.torch_version import TorchRelease
from megabuild.providers import command
from megabuild.providers.conda_forge.provider import ChannelError
from megabuild.providers.debian import root as debian_root
from megabuild.providers.environment import Environment
from megabuild.run import attempt, driver, failure, plan_report, preflight, session, store_transfer
from megabuild.run.attempt import BROKEN, Attempt
from megabuild.run.estimate import GB
from megabuild.run.logfile import LogFile
from megabuild.run.package_test import package_test
from megabuild.run.pytorch import PyTorchBuild
from megabuild.run.sandbox_paths import make_place
from megabuild.run.shelf import Shelf
from megabuild.run.summary import Summary
from megabuild.status import record as run_record
from megabuild.status.reading import run_names
from megabuild.status.status import Status
from megabuild.store import published
from pin_audit import snapshots
from pin_audit.sources.pinning import PinningPackage
from pyg_extensions import fetch_sources, find_wheel, pyg_index
from pyg_extensions.install import installer
from pyg_extensions.install.installation import Installation, Mode, Origin
from pyg_extensions.table import ExtensionRelease, find
from tree_inputs.owners import Owners

RECIPE = Path(__file__).parents[2] / "recipe"


@pytest.mark.parametrize(
    ("test", "code", "said"),
    [
        ("def test_b(device): assert device == 'cuda'", 0, "3 of 3 passed on cuda\n"),
        ("def test_b(device): assert False", 1, "FAILED test_b: AssertionError: \n"),
        ("def test_b(device): raise SystemExit(0)", 1, "FAILED test_b: SystemExit: 0\n"),
        ("def test_b(device): raise SystemExit", 1, "2 of 3 passed on cuda\n"),
        ("def test_b(device): 1 / 0", 1, "passed test_c ("),
        # an exit code of 256 would be 0
        ("for n in range(256): globals()[f'test_{n}'] = lambda device: 1 / 0", 100, "2 of 258 passed"),
        ("del test_a, test_c", "error: {file}: no tests in this file", ""),
    ],
)
def test_a_failed_test_of_operators_fails_the_package(
    test: str,
    code: int | str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "torch", cast(Any, SimpleNamespace(device=str, manual_seed=id)))
    passing = "def test_a(device): pass\ndef test_c(device): pass\n"
    file = write(tmp_path / "operators.py", f"{passing}{test}\n")
    monkeypatch.setattr(sys, "argv", ["run_operators.py", str(file), "--device", "cuda"])
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(RECIPE / "pyg/common/run_operators.py"), run_name="__main__")
    assert ended.value.code == (code.format(file=file) if isinstance(code, str) else code)
    assert said in capsys.readouterr().out


def test_a_library_that_cannot_be_read_fails_the_verification(tmp_path: Path) -> None:
    write(tmp_path / "torch_scatter" / "_scatter_cpu.so", b"\x7fELF\x02\x01" + b"\xff" * 90)
    faults = verify_package.check(tmp_path, "torch_scatter", "cpu", (), "3.12")
    assert [fault for fault in faults if fault.startswith("torch_scatter/_scatter_cpu.so: ")]


def test_the_faults_of_an_extension_are_the_exit_code_of_its_package_s_test(tmp_path: Path) -> None:
    command = [sys.executable, str(RECIPE / "pyg/common/verify_package.py"), "torch_scatter"]
    command += ["--accelerator", "cpu", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.startswith("torch_scatter: ")) == (1, True)


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
@pytest.mark.parametrize(
    ("body", "fits"), [("", True), ("_exit(3);", False), ("kill(getpid(), 9);", False), ("missing();", False)]
)
def test_a_library_that_ends_its_process_is_not_loadable(body: str, fits: bool, tmp_path: Path) -> None:
    head = "#include <signal.h>\n#include <unistd.h>\nvoid missing(void);\n"
    source = f"{head}__attribute__((constructor)) void start(void) {{ {body} }}"
    assert check_staged.is_loadable(shared_library(tmp_path / "lib.so", source)) == fits


def test_what_a_script_prints_last_is_logged_and_shown(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the last look at its log and the end of the worker, and without a line break."""
    failed = Outcome(ok=False, kind=OutcomeKind.BUILD, message="Script failed with status 1")
    with started(tiny, Host()) as run:
        item = run.plan.items[0]

        def work(*_: object, on_tick: Callable[[], None], **__: object) -> Outcome:
            folder = run.plan.options.state / "out/bld/rattler-build_x_1/work"
            name = (
                f"export PKG_NAME={item.package.name}\nexport PKG_BUILD_STRING={item.package.build_string}\n"
            )
            write(folder / "build_env.sh", name)
            log = write(folder / "conda_build.log", "first\n")
            on_tick()
            log.write_text("first\nerror: the last words")
            return failed

        monkeypatch.setattr(attempt, "run_worker", work)
        tried = Attempt(run, "x", run.plan.options.state, jobs=1, stop=threading.Event())
        place = make_place(tried, recipe=run.plan.options.recipe, channels=())
        outcome = tried.follow(place, cast(Any, None))
        error = tried.explain(outcome, place, aside=place.state, broken=())
        logged = run.log.path.read_text()
    assert "error: the last words" in logged
    assert "error: the last words" in f"{error.message} {error.remedy}"
    assert error.packages == {item.package.file_name}, "the package whose script failed"


@pytest.mark.parametrize("writable", [True, False])
def test_all_packages_that_failed_their_tests_and_each_full_disk_of_a_build_are_named(
    writable: bool, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = Outcome(ok=False, kind=OutcomeKind.TEST, message="Test failed: a-1-0.conda: x")
    full = tiny.output / "full"
    full.mkdir(parents=True)
    monkeypatch.setattr(failure, "is_full", lambda folder: folder == full)
    monkeypatch.setattr(attempt, "write_failure_shell", lambda *_: pytest.fail("no build failed"))
    with started(tiny, Host()) as run:
        tried = Attempt(run, "x", run.plan.options.state, jobs=1, stop=threading.Event())
        place = SimpleNamespace(
            mounts=[Mount(source=full, target="/x", writable=writable)],
            state_inside="/state",
            state=tiny.output,
        )
        broken = ("a-1-0.conda", "b-1-0.conda")
        error = tried.explain(outcome, cast(Any, place), aside=tiny.output, broken=broken)
    assert error.packages == {*broken}
    assert isinstance(error, OutOfSpaceError if writable else PackageTestError)


def test_no_secret_that_a_worker_prints_is_kept_or_shown(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error quotes the last line of a failed test, and is kept in the run's summary."""
    said = "Test failed: a.conda: no access\nwith hunter22 or \x1b[1mhunter\x1b[m22"
    failed = Outcome(ok=False, kind=OutcomeKind.TEST, message=said)
    shown: list[str] = []

    def work(*_: object, on_line: Callable[[str], None], **__: object) -> Outcome:
        on_line("refused: hunter22")
        return failed

    monkeypatch.setattr(attempt, "run_worker", work)
    monkeypatch.setattr(attempt, "script_lines", SimpleNamespace(info=lambda _, *words: shown.extend(words)))
    with started(tiny, Host()) as run, LogFile(tiny.output, "y", Mask({"A_TOKEN": "hunter22"})) as log:
        tried = Attempt(run, "x", run.plan.options.state, jobs=1, stop=threading.Event(), log=log)
        outcome = tried.follow(cast(Any, None), cast(Any, None))
        place = SimpleNamespace(mounts=(), state_inside="/state")
        error = tried.explain(outcome, cast(Any, place), aside=tiny.output, broken=())
    assert outcome.message == "Test failed: a.conda: no access\nwith *** or ***"
    assert shown == ["engine", "refused: ***"]
    assert "refused: ***" in error.message, "of the last lines"


def test_a_build_without_all_of_its_packages_has_failed(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """rattler-build ends with success, and has made none of them."""
    monkeypatch.setattr(Attempt, "follow", lambda *_, **__: Outcome(ok=True, kind=OutcomeKind.OK, message=""))
    with started(tiny, Host()) as run:
        build = PyTorchBuild(run, Shelf(run.plan.options.state, cast(Any, None)))
        result = build.work.run(1, threading.Event())
        planned = {item.package.file_name for item in run.plan.items}
    assert isinstance(result.error, BuildError)
    assert result.error.packages == planned


@pytest.mark.parametrize(("ok", "end", "code"), [(True, "done", 0), (False, "failed", BuildError.exit_code)])
def test_a_run_that_lacks_packages_has_failed(
    ok: bool, end: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --keep-going, a run ends without an error of its own."""
    summary = Summary(ok=ok, config="x", packages=(), seconds=1.0, log=tmp_path / "log", channel=tmp_path)

    class Driver(SimpleNamespace):
        def __init__(self, *_: object) -> None:
            super().__init__(go=lambda: None, summary=lambda _: summary, note_channels=lambda: None)

    monkeypatch.setattr(session, "Driver", Driver)
    options = SimpleNamespace(
        output=tmp_path, state=tmp_path / "x", packages=tmp_path / "packages" / "x", run_name="x"
    )
    status = Status("x", tmp_path / "x")
    session.execute(cast(Any, SimpleNamespace(options=options)), status)
    assert (status.record.status, status.record.exit_code) == (end, code)
    assert summary.result(rehearsal=False).exit_code == code


def test_a_damaged_record_of_a_store_is_not_a_stored_file() -> None:
    def find(key: str) -> object:
        raise IntegrityError("damaged")

    assert not store_transfer._has_record(cast(Any, SimpleNamespace(find=find)), "key")
    assert not store_transfer._has_record(cast(Any, SimpleNamespace(find=lambda key: None)), "key")
    assert store_transfer._has_record(cast(Any, SimpleNamespace(find=lambda key: key)), "key")


@pytest.mark.parametrize("launcher", ["compile_cached.sh", "compile_at_O0.sh"])
@pytest.mark.parametrize(("end", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", -9)])
@pytest.mark.parametrize("compiler", ["g++", "nvcc"])
def test_a_launcher_ends_as_the_compiler_does(
    launcher: str, compiler: str, end: str, code: int, tmp_path: Path
) -> None:
    made = program(tmp_path / compiler, end)
    words = [str(made), "-x", "cu", "-c", "a.cu"]
    words = ["/usr/bin/env", *words] if launcher == "compile_cached.sh" else words
    environ = {"PATH": "/usr/bin:/bin", "PREFIX": "/p", "BUILD_ENV_LINK": "/l", "RECIPE_DIR": str(RECIPE)}
    assert subprocess.run([str(RECIPE / launcher), *words], env=environ, check=False).returncode == code


def test_a_generator_that_fails_stops_the_build(tmp_path: Path) -> None:
    words = ["--generate", "made.h", "--", "sh", "-c", "echo x >made.h; exit 3"]
    command = [sys.executable, str(RECIPE / "sync_tree.py"), *words]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode != 0


def test_a_package_with_one_damaged_entry_is_damaged(tmp_path: Path) -> None:
    path = make_package(tmp_path / "linux-64", "a", "1", "h0_0", {"share/a": b"x" * 5000})
    with zipfile.ZipFile(path) as package:
        info = next(info for info in package.infolist() if info.filename.startswith("pkg-"))
    content = bytearray(path.read_bytes())
    content[info.header_offset + 30 + len(info.filename) + info.compress_size - 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(IntegrityError, match=r"a-1-h0_0\.conda: "):
        archive.read(path)


def test_a_failed_test_of_a_package_fails_its_task(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = Outcome(ok=False, kind=OutcomeKind.TEST, message="Test failed: x")
    monkeypatch.setattr(Attempt, "follow", lambda *_, **__: failed)
    with started(tiny, Host()) as run:
        item = run.plan.items[0]
        package = item.package
        shelf = Shelf(run.plan.options.state, queue.SimpleQueue())
        folder = tmp_path / "built" / package.subdir
        shelf.add(make_package(folder, package.name, package.version, package.build_string), 1.0)
        result = package_test(run, Budget(1), shelf, item).run(1, threading.Event())
    assert isinstance(result.error, PackageTestError)
    assert result.error.packages == {package.file_name}
    assert not result.archives


@pytest.mark.parametrize(
    ("error", "is_aside", "is_listed"),
    [
        (UpstreamTestError("2 tests failed", "repeat one"), True, True),
        (PackageTestError("its test failed", "correct it"), True, False),
        (BuildError("killed", "run again"), False, False),
    ],
    ids=["PyTorch's own tests", "the package's test", "killed"],
)
def test_a_package_whose_tests_failed_is_put_aside_where_users_find_it(
    error: MegabuildError,
    is_aside: bool,
    is_listed: bool,
    tiny: Tiny,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error's command installs a package of PyTorch's own tests from a channel in the folder."""
    failed = Outcome(ok=False, kind=OutcomeKind.TEST, message="Test failed: x")
    monkeypatch.setattr(Attempt, "follow", lambda *_, **__: failed)
    monkeypatch.setattr(Attempt, "explain", lambda *_, **__: error)
    with started(tiny, Host()) as run:
        item = run.plan.items[0]
        package = item.package
        state = run.plan.options.state
        shelf = Shelf(state, queue.SimpleQueue())
        built = tmp_path / "built" / package.subdir
        shelf.add(make_package(built, package.name, package.version, package.build_string), 1.0)
        package_test(run, Budget(1), shelf, item).run(1, threading.Event())
    aside = state / TESTS / BROKEN
    assert (aside / package.subdir / package.file_name).exists() == is_aside
    listed: dict[str, str] | None = {}
    if aside.is_dir():
        listed = channel_folder.listed_hashes(aside)
    assert (f"{package.subdir}/{package.file_name}" in (listed or {})) == is_listed


def test_a_program_that_does_not_start_has_failed(tmp_path: Path) -> None:
    assert process.run([tmp_path / "missing"], timeout=9).returncode == process.NOT_STARTED
    assert process.run(["sleep", "9"], timeout=0.1).returncode == process.TIMED_OUT
    with pytest.raises(ProviderError):
        command.run([str(tmp_path / "missing")], what="x", timeout=9)


def take_lock(folder: Path) -> None:
    with in_use.exclusive_lock(folder, "objects/own"):
        pass


#: Readers for which a missing file is an answer, and the error of one that cannot be read.
READERS: dict[Callable[[Path], object], type[Exception]] = {
    environment_record.read: IntegrityError,
    published.records: OSError,
    published.channels_beside: OSError,
    run_record.read: OSError,
    lambda folder: run_names(folder, ()): OSError,
    lambda folder: Outcome.read(folder / "outcome.json", 0): OSError,
    lambda folder: choose_build_platform(folder, "linux-aarch64", "linux-64"): ConfigError,
    lambda folder: snapshots.load("pytorch", "2.13.0", folder): AuditError,
    lambda folder: TouchedFile(path="a", record="").is_at(folder / "a"): OSError,
    fingerprint._system_packages: PreflightError,
    take_lock: OSError,
    lambda folder: read_manifest(folder / "manifest.json", folder): OSError,
    # else the library would name none of those that it loads
    lambda folder: users._read_names(cast(Any, SimpleNamespace(root=folder)), "libx.so"): OSError,
    lambda folder: bootstrap.virtual_environment(folder / "lock", "run"): IntegrityError,
}


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_cannot_be_read_is_not_a_missing_one(
    reader: Callable[[Path], object], tmp_path: Path
) -> None:
    with pytest.raises(READERS[reader]):
        reader(tmp_path / ("x" * 300))  # too long a name for any file system


def test_a_wheel_of_another_hash_is_not_read(tmp_path: Path) -> None:
    write(tmp_path / "a.whl", "another wheel")
    with pytest.raises(ValueError, match="the index says 000"):
        wheel_contents._verified(tmp_path / "a.whl", "0" * 64)


@pytest.mark.parametrize("optional", [(True,), (False,), (True, False), (False, True), (True, True)], ids=str)
def test_only_an_optional_environment_may_have_no_solution(
    optional: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment may be needed twice, once of them optionally."""

    def solve(specs: tuple[str, ...], *_: object, **__: object) -> list[Any]:
        if specs == ("broken",):
            raise PreflightError("broken cannot be solved")
        return [SimpleNamespace(url=specs[0])]

    monkeypatch.setattr(solving, "solved", solve)
    needed = [Requirements(specs=("first",), platform="linux-64", what="")]
    for is_optional in optional:
        needed.append(Requirements(specs=("broken",), platform="linux-64", what="", is_optional=is_optional))
    needed.append(Requirements(specs=("last",), platform="linux-64", what=""))
    given = Environment(channels=(), pythons=())
    if all(optional):
        assert list(solve_all(needed, given)) == ["first", "last"]
    else:
        with pytest.raises(PreflightError, match="broken cannot be solved"):
            solve_all(needed, given)


@pytest.mark.parametrize("error", [IntegrityError, ProviderError, OutOfSpaceError, PreflightError])
def test_an_extension_is_compiled_only_if_its_wheel_is_faulty(error: type[MegabuildError]) -> None:
    """Another error would recur after the compile."""
    installed: list[Path] = []

    def install(_: object, wheel: Path) -> None:
        if wheel.name == "found.whl":
            raise error("x")
        installed.append(wheel)

    done: list[str] = []
    steps = SimpleNamespace(
        _install=install, _note=lambda _, text: done.append(text), _get_ready=lambda _: done.append("ready"),
        _discard_if_damaged=lambda _: done.append("discarded"), _compile=lambda _: Path("compiled.whl"),
    )  # fmt: skip
    request = SimpleNamespace(origin=Origin.PREBUILT, wheel=Path("found.whl"))
    with nullcontext() if error is IntegrityError else pytest.raises(error):
        installer._Installer.finish(cast(Any, steps), cast(Any, request))
    assert installed == ([Path("compiled.whl")] if error is IntegrityError else [])
    assert done == (["wheel: x", "discarded", "ready"] if error is IntegrityError else [])


def test_compilers_that_do_not_work_fail_each_extension(tmp_path: Path) -> None:
    def check(*_: object) -> None:
        raise PreflightError("no compiler")

    steps = SimpleNamespace(
        _options=SimpleNamespace(mode=Mode.SOURCE), _environment=SimpleNamespace(cuda_version="13.0"),
        _folder=tmp_path, _builder=SimpleNamespace(environ=lambda *_: {}, check=check), _tested=set(),
        _report=lambda _: None,
    )  # fmt: skip
    for name in ("scatter", "sparse"):
        request = SimpleNamespace(name=name, archs=("9.0",))
        with pytest.raises(PreflightError, match="no compiler"):
            installer._Installer._get_ready(cast(Any, steps), cast(Any, request))


@pytest.mark.parametrize(
    ("asked", "fault", "import_fault", "with_import", "is_kept"),
    [
        ("", "", "", True, True), ("2.1.1", "", "", True, True), ("2.1.1.0", "", "", True, True),
        ("2.1.2", "", "", True, False), ("2.1", "", "", True, False),
        ("", "for CUDA 12", "", True, False), ("", "", "no symbol", True, False),
        ("", "", "no symbol", False, True),  # imported after the extensions that it imports were replaced
    ],
)  # fmt: skip
def test_an_installed_extension_of_another_version_or_with_a_fault_is_replaced(
    asked: str, fault: str, import_fault: str, with_import: bool, is_kept: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(installer, "find_import_fault", lambda *_: import_fault)
    environment = SimpleNamespace(distributions={"torch_scatter": "2.1.1+pt213cpu"}, prefix=tmp_path)
    steps = SimpleNamespace(
        _environment=environment, _fault=lambda *_: fault, _note_fault_of_installed=lambda *_: None
    )
    extension = find("torch_scatter")
    request = Installation(extension=extension, asked=asked, release=ExtensionRelease(name=extension.name))
    assert installer._Installer._is_installed(cast(Any, steps), request, with_import=with_import) is is_kept
    assert (request.origin is Origin.INSTALLED) is is_kept
    assert request.imported is (is_kept and with_import)


def test_an_installed_extension_is_not_imported_yet_if_another_one_will_be_replaced() -> None:
    """It may import the other one; and one that cannot be installed does not stop the others."""
    imports: list[bool] = []

    def is_installed(request: Installation, *, with_import: bool) -> bool:
        imports.append(with_import)
        if request.name == "torch_sparse":
            return False
        request.origin = Origin.INSTALLED
        return True

    def choose(_: object) -> None:
        raise ProviderError("no sources")

    steps = SimpleNamespace(_report=lambda _: None, _is_installed=is_installed, _choose=choose)
    requests: list[Installation] = []
    for name in ("torch_scatter", "torch_sparse", "torch_cluster"):
        requests.append(Installation(extension=find(name), release=ExtensionRelease(name=name)))
    installer._Installer.choose_all(cast(Any, steps), requests)
    assert imports == [True, True, False]
    assert [request.error is None for request in requests] == [True, False, True]


@pytest.mark.parametrize(
    ("mode", "is_kept", "is_offered", "origin"),
    [
        (Mode.AUTO, True, True, Origin.KEPT), (Mode.AUTO, False, True, Origin.PREBUILT),
        (Mode.AUTO, False, False, Origin.SOURCE), (Mode.SOURCE, True, True, Origin.KEPT),
        (Mode.SOURCE, False, True, Origin.SOURCE), (Mode.PREBUILT, True, True, Origin.PREBUILT),
        (Mode.PREBUILT, True, False, Origin.SOURCE),  # which is refused where it would be prepared
    ],
)  # fmt: skip
def test_an_extension_comes_from_where_the_user_allows(
    mode: Mode, is_kept: bool, is_offered: bool, origin: Origin
) -> None:
    steps = SimpleNamespace(
        _options=SimpleNamespace(mode=mode, archs=()), _environment=SimpleNamespace(archs=lambda _: ()),
        _find_kept=lambda _: Path("kept.whl") if is_kept else None, _find_prebuilt=lambda _: is_offered,
        _get_ready=lambda request: setattr(request, "origin", Origin.SOURCE),
    )  # fmt: skip
    request = Installation(extension=find("torch_scatter"), release=ExtensionRelease(name="torch_scatter"))
    installer._Installer._choose(cast(Any, steps), request)
    assert request.origin is origin
    assert (request.wheel is not None) == (origin is Origin.KEPT)


@pytest.mark.parametrize(
    ("lies", "lacks", "fault", "import_fault", "error", "calls"),
    [
        (False, False, "", "", None, ["--no-deps", "--constraint"]),
        (False, True, "", "", None, ["--no-deps", "--constraint"]),
        (True, False, "", "", "pip lies", ["--no-deps"]),
        (False, True, "misfit", "", r"misfit \(no numpy\)", ["--no-deps", "--constraint"]),
        (False, False, "misfit", "", "a.whl was .* again: misfit", ["--no-deps", "--constraint", "--yes"]),
        (False, False, "", "no import", "a.whl was .* again: no import", ["--no-deps", "--constraint", "--yes"]),
    ],
)  # fmt: skip
def test_an_installed_wheel_is_looked_at_and_a_faulty_one_is_removed_again(
    lies: bool, lacks: bool, fault: str, import_fault: str, error: str | None, calls: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    done: list[str] = []

    def pip(_: str, option: str, *__: str, **___: object) -> None:
        done.append(option)
        if lacks and option == "--constraint":
            raise ProviderError("no numpy")

    def check(*_: object) -> None:
        if lies:
            raise ProviderError("pip lies")

    monkeypatch.setattr(installer, "check_installed", check)
    monkeypatch.setattr(installer, "find_import_fault", lambda *_: import_fault)
    environment = SimpleNamespace(torch_version="2.13.0", prefix=tmp_path)
    steps = SimpleNamespace(
        _environment=environment, _folder=tmp_path, _pip=pip, _fault=lambda *_: fault, _report=lambda _: None
    )
    request = SimpleNamespace(name="scatter", extension=None)
    with pytest.raises((ProviderError, IntegrityError), match=f"^{error}$") if error else nullcontext():
        installer._Installer._install(cast(Any, steps), cast(Any, request), Path("a.whl"))
    assert done == calls
    if "--constraint" in calls:
        assert (tmp_path / "constraints.txt").read_text() == "torch==2.13.0\n"


@pytest.mark.parametrize(
    ("said", "error"),
    [("a.whl is not a supported wheel on this platform", IntegrityError), ("no answer", ProviderError)],
)
def test_a_wheel_that_pip_does_not_support_is_compiled_in_its_place(
    said: str, error: type[MegabuildError], tmp_path: Path
) -> None:
    wheel = make_wheel(tmp_path, "torch_scatter-2-py3-none-any.whl", {"torch_scatter/a.so": b""})

    def pip(*_: str, **__: object) -> None:
        raise ProviderError(said)

    steps = SimpleNamespace(_pip=pip, _report=lambda _: None)
    with pytest.raises(MegabuildError, match=said) as told:
        installer._Installer._install(cast(Any, steps), cast(Any, SimpleNamespace(name="scatter")), wheel)
    assert type(told.value) is error


def test_a_note_is_reported_and_kept() -> None:
    said: list[str] = []
    request = SimpleNamespace(notes=[])
    installer._Installer._note(
        cast(Any, SimpleNamespace(_report=said.append)), cast(Any, request), "no wheel: x"
    )
    assert (request.notes, said) == (["no wheel: x"], ["  no wheel: x"])


@pytest.mark.parametrize("fault", ["", "does not fit"])
def test_a_compiled_wheel_is_kept_if_it_has_no_fault(fault: str, tmp_path: Path) -> None:
    """Else each later installation would take it."""
    made = write(tmp_path / "scatter/a.whl")
    builder = SimpleNamespace(build=lambda *_: made)
    ready = installer._Compile(source=tmp_path, environ={}, kept=tmp_path / "kept")
    steps = SimpleNamespace(
        _log=lambda _: "log", _ready={"scatter": ready}, _options=SimpleNamespace(jobs=1), _report=lambda _: None,
        _builder=builder, _fault=lambda *_: fault, _folder=tmp_path, _environment=SimpleNamespace(python="3.12"),
    )  # fmt: skip
    steps._options.progress = lambda _: None
    request = SimpleNamespace(name="scatter", version="1", archs=())
    with pytest.raises(BuildError) if fault else nullcontext():
        installer._Installer._compile(cast(Any, steps), cast(Any, request))
    assert (tmp_path / "kept/a.whl").exists() == (not fault)
    assert (tmp_path / "scatter").exists() == bool(fault), "its objects take space until all are installed"


@pytest.mark.parametrize("troubles", [(), ("no answer",), ("no answer", "refused")], ids=str)
def test_an_index_that_does_not_answer_is_named_if_the_others_lack_an_archive(
    troubles: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_sources, "offered", lambda *_: ((), troubles))
    release = ExtensionRelease(name="torch_scatter", version="2.1.2", sha256="")
    with pytest.raises(ProviderError) as caught:
        fetch_sources._addresses(release, Configured())
    assert caught.value.message.split("; ") == ["pip's index has no torch_scatter-2.1.2.tar.gz", *troubles]


@pytest.mark.parametrize(
    ("error", "is_fault"),
    [
        (ModuleNotFoundError("No module named 'sympy'", name="sympy"), False),
        (ModuleNotFoundError("No module named 'sympy.core'", name="sympy.core"), False),
        (ModuleNotFoundError("No module named 'torch._C'", name="torch._C"), True),
        (ModuleNotFoundError("No module named 'torchgen'", name="torchgen"), True),
        (ModuleNotFoundError("no name"), False),
        (ImportError("undefined symbol", name="sympy"), True),
        (RuntimeError("no kernel"), True),
        (AttributeError("module has no attribute 'ones'", name="ones"), True),
        (None, False),
    ],
    ids=repr,
)
def test_a_torch_that_cannot_be_imported_is_a_fault_unless_another_package_is_missing(
    error: Exception | None, is_fault: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use(*_: object) -> None:
        if error is not None:
            raise error

    monkeypatch.setattr(importlib, "import_module", lambda _: SimpleNamespace(add=use, ones=use))
    assert check_staged.import_fault() == (f"{type(error).__name__}: {error}" if is_fault else "")


def test_libtorch_on_another_file_system_is_copied_and_another_error_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write(tmp_path / "torch/lib/libtorch_cpu.so", "a library")
    monkeypatch.setattr(os, "link", other)
    assert install_libtorch.install(tmp_path / "torch", tmp_path / "env") == 1
    assert (tmp_path / "env/lib/libtorch_cpu.so").read_text() == "a library"
    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(OSError, match="No space left"):
        install_libtorch.install(tmp_path / "torch", tmp_path / "env")


@pytest.mark.parametrize("present", ["lib/libtorch_cuda.so", "lib/libc10.so", ""])
def test_a_tree_without_libtorch_or_the_python_side_is_no_success(present: str, tmp_path: Path) -> None:
    if present:
        write(tmp_path / "torch" / present)
    with pytest.raises(FileNotFoundError, match="was the tree built"):
        install_libtorch.install(tmp_path / "torch", tmp_path / "env")
    with pytest.raises(FileNotFoundError, match="the Python side was not built"):
        share_libtorch.link(tmp_path / "torch", tmp_path / "env", [])


@pytest.mark.parametrize("failing", ["build", "host", "run", "test", ""])
@pytest.mark.parametrize("doubled", [False, True])
def test_a_package_with_an_environment_that_has_no_solution_cannot_be_built(
    failing: str, doubled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that need different versions of a package have environments of their own, which the plan does not know."""

    def environment(specs: tuple[str, ...], *_: object) -> dict[str, str]:
        if failing and any(spec.startswith(failing) for spec in specs):
            raise PreflightError(f"{failing} cannot be solved")
        return dict.fromkeys(specs, "1")

    monkeypatch.setattr(solving, "environment", environment)
    needs: dict[str, tuple[str, ...]] = {}
    for kind in ("build", "host", "run", "test"):
        needs[kind] = (f"{kind}-needs 1",)
    if doubled:
        needs["test"] += ("test-needs 2",)
    package = SimpleNamespace(name="a", build_string="0", **needs)
    solver = solving.Solver(cast(Any, SimpleNamespace(channels=(1,))), Platforms.native("linux-64"), ())
    is_known = failing and not (doubled and failing == "test")
    with pytest.raises(PreflightError, match=f"{failing} cannot") if is_known else nullcontext():
        assert solver.built_with(cast(Any, package)) == ["build build-needs 1 1", "host host-needs 1 1"]


@pytest.mark.parametrize("failing", [(0,), (1,), (2,), (0, 2)], ids=str)
def test_a_free_threaded_python_without_a_solution_is_left_out_and_another_python_is_not_asked(
    failing: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    pythons = ("3.13t", "3.14t", "3.15t")

    def environment(specs: tuple[str, ...], *_: object) -> dict[str, str]:
        for number in failing:
            if specs == (f"python {pythons[number]}",):
                raise PreflightError(f"{pythons[number]} cannot be solved")
        return {}

    monkeypatch.setattr(solving, "environment", environment)
    packages = []
    for python in (*pythons, "3.12"):
        needs = {"build": (), "host": (f"python {python}",), "run": (), "test": ()}
        facts = {"name": "a", "build_string": "0", "subdir": "linux-64", "python": python, "skipped": False}
        packages.append(SimpleNamespace(**facts, **needs))
    given = cast(Any, SimpleNamespace(channels=(1,), pythons=pythons))
    gaps = solving.free_threaded_gaps(cast(Any, packages), given, Platforms.native("linux-64"))
    assert gaps == {pythons[number]: f"{pythons[number]} cannot be solved" for number in failing}


@pytest.mark.parametrize("error", [IntegrityError, ChannelError, PreflightError, ProviderError])
def test_packages_that_are_to_be_kept_and_cannot_be_have_their_own_error(error: type[MegabuildError]) -> None:
    options = SimpleNamespace(run_name="tiny")
    shown = planning._not_kept(error("x is damaged", "delete x"), cast(Any, options))
    if error in (IntegrityError, ChannelError):
        assert (shown.message, shown.remedy) == ("x is damaged", "delete x")
    else:
        assert shown.message == "tiny: the environments of the last run cannot be kept: x is damaged"
    assert type(shown) is error


def test_a_plan_says_that_a_store_is_silent(tiny: Tiny) -> None:
    outlook = tiny.outlook()
    stored = replace(outlook.progress.stored, notes=("the store is silent",))
    outlook = replace(outlook, progress=replace(outlook.progress, stored=stored))
    assert any("the store is silent" in line for line in plan_report.note_lines(outlook))
    assert "the store is silent" in plan_report.plan_document(outlook)["notes"]


def test_the_error_of_a_run_is_in_its_log(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise BuildError("no compiler")

    monkeypatch.setattr(driver.Driver, "go", fail)
    with pytest.raises(BuildError):
        tiny.run()
    assert "error: no compiler" in tiny.log_text()


def test_a_plan_has_the_notes_on_the_source_of_pytorch(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "read_release", lambda *_: TorchRelease(notes=("names no Triton",)))
    assert "names no Triton" in tiny.plan().notes


@pytest.mark.parametrize("make", [planning.make_plan, planning.survey_plan, planning.preview_plan])
@pytest.mark.parametrize("error", [ChannelError, PreflightError, ProviderError])
def test_only_a_plan_to_look_at_does_without_a_channel(
    make: Callable[..., object], error: type[MegabuildError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Environment:
        raise error("channel conda-forge is silent", "check the network")

    provider = SimpleNamespace(provide=fail, survey=fail)
    draft = SimpleNamespace(provider=provider, plan=lambda environment: environment.notes)
    monkeypatch.setattr(planning._Draft, "read", lambda *_: draft)
    monkeypatch.setattr(planning, "_check_place", lambda _: None)
    monkeypatch.setattr(
        planning, "unreachable", lambda error, _: ProviderError(error.message, "another provider")
    )
    options = cast(Any, SimpleNamespace(config=SimpleNamespace(name="linux_64_cpu", pythons=("3.12",))))
    if make is planning.preview_plan and error is ChannelError:
        (note,) = cast(Any, make(options, print))
        assert note == "not asked: channel conda-forge is silent. A build needs it: another provider"
        return
    with pytest.raises(ProviderError if error is ChannelError else error) as caught:
        make(options, print)
    assert caught.value.remedy == ("another provider" if error is ChannelError else "check the network")


@pytest.mark.parametrize(
    "digest", [(), ("",), ("0" * 63,), ("g" * 64,), ("0" * 64 + "\n",), ("0" * 64,)], ids=repr
)
def test_an_official_source_without_a_hash_is_never_built(digest: tuple[str, ...]) -> None:
    variant = {"torch_sha256": digest} if digest else {}
    config = SimpleNamespace(name="a", torch_version="2.13.0", variant=variant)
    plan = SimpleNamespace(config=config, source=OFFICIAL, options=SimpleNamespace(torch_source=None))
    with nullcontext() if digest == ("0" * 64,) else pytest.raises(IntegrityError, match="no torch_sha256"):
        preflight._check_source(cast(Any, plan))
    plan.options.torch_source = "a tarball or folder of the user's"
    preflight._check_source(cast(Any, plan))


@pytest.mark.parametrize(
    ("one_disk", "output", "cache", "remedy"),
    [
        (False, 70, 5, ""), (False, 69, 5, "--output"), (False, 70, 4, "MEGABUILD_CACHE"),
        (True, 75, 75, ""), (True, 74, 74, "--output"),
    ],
)  # fmt: skip
def test_disks_have_room_for_the_rest_of_a_build_and_its_downloads(
    one_disk: bool, output: int, cache: int, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache gets the downloads; on one disk, both need their room."""
    free = {"output": output * GB, "cache": cache * GB}
    noexec: set[str] = set()
    monkeypatch.setattr(preflight, "size_of", lambda _: 30 * GB)
    monkeypatch.setattr(preflight, "disk_free", free.__getitem__)
    monkeypatch.setattr(preflight, "disk_of", lambda folder: one_disk or folder)
    monkeypatch.setattr(preflight, "forbids_programs", noexec.__contains__)
    pending = SimpleNamespace(bytes=5 * GB)
    options = SimpleNamespace(state="output", cache="cache")
    plan = cast(Any, SimpleNamespace(options=options, environment=SimpleNamespace(pending=pending)))
    estimate = cast(Any, SimpleNamespace(disk=100 * GB))
    if remedy:
        with pytest.raises(OutOfSpaceError) as caught:
            preflight.check_disk(plan, estimate)
        assert f"move {remedy} to another disk" in caught.value.remedy
    else:
        preflight.check_disk(plan, estimate)
        noexec.add("cache")
        with pytest.raises(PreflightError, match="cache: its disk is mounted noexec"):
            preflight.check_disk(plan, estimate)


@pytest.mark.parametrize("gigabytes", [3.9, 4.1])
def test_a_machine_that_cannot_run_one_compiler_is_refused(
    gigabytes: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = int(gigabytes * 1e9)
    monkeypatch.setattr(preflight, "measure", lambda: SimpleNamespace(memory=memory, memory_free=0))
    jobs = SimpleNamespace(count=1, reason="x")
    estimate = SimpleNamespace(memory_per_job=4e9, jobs=jobs)
    with nullcontext() if gigabytes > 4 else pytest.raises(OutOfMemoryError):
        preflight._check_memory(cast(Any, estimate))


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("failed to link:\n No space left on device (os error 28)", OutOfSpaceError),
        ("https://ann:hunter2@conda.example/x: the package is damaged", ProviderError),
    ],
)
def test_a_full_disk_is_the_error_of_an_installation(
    reason: str, error: type[MegabuildError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def install(*_: object) -> None:
        raise RuntimeError(reason)

    monkeypatch.setattr(environments, "_install_records", install)
    solution = SimpleNamespace(records=())
    with pytest.raises(error) as raised:
        environments._install(tmp_path, cast(Any, solution), cache=tmp_path, report=lambda _: None)
    assert "hunter2" not in raised.value.message


@pytest.mark.parametrize("content", ["file", None])
def test_an_environment_is_not_solved_for_a_folder_that_is_not_empty(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Solving takes minutes, with downloads."""
    folder = tmp_path / "env"
    write(folder if content is None else folder / content)
    monkeypatch.setattr(environments, "find_channel", lambda *_: tmp_path)
    monkeypatch.setattr(environments, "solve", lambda *_, **__: pytest.fail("was solved"))
    done = call(Invocation(log_folder=tmp_path), "env", "create", str(folder), "pytorch", "--from", "x")
    assert (done.exit_code, "not an empty folder" in done.stderr) == (2, True)


@pytest.mark.parametrize("mounted", ["root/proc", "root", ""])
def test_a_debian_root_with_a_mount_is_not_deleted(
    mounted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "entry/root/proc/file")
    places = ["/", *([str(tmp_path / "entry" / mounted)] if mounted else [])]
    disks = [SimpleNamespace(mountpoint=place) for place in places]
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: disks)
    if not mounted:
        debian_root._delete(tmp_path / "entry")
        assert not file.exists()
        return
    with pytest.raises(ProviderError, match="cannot be deleted with mounts in it") as raised:
        debian_root._delete(tmp_path / "entry")
    assert raised.value.remedy == f"run: umount {places[-1]}"
    assert file.exists()


@pytest.mark.parametrize(
    ("returncode", "printed", "says"),
    [
        (process.TIMED_OUT, "", "no answer after "),
        (process.NOT_STARTED, "", "exit code 127"),
        (0, "", "exit code 0"),
        (1, "", "exit code 1"),
        (-11, f"{gpu_probe.STEP}multiplying", "killed by signal 11 (SIGSEGV) while multiplying"),
    ],
)
def test_a_probe_of_the_gpu_without_an_answer_has_failed(
    returncode: int, printed: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = subprocess.CompletedProcess([], returncode, printed, "")
    monkeypatch.setattr(process, "run", lambda *_, **__: done)
    answer = gpu._run_probe(tmp_path / "python")
    assert answer["failed"].startswith(says)
    report = gpu.compare_with_gpus(tmp_path, answer)
    assert (report["ok"], says in report["no_gpu"]) == (False, True)


@pytest.mark.parametrize(
    ("error", "whole"),
    [
        (NetworkError("no parts", status=200), True),
        (NetworkError("no parts", status=416), True),
        (NetworkError("forbidden", status=403), False),
        (NetworkError("silent"), False),
    ],
    ids=repr,
)
def test_a_wheel_is_downloaded_whole_only_from_a_server_without_parts(
    error: NetworkError, whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise error

    saved: list[str] = []

    def save(url: str, path: Path) -> None:
        saved.append(url)
        path.write_text("no wheel")

    monkeypatch.setattr(wheel_contents, "read_remote", refuse)
    contents = wheel_contents.Contents(Configured(), tmp_path)
    monkeypatch.setattr(contents, "_for_files", SimpleNamespace(save=save))
    file = cast(Any, SimpleNamespace(name="a-1.whl", url="https://i/a-1.whl", sha256="0" * 64))
    with pytest.raises(ProviderError, match="broken wheel" if whole else error.message):
        contents.of(file)
    assert saved == ["https://i/a-1.whl"] * whole


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_is_no_fault_of_a_wheel(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the command; any other error is a reason to compile, or to look at the index."""

    def save(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    expected = ProviderError if number == errno.EIO else OSError
    monkeypatch.setattr(Client, "save", save)
    with pytest.raises(expected, match=os.strerror(number)):
        find_wheel.fetch("https://i/a-1.whl", tmp_path / "a-1.whl", "")
    file = cast(Any, SimpleNamespace(name="a-1.whl", url="https://i/a-1.whl", sha256=""))
    with pytest.raises(expected, match=os.strerror(number)):
        wheel_contents.Contents(Configured(), tmp_path).of(file)


def test_a_wheel_that_an_index_lists_and_does_not_have_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another index may have it."""

    def refuse(*_: object, **__: object) -> None:
        raise NotFound("https://i/a-1.whl: not found", status=404)

    monkeypatch.setattr(Client, "get", refuse)
    file = cast(Any, SimpleNamespace(name="a-1.whl", url="https://i/a-1.whl", sha256="1" * 64))
    with pytest.raises(NotFound, match=r"a-1\.whl: listed by pip's index, but https:") as caught:
        wheel_contents.Contents(Configured(), tmp_path).of(file)
    assert caught.value.status == 404


@pytest.mark.parametrize(
    "answered", ["", "bytes 1-5/9", "bytes 0-4/9", "bytes 0-2/9", "bytes 0-3/*", "items 0-3/9"], ids=str
)
def test_another_part_of_a_wheel_than_the_asked_one_is_an_error(
    answered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {"content-range": answered}
    monkeypatch.setattr(Client, "get", lambda *_, **__: SimpleNamespace(headers=headers, body=b"abcd"))
    with pytest.raises(NetworkError, match="invalid response to a range request"):
        wheel_contents.RemoteFile(Client(), "https://i/a-1.whl")


@pytest.mark.parametrize("body", [b"no wheel", b"PK\5\6" + bytes(18), b"PK\5\6" + b"\xff" * 18])
def test_a_wheel_that_is_broken_on_its_index_is_named(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(_: object, url: str, *, headers: Mapping[str, str], limit: int) -> object:
        start, end = map(int, headers["Range"].removeprefix("bytes=").split("-"))
        end = min(end, len(body) - 1)
        answered = {"content-range": f"bytes {start}-{end}/{len(body)}"}
        return SimpleNamespace(headers=answered, body=body[start : end + 1])

    monkeypatch.setattr(Client, "get", get)
    file = SimpleNamespace(name="a-1-py3-none-any.whl", url="https://i/a-1-py3-none-any.whl", sha256="")
    with pytest.raises(NetworkError, match=r"^a-1-py3-none-any\.whl: broken wheel: ") as told:
        wheel_contents.read_remote(Client(), cast(Any, file))
    assert told.value.remedy == "check the file on the index"


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (NotFound("no page"), ()),
        (NetworkError("silent"), "silent"),
        (NetworkError("forbidden", status=403), "forbidden"),
        (PermissionError(13, "Permission denied"), "/a: cannot read: Permission denied"),
    ],
    ids=repr,
)
def test_only_a_missing_page_has_no_wheels(
    error: Exception, answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(pyg_index, "listed", refuse)
    found = pyg_index.read_page("file:///a")
    assert (found.message if isinstance(found, ProviderError) else found) == answer


@dataclass
class Pip:
    """A pip whose commands fail if they are named; it remembers all."""

    failing: Collection[str]
    asked: list[str] = field(default_factory=list)

    def __call__(self, command: str, *_: str, what: str, links: object = None) -> None:
        step = "requirements" if "requirements" in what else command
        self.asked.append(step)
        if step in self.failing:
            raise ProviderError(f"{what}: no space", "free some")


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("fault", ["", "has no kernel"])
@pytest.mark.parametrize("failing", [(), ("install",), ("requirements",), ("uninstall",)], ids=str)
def test_each_step_of_an_installation_that_fails_is_an_error(
    failing: tuple[str, ...], fault: str, broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An extension that works needs no requirements; a faulty wheel, no other cause, leads to a compile."""
    monkeypatch.setattr(installer, "check_installed", lambda *_: None)
    monkeypatch.setattr(installer, "find_import_fault", lambda *_: "")
    monkeypatch.setattr(installer, "why_broken", lambda _: "damaged" * broken)
    pip = Pip(failing)
    environment = SimpleNamespace(prefix=tmp_path, torch_version="2.13.0")
    steps = SimpleNamespace(
        _report=print, _pip=pip, _environment=environment, _folder=tmp_path, _fault=lambda *_: fault
    )
    request = cast(Any, SimpleNamespace(name="torch_sparse", extension=None))
    expected: type[MegabuildError] | None = None
    if "install" in failing:
        expected = IntegrityError if broken else ProviderError
    elif fault:
        expected = ProviderError if failing else IntegrityError
    with pytest.raises(expected) if expected else nullcontext() as caught:
        installer._Installer._install(cast(Any, steps), request, Path("a.whl"))
    if caught is not None:
        assert type(caught.value) is expected
        assert "no space" in caught.value.message or not failing
    assert ("uninstall" in pip.asked) == (bool(fault) and failing in ((), ("uninstall",)))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_cache_that_cannot_be_written_to_is_told_once_and_the_answers_are_used(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "write", refuse)
    told: list[str] = []
    cache = Cache(tmp_path, offline=False, tell=told.append)
    for name in ("a", "b"):
        assert cache.cached(PinningPackage(channel=name, name="x"), 0.0, name.encode).data == name.encode()
    assert told == [f"{tmp_path} cannot be written to ({os.strerror(number)}); nothing is cached"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"[]", b'{"name": "b"}', b'{"name": "b", "files": 1}'], ids=repr
)
def test_a_record_of_a_package_that_cannot_be_read_leaves_the_others_their_files(
    content: bytes, tmp_path: Path
) -> None:
    for name in ("a", "c"):
        write(tmp_path / f"conda-meta/{name}.json", json.dumps({"name": name, "files": [f"lib/{name}.h"]}))
    (tmp_path / "conda-meta/b.json").write_bytes(content)
    owners = Owners({"PREFIX": str(tmp_path)}, tmp_path)
    for name in ("a", "c"):
        (owner,) = owners.of(str(tmp_path / f"lib/{name}.h"))
        assert owner.name == name
