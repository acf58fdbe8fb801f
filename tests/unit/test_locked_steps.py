"""Steps that need a lock, since another process may change the same files before and after."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from calling import call
from tiny import ROOT

from command_line import member, running
from command_line.run_command import Invocation
from conda_wheels import make_wheels, simple_index, wheels_report
from groundwork import bootstrap, channel_folder, files, in_use, interrupts
from groundwork.errors import UsageError
from groundwork.redact import Mask
from groundwork.result import Result
from megabuild import cleaning, environments
from megabuild.configs import render
from megabuild.configs.config import load
from megabuild.configs.platforms import Platforms
from megabuild.plan.options import Options
from megabuild.providers import local_channel
from megabuild.providers.debian import root
from megabuild.providers.pypi import download
from megabuild.providers.wheel import torch_wheels
from megabuild.run import session
from megabuild.run.logfile import LogFile
from megabuild.run.shelf import Shelf
from megabuild.status.status import Status
from megabuild.store import published
from pin_audit import repositories
from pin_audit.repositories import Repository
from pin_audit.services import Services
from pyg_extensions.install import install_report, installer, user_environment


@dataclass
class World:
    """Steps in their order: each is "in" or "out" of the lock."""

    folder: Path
    patch: pytest.MonkeyPatch
    held: bool = False
    steps: list[tuple[str, bool]] = field(default_factory=list)

    @contextmanager
    def lock(self, *_: object, **__: object) -> Iterator[None]:
        self.held = True
        yield
        self.held = False

    def step(self, name: str, result: object = None) -> Callable[..., Any]:
        def made(*_: object, **__: object) -> Any:
            self.steps.append((name, self.held))
            return result

        return made

    def watch(self, module: Any, **results: object) -> None:
        for name, result in results.items():
            self.patch.setattr(module, name, self.step(name, result))


def wheels(world: World) -> None:
    """The index is read, extended and published."""
    world.patch.setattr(files, "sole_user", world.lock)
    world.patch.setattr(make_wheels.environments, "find_channel", lambda *_: world.folder)  # type: ignore[attr-defined]
    world.patch.setattr(make_wheels, "find", lambda *_: [])
    world.patch.setattr(make_wheels.tools, "versions", dict)  # type: ignore[attr-defined]
    world.watch(simple_index, remove_former=None, read=("a", "damaged"), publish=None)
    world.watch(make_wheels, _still_valid={"a": "b"})
    request = SimpleNamespace(output=world.folder, config="x", pythons=(), names=())
    make_wheels.make(cast(Any, request), lambda _: None)


def install_pyg(world: World) -> None:
    world.patch.setattr(files, "sole_user", world.lock)
    world.patch.setattr(installer, "_check_space", lambda _: None)
    made = SimpleNamespace(choose_all=world.step("choose_all"), finish=world.step("finish"))
    world.patch.setattr(installer, "_Installer", lambda *_, **__: made)
    environment = SimpleNamespace(prefix=world.folder, check_writable=lambda: None)
    options = SimpleNamespace(environment=environment, cache=world.folder / "cache", report=None)
    request = SimpleNamespace(error=None, attempt=lambda _: world_open())
    failed = SimpleNamespace(error="no sources", attempt=None)
    installer.install([cast(Any, each) for each in (request, failed, request)], cast(Any, options))


@contextmanager
def world_open() -> Iterator[None]:
    yield


def packing(world: World) -> None:
    world.patch.setattr(local_channel, "FileLock", world.lock)
    store = SimpleNamespace(
        missing=world.step("missing", []), ensure=world.step("ensure"), channel=world.step("channel"),
        clean=world.step("clean"),
    )  # fmt: skip
    world.patch.setattr(local_channel, "PackageStore", lambda _: store)
    world.watch(download, download=None)
    config = SimpleNamespace(platforms=Platforms.native("linux-64"))
    request = SimpleNamespace(cache=world.folder, report=None, config=config)
    local_channel._pack([], [], cast(Any, request), [])


def wheels_of_pytorch(world: World) -> None:
    world.patch.setattr(torch_wheels, "FileLock", world.lock)
    world.watch(download, download=None)
    world.watch(torch_wheels, link=None)
    wheel = SimpleNamespace(file_name="a.whl", path=lambda folder: folder / "a.whl")
    wheels = SimpleNamespace(locks={"3.12": SimpleNamespace(wheels=(wheel,))}, more=())
    world.patch.setattr(torch_wheels.locking, "wheels_of", list)  # type: ignore[attr-defined]
    config = SimpleNamespace(torch_version="2", accelerator="cpu")
    torch_wheels.fetch(
        cast(Any, config), cast(Any, wheels), ["3.12"], cache=world.folder, report=lambda _: None
    )


def debian_root(world: World) -> None:
    """Another process may have made it since it was looked for."""
    world.patch.setattr(root, "FileLock", world.lock)
    looked = iter([None, SimpleNamespace(path=world.folder)])

    def read(*_: object) -> Any:
        found = next(looked)
        if found is not None:
            world.step("found")()
        return found

    world.patch.setattr(root, "_read", read)
    world.patch.setenv("MEGABUILD_DEBIAN_MIRROR", "http://mirror.invalid/debian")
    root.make(world.folder, lambda _: None)


def run(world: World) -> None:
    """Unfinished files of another run of the config may still be written."""
    world.patch.setattr(session, "locked", world.lock)
    world.patch.setattr(interrupts, "stop_on_signals", world_open)
    world.watch(session, _remove_unfinished=None)
    summary = SimpleNamespace(ok=True, packages=(), seconds=1.0)
    driver = SimpleNamespace(
        go=world.step("go"), summary=world.step("summary", summary), note_channels=world.step("channels")
    )
    world.patch.setattr(session, "Driver", world.step("repair", driver))
    options = SimpleNamespace(
        output=world.folder, state=world.folder / "x", packages=world.folder, run_name="x"
    )
    status = Status("x", world.folder / "x")
    world.patch.setattr(status, "end", world.step("end"))
    session.execute(cast(Any, SimpleNamespace(options=options)), status)


def work_trees(world: World) -> None:
    world.patch.setattr(session, "locked", world.lock)
    world.watch(session, remove_work=9)
    session.remove_trees(cast(Any, SimpleNamespace(state=world.folder)))


def cleaned(world: World) -> None:
    world.patch.setattr(files, "FileLock", world.lock)
    world.watch(cleaning, _mount_below="")
    world.watch(files, remove=None)
    item = cleaning.Item(kind=cleaning.Kind.WORK, path=world.folder, lock=world.folder / "lock")
    cleaning.remove(item, world.folder)


def clone(world: World) -> None:
    repository = Repository("https://git.example/a", Services(world.folder), "")
    world.patch.setattr("pin_audit.repositories.FileLock", world.lock)
    world.watch(repository, _make=None, _fetch_wanted=None)
    world.watch(repository, _update=None)
    repository.update()


def build(world: World) -> None:
    """`clean` must not remove files that the plan counts on."""
    world.patch.setattr(running, "_cache_in_use", world.lock)
    world.watch(running, _plan=None, plan_result=Result(), _write_sums=None)
    world.watch(in_use, note_output=None)
    world.watch(session, execute=SimpleNamespace(result=lambda **_: Result()))
    options = SimpleNamespace(
        pool=None, run_name="x", state=world.folder, cache=world.folder, output=world.folder, rehearse=False
    )
    build_options = SimpleNamespace(verbose=False, remove_trees=False)

    @contextmanager
    def screen(**_: object) -> Iterator[Any]:
        yield SimpleNamespace(follow=lambda _: None)

    view = SimpleNamespace(console=None, screen=screen)
    invocation = Invocation(log_folder=world.folder)
    running.build_config(cast(Any, options), cast(Any, build_options), cast(Any, view), invocation)


def planned(world: World) -> None:
    world.patch.setattr(running, "_cache_in_use", world.lock)
    world.watch(running, survey_plan=None, look_ahead=None)
    options = SimpleNamespace(deadline=None)
    running._plan(cast(Any, options), cast(Any, SimpleNamespace(note=None)), plan_only=False)


def environment(world: World) -> None:
    """`clean` must not remove packages that are being installed; nor may it below."""
    world.patch.setattr(in_use, "shared_lock", world.lock)
    world.patch.setattr(environments, "find_channel", lambda *_: world.folder)
    world.patch.setattr(published, "find_missing_tests", lambda *_: SimpleNamespace(lines=[]))
    world.watch(environments, solve=SimpleNamespace(records=(), size=0), create=None)
    words = ["env", "create", str(world.folder / "env"), "pytorch", "--from", "x"]
    assert call(Invocation(log_folder=world.folder), *words).exit_code == 0


def wheels_command(world: World) -> None:
    world.patch.setattr(in_use, "shared_lock", world.lock)
    world.patch.setattr(wheels_report, "result", lambda *_: Result())
    world.watch(make_wheels, make=None)
    words = ["wheels", "x", "--output", str(world.folder)]
    assert call(Invocation(log_folder=world.folder), *words).exit_code == 0


def install_pyg_command(world: World) -> None:
    world.patch.setattr(in_use, "shared_lock", world.lock)
    found = SimpleNamespace(cuda_version=None, archs=lambda _: (), devices=())
    world.patch.setattr(user_environment, "interpreter", lambda *_: world.folder)
    world.patch.setattr(user_environment, "look", lambda _: found)
    world.patch.setattr(install_report, "environment_lines", lambda *_: [])
    world.patch.setattr(install_report, "install_result", lambda *_, **__: Result())
    world.watch(installer, install=None)
    assert call(Invocation(log_folder=world.folder), "install-pyg", "scatter").exit_code == 0


def interruptible_process(world: World) -> None:
    """A process that builds one of several configs may be interrupted as soon as it has said so."""
    world.patch.setattr(interrupts, "stop_on_signals", world.lock)
    world.watch(interrupts, ignore_signals=None)
    world.watch(member, finish=SimpleNamespace(exit_code=0, document=None))
    request = SimpleNamespace(log_folder=world.folder)
    for name, result in {"take_request": request, "end_process": None}.items():
        world.patch.setattr(member, name, lambda *_, result=result: result)
    system = SimpleNamespace(
        dup=lambda _: world.folder / "answers", dup2=lambda *_: None, environ={}, getpid=lambda: 1,
        write=world.step("write"),
    )  # fmt: skip
    world.patch.setattr(member, "os", system)
    member.main()


@dataclass(frozen=True)
class Held:
    """A lock of threads."""

    world: World

    def __enter__(self) -> None:
        assert not self.world.held
        self.world.held = True

    def __exit__(self, *_: object) -> None:
        self.world.held = False


def shelf_of_packages(world: World) -> None:
    """Builds and tests run in several threads."""

    class Seconds(dict[Path, float]):
        def __setitem__(self, *_: object) -> None:
            world.step("set")()

        def __iter__(self) -> Iterator[Path]:
            world.step("read")()
            return iter(())

        def keys(self) -> Any:
            return iter(self)

    for name in ("copy", "link"):
        world.patch.setattr(files, name, lambda *_: None)
    world.watch(channel_folder, write_index=None)
    shelf = Shelf(world.folder, cast(Any, SimpleNamespace(put=lambda _: None)))
    package = world.folder / "linux-64" / "a.conda"
    vars(shelf).update(
        _lock=Held(world), _seconds=Seconds(), _rejected=SimpleNamespace(add=world.step("add"))
    )
    shelf.add(package, 1.0)
    shelf.copies()
    shelf.reject(package)
    shelf.index_rejected("linux-64")


def rendering(world: World) -> None:
    """The audit renders in several threads, and the environment is the process's."""
    world.patch.setattr(render, "_ENVIRONMENT_LOCK", Held(world))
    with render._hidden_secrets():
        world.step("render")()


def clones(world: World) -> None:
    """Sources of the audit ask for the same clones."""
    world.watch(repositories, run_git="")
    services = Services(world.folder)
    known = SimpleNamespace(setdefault=world.step("setdefault", SimpleNamespace(update=lambda: None)))
    opened = repositories.Repositories(services)
    vars(opened).update(_lock=Held(world), _known=known)
    opened.open("https://github.com/a/b")
    repository = Repository("https://github.com/a/b", services, "")
    vars(repository).update(_lock=Held(world), _try_update=world.step("_try_update", ""))
    repository.update()
    repository._git("fetch", fetches=True)


def lines_of_a_log(world: World) -> None:
    """A line that a full disk has cut ends before the next one."""
    with LogFile(world.folder, "a", Mask({})) as log:
        vars(log).update(_lock=Held(world))
        with log._file:
            log._file = cast(Any, SimpleNamespace(write=world.step("write", 99), close=lambda: None))
            log.write("a", "b")


#: The steps of each, in their order.
OPERATIONS: dict[Callable[[World], None], list[str]] = {
    wheels: ["remove_former", "read", "_still_valid", "publish"],
    install_pyg: ["choose_all", "finish", "finish"],
    packing: ["missing", "download", "ensure", "channel", "clean"],
    wheels_of_pytorch: ["download", "link"],
    debian_root: ["found"],
    run: ["_remove_unfinished", "repair", "go", "summary", "channels", "end"],
    work_trees: ["remove_work"],
    cleaned: ["_mount_below", "remove"],
    clone: ["_update"],
    planned: ["survey_plan", "look_ahead"],
    environment: ["solve", "create"],
    wheels_command: ["make"],
    install_pyg_command: ["install"],
    build: ["_plan", "note_output", "plan_result", "execute", "_write_sums"],
    interruptible_process: ["write", "finish", "ignore_signals"],
    shelf_of_packages: ["set", "read", "add", "write_index"],
    rendering: ["render"],
    clones: ["setdefault", "_try_update", "run_git"],
    lines_of_a_log: ["write"],
}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_each_step_is_done_with_the_lock(
    operation: Callable[[World], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    operation(world)
    assert world.steps == [(name, True) for name in OPERATIONS[operation]]
    assert not world.held


def test_a_build_locks_all_of_its_files_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of isolated builds and of those on the host: which it is, only the plan says."""
    locked: list[str] = []
    monkeypatch.setattr(in_use, "shared_lock", lambda cache, *names: locked.extend(names))
    options = Options(
        config=load(ROOT.parents[2], "linux_64_cpu"), root=ROOT.parents[2], output=tmp_path, cache=tmp_path
    )
    running._cache_in_use(options)
    assert set(locked) == {"linux_64_cpu", "linux_64_cpu-host", "objects/own", "objects/own-host"}


def test_an_environment_that_another_process_has_finished_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the first look and the lock."""
    folder = tmp_path / "env"
    finished = folder / "bin/python"

    @contextmanager
    def lock(*_: object) -> Iterator[None]:
        finished.parent.mkdir(parents=True)
        finished.touch()
        yield

    monkeypatch.setattr(files, "sole_user", lock)
    with pytest.raises(UsageError):
        environments.create(folder, cast(Any, None), cache=tmp_path, report=lambda _: None)
    assert finished.exists()


def test_a_private_environment_that_another_start_has_finished_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requirements.lock").touch()
    made: list[Path] = []

    def flock(*_: object) -> None:
        key = bootstrap.virtual_environment(tmp_path / "requirements.lock", "run")
        environment = tmp_path / ".venv" / f"run-{key.version}-{key.digest[:12]}"
        (environment / "bin").mkdir(parents=True)
        (environment / "bin/python").touch()
        (environment / bootstrap.STAMP).touch()

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(bootstrap, "_make", lambda environment, *_: made.append(environment))
    assert bootstrap.ensure(tmp_path, "run").exists()
    assert made == []
