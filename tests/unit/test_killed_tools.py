"""Tools that are killed anywhere: the next start goes on, and takes nothing unfinished for whole."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from small_files import program, write
from stop_at_write import every_stop

import sync_tree
from cmake_python_swap import python_headers, python_swap, staged_configuration, undo_folder
from cmake_python_swap.__main__ import main as swap_command
from cmake_python_swap.cmake_cache import NAME
from cmake_python_swap.ninja_dry_run import BUILD_FILE
from groundwork import bootstrap, files
from groundwork.errors import AuditError, IntegrityError
from groundwork.network import cache, index
from groundwork.network.index import Configured
from megabuild.providers.local import package_store
from megabuild.providers.local.package import LocalPackage
from megabuild.providers.local.package_store import PackageStore
from megabuild.providers.pypi import download
from megabuild.providers.pypi.lock import Lock, Wheel
from megabuild.providers.wheel import torch_wheels
from megabuild.store import server
from pin_audit.repositories import Repository
from pin_audit.services import Services
from pyg_extensions.find_wheel import fetch as fetch_wheel

LONG_AGO = 1_000_000_000


class SwapFailed(Exception):
    """CMake refuses the other Python."""


NINJA = "build.ninja"


def swap(build: Path, *, fails: bool) -> None:
    """A swap of which CMake has written all files."""
    python_swap.recover(build)
    with python_swap._undone_on_failure(build, (NAME,)):
        write(build / NINJA, "# new\n")
        write(build / NAME, "new")
        write(build / "generated/version.cpp", "new")
        if fails:
            raise SwapFailed


@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "fails"])
def test_a_swap_killed_anywhere_is_whole_or_undone(fails: bool, tmp_path: Path) -> None:
    """After an undo, CMake has to write build.ninja again: only the date of its cache tells ninja so."""
    here = tmp_path / "here"
    write(here / NINJA, "# old\n")
    for name in (NAME, "generated/version.cpp"):
        os.utime(write(here / name, "old"), (LONG_AGO, LONG_AGO))

    def operation(folder: Path) -> None:
        with suppress(SwapFailed):
            swap(folder, fails=fails)

    for folder in every_stop(here, operation):
        python_swap.recover(folder)
        cache_file = folder / NAME
        assert cache_file.read_text() == (folder / "generated/version.cpp").read_text()
        if cache_file.read_text() == "old" and (folder / NINJA).read_text() == "# new\n":
            assert cache_file.stat().st_mtime > LONG_AGO
        swap(folder, fails=False)
        assert cache_file.read_text() == "new"
        names = {path.name for path in folder.iterdir()}
        assert {name for name in names if not name.startswith(".")} == {NINJA, NAME, "generated"}


@pytest.mark.parametrize("name", [undo_folder.UNFINISHED, staged_configuration.NAME])
def test_copies_of_a_configuration_appear_whole_or_not_at_all(name: str, tmp_path: Path) -> None:
    """A kill may also cut the copy of a file, so no copy is made in the place from which it is restored."""
    here = tmp_path / "here"
    paths = (NAME, "generated/version.cpp")
    for path in paths:
        os.utime(write(here / path, path), (LONG_AGO, LONG_AGO))

    def operation(folder: Path) -> None:
        undo_folder.prepare(folder, [folder / path for path in paths], name)

    for folder in every_stop(here, operation):
        assert undo_folder.copies(folder, name) == []
        operation(folder)
        assert undo_folder.copies(folder, name) == [folder / name / path for path in paths]
        for copy in undo_folder.copies(folder, name):
            assert copy.stat().st_mtime == LONG_AGO


def test_a_returned_configuration_is_whole_where_its_settings_vouch_for_it(tmp_path: Path) -> None:
    """Staging compiles with it, and does not configure again."""
    here = tmp_path / "here"
    settings = "configured-with.txt"
    staged = {NINJA: "# staged\n", NAME: "staged", "generated/version.cpp": "staged", settings: "staged"}
    for name, text in staged.items():
        write(here / name, text)
    assert staged_configuration.keep(here, settings)
    for name in (NINJA, NAME, "generated/version.cpp"):
        write(here / name, "# swapped\n")

    def contents(folder: Path) -> dict[str, str]:
        paths = [folder / name for name in staged]
        return {path.relative_to(folder).as_posix(): path.read_text() for path in paths if path.exists()}

    for folder in every_stop(here, lambda folder: staged_configuration.restore(folder, settings)):
        assert contents(folder) == staged or settings not in contents(folder)
        staged_configuration.restore(folder, settings)
        assert contents(folder) == staged
        assert not (folder / staged_configuration.NAME).exists()


def test_a_returned_configuration_recompiles_what_a_swap_has_changed_and_nothing_else(tmp_path: Path) -> None:
    """ninja compares dates: objects of another Python are newer than the files of the staged configuration."""
    settings = "configured-with.txt"
    graph = f"""rule cc
  command = cc $in
build made.o: cc generated/version.cpp input.x
build other.o: cc {tmp_path}/absolute.x
build {BUILD_FILE}: cc CMakeFiles/input.cmake
"""
    inputs = ("generated/version.cpp", "generated/included.h", "input.x", "absolute.x")
    others = (NINJA, NAME, "CMakeFiles/input.cmake", "CMakeFiles/notes.txt")
    for name in (*inputs, *others, "same.cpp", settings):
        write(tmp_path / name, graph if name == NINJA else "staged")
    no_part = ("made.o", "other.o", "lib/liba.a", "lib/libb.so", "python-swap.log", python_headers.RECORD)
    for name in no_part:
        write(tmp_path / name, "staged")
    for path in tmp_path.rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    write(tmp_path / staged_configuration.NAME / "former.h")  # by a `keep` that was killed
    assert staged_configuration.keep(tmp_path, settings)
    kept = {path.relative_to(tmp_path / staged_configuration.NAME).as_posix()
            for path in undo_folder.copies(tmp_path, staged_configuration.NAME)}  # fmt: skip
    assert kept == {*inputs, *others, "same.cpp", settings}
    assert not staged_configuration.keep(tmp_path, settings), "its settings are not there"
    for name in (*inputs, *others, *no_part):
        write(tmp_path / name, "# swapped\n")
    assert staged_configuration.restore(tmp_path, settings)
    dates = {name: (tmp_path / name).stat().st_mtime for name in kept}
    assert {name for name, date in dates.items() if date == LONG_AGO} == {*others, "same.cpp", settings}
    assert {(tmp_path / name).read_text() for name in kept} == {"staged", graph}
    assert {(tmp_path / name).read_text() for name in no_part} == {"# swapped\n"}
    assert not staged_configuration.restore(tmp_path, settings)


def test_a_kept_configuration_that_cannot_be_read_is_not_tried_again(tmp_path: Path) -> None:
    """The tree is configured from scratch then; a later return would mix both."""
    for name in (NAME, "configured-with.txt"):
        write(tmp_path / name, "staged")
    assert staged_configuration.keep(tmp_path, "configured-with.txt")
    assert swap_command(["return", str(tmp_path), "configured-with.txt"]) == 1, "there is no build.ninja"
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert swap_command(["return", str(tmp_path), "configured-with.txt"]) == 0


@pytest.mark.parametrize("is_killed", [False, True])
def test_staging_gets_its_configuration_back_also_after_a_killed_swap(
    is_killed: bool, tmp_path: Path
) -> None:
    """A swap that is undone later would put the configuration of another Python in its place."""
    settings = "configured-with.txt"
    staged = {NINJA: "# staged\n", NAME: "staged", "generated/version.cpp": "staged", settings: "staged"}
    for name, text in staged.items():
        write(tmp_path / name, text)
    assert swap_command(["keep", str(tmp_path), settings]) == 0
    swap(tmp_path, fails=False)
    if is_killed:
        undo_folder.prepare(tmp_path, [tmp_path / name for name in (NINJA, NAME, "generated/version.cpp")])
        write(tmp_path / NINJA, "# half\n")
    assert swap_command(["return", str(tmp_path), settings]) == 0
    assert {name: (tmp_path / name).read_text() for name in staged} == staged
    assert not python_swap.recover(tmp_path)


def test_headers_of_a_python_are_recorded_when_no_object_of_others_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A swap killed in between forgets them again; the record would hide them for ever."""
    steps: list[str] = []

    def step(name: str, result: object = None) -> Any:
        def made(*_: object, **__: object) -> object:
            steps.append(name)
            return result

        return made

    facts = SimpleNamespace(executable="python", skbuild="", short="3.12")
    for name, result in {"load": {}, "ask": facts, "_obstacles": (), "Graph": None, "_judged": (), "_ask_ninja": (),
                         "_configure": None}.items():  # fmt: skip
        monkeypatch.setattr(python_swap, name, step(name, result))
    entries = SimpleNamespace(version=lambda _: "3.11", plan=lambda *_: ("x",), disagreements=lambda *_: (),
                              describes=lambda *_: False)  # fmt: skip
    monkeypatch.setattr(python_swap, "python_entries", entries)
    monkeypatch.setattr(python_swap, "frozen_settings", SimpleNamespace(changed=lambda *_: ()))
    monkeypatch.setattr(python_swap, "skbuild_backend", SimpleNamespace(claim=lambda *_: {}))
    headers = SimpleNamespace(
        changed=step("changed", True), forget_objects=step("forget_objects", 3), record=step("record")
    )
    monkeypatch.setattr(python_swap, "python_headers", headers)
    write(tmp_path / NAME, "")
    python_swap.swap(tmp_path, Path("python"))
    order = ["_configure", "_judged", "changed", "forget_objects", "_ask_ninja", "record"]
    assert [name for name in steps if name in order] == order


def test_sources_that_a_killed_build_has_emptied_are_not_taken_for_all_sources(tmp_path: Path) -> None:
    """The marker says that the tree has the rest."""
    here = tmp_path / "here"
    for name in ("a.cpp", "b/c.cpp", "d.cpp"):
        write(here / name)
    for folder in every_stop(here, sync_tree.empty):
        left = {path.name for path in folder.iterdir()} & {"a.cpp", "b", "d.cpp"}
        assert len(left) == 3 or (folder / sync_tree.SYNCED).exists()
        sync_tree.empty(folder)
        assert {path.name for path in folder.iterdir()} <= sync_tree.ENGINE_FILES | {sync_tree.SYNCED}


def packaged(folder: Path) -> PackageStore:
    store = PackageStore(folder)
    packages = [LocalPackage(name=name, version="1", platform="linux-64") for name in ("a", "b")]
    store.ensure(packages, lambda _: None)
    return store


def test_packing_killed_anywhere_leaves_packages_that_are_missing_or_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_store, "build", lambda package, work: write(work / "made", package.name))
    monkeypatch.setattr(package_store, "_BUILDERS", 1)
    monkeypatch.setattr(package_store, "each", lambda call, items, _: map(call, items))
    packages = [LocalPackage(name=name, version="1", platform="linux-64") for name in ("a", "b")]
    here = tmp_path / "here"
    here.mkdir()
    for folder in every_stop(here, packaged):
        store = PackageStore(folder)
        for package in packages:
            path = store.path(package)
            assert path.exists() == path.parent.exists()
            assert not path.exists() or path.read_text() == package.name
        store = packaged(folder)
        assert store.missing(packages) == []
        assert {store.path(package).stat().st_mode & 0o777 for package in packages} == {0o644}


def locked(path: Path) -> Wheel:
    digest = files.sha256(path)
    return Wheel(
        name="torch", version="1", file_name="torch-1.whl", sha256=digest, requires=(), requires_python=""
    )


def test_a_python_never_gets_pytorchs_former_wheel_or_half_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a Python has one wheel, which its lock names."""
    config = cast(Any, SimpleNamespace(torch_version="2.13.0", accelerator="cpu"))
    here = tmp_path / "here"
    folder = torch_wheels.folder(config, here) / "3.12"
    write(folder / "torch-0.whl", "former")
    wheel = locked(write(tmp_path / "torch-1.whl", "new"))
    lock = Lock(python="3.12", environment={}, wheels=(wheel,))
    wheels = cast(Any, SimpleNamespace(locks={"3.12": lock}, more=()))

    def saved(wheels: object, folder: Path, *_: object, **__: object) -> None:
        write(wheel.path(folder), "new")

    monkeypatch.setattr(download, "download", saved)

    def fetch(here: Path) -> None:
        torch_wheels.fetch(config, wheels, ["3.12"], cache=here, report=lambda _: None)

    for stopped in every_stop(here, fetch):
        fetch(stopped)
        (found,) = (torch_wheels.folder(config, stopped) / "3.12").iterdir()
        assert (found.name, found.read_text()) == ("torch-1.whl", "new")


def test_a_download_of_another_content_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before it is compared, it is not taken for the locked wheel later."""
    offered = write(tmp_path / "index/torch-1.whl", "bad")
    wheel = locked(write(tmp_path / "good/torch-1.whl", "good"))
    file = SimpleNamespace(name=wheel.file_name, sha256="", url=offered.as_uri())
    monkeypatch.setattr(download, "offered", lambda *_: ([file], []))
    here = tmp_path / "here"
    here.mkdir()

    def fetch(folder: Path) -> None:
        with pytest.raises(IntegrityError, match="does not match the hash"):
            download.download([wheel], folder, lambda _: None)

    for folder in every_stop(here, fetch):
        assert not files.verified(wheel.path(folder), wheel.sha256)
        offered.write_text("good")
        download.download([wheel], folder, lambda _: None)
        assert wheel.path(folder).read_text() == "good"
        offered.write_text("bad")
    fetch(here)
    assert not wheel.path(here).exists()


def test_wheels_of_one_name_are_downloaded_to_a_file_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are downloaded at the same time."""
    wheels = [locked(write(tmp_path / text / "torch-1.whl", text)) for text in ("one", "two")]
    listed = []
    for wheel, text in zip(wheels, ("one", "two"), strict=True):
        url = (tmp_path / text / "torch-1.whl").as_uri()
        listed.append(SimpleNamespace(name=wheel.file_name, sha256=wheel.sha256, url=url))
    monkeypatch.setattr(download, "offered", lambda *_: (listed, []))
    both = threading.Barrier(2)
    real = shutil.copyfile

    def copy(source: Path, target: Path) -> None:
        real(source, target)
        both.wait(10)

    monkeypatch.setattr(shutil, "copyfile", copy)
    download.download(wheels, tmp_path / "wheels", lambda _: None)
    assert [wheel.path(tmp_path / "wheels").read_text() for wheel in wheels] == ["one", "two"]


def test_a_wheel_comes_from_the_index_with_the_hash_of_its_lock(tmp_path: Path) -> None:
    """The first index and a folder may have another build of the same name."""
    name = "torch-1-py3-none-any.whl"
    wheel = replace(locked(write(tmp_path / "good" / name, "good")), file_name=name)
    pages = []
    for build in ("first", "good"):
        path = write(tmp_path / build / name, build)
        link = f'<a href="{path.as_uri()}#sha256={files.sha256(path)}">{name}</a>'
        pages.append(write(tmp_path / "index" / build / "torch/index.html", link).parents[1].as_uri())
    write(tmp_path / "built" / name, "built here")
    where = Configured(indexes=tuple(pages), links=(str(tmp_path / "built"),))
    listed, _ = index.offered("torch", where, where.client().page)
    assert [file.sha256 for file in listed] == [files.sha256(tmp_path / "first" / name), wheel.sha256, ""]
    linked = replace(where, indexes=(), links=(where.links[0], f"{pages[1]}/torch/"))
    folders = replace(linked, links=(where.links[0], str(tmp_path / "good")))  # without hashes
    for order in (where, linked, folders):
        shutil.rmtree(tmp_path / "wheels", ignore_errors=True)
        (tmp_path / "wheels").mkdir()
        download._fetch(wheel, order, tmp_path, wheel.path(tmp_path / "wheels"))
        assert wheel.path(tmp_path / "wheels").read_text() == "good"


@pytest.mark.parametrize("content", ["good", "bad"])
def test_a_wheel_of_an_extension_appears_whole_and_compared(content: str, tmp_path: Path) -> None:
    offered = write(tmp_path / "index/a-1.whl", content)
    digest = files.sha256(write(tmp_path / "good", "good"))
    here = tmp_path / "here"
    here.mkdir()

    def fetch(folder: Path) -> None:
        if content == "bad":
            with pytest.raises(IntegrityError):
                fetch_wheel(offered.as_uri(), folder / "kept/a-1.whl", digest)
        else:
            fetch_wheel(offered.as_uri(), folder / "kept/a-1.whl", digest)

    for folder in every_stop(here, fetch):
        assert not (folder / "kept/a-1.whl").exists() or (folder / "kept/a-1.whl").read_text() == "good"
    fetch(here)
    assert [path.name for path in (here / "kept").iterdir()] == (["a-1.whl"] if content == "good" else [])


def test_a_file_of_a_store_appears_whole_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_PART", 4)
    store = server.Store(str(tmp_path / "store"), writes=True)
    for _ in store.put("key", write(tmp_path / "file", "0123456789")):
        pass
    record = store.find("key")
    assert record is not None
    here = tmp_path / "here"
    here.mkdir()
    for folder in every_stop(here, lambda folder: list(store.fetch(record, folder / "got"))):
        assert not (folder / "got").exists() or (folder / "got").read_text() == "0123456789"
    for part in (tmp_path / "store").rglob("*"):
        if part.is_file() and part.read_text() == "4567":
            part.write_text("4657")
    with pytest.raises(IntegrityError):
        list(store.fetch(record, here / "got"))
    assert not (here / "got").exists()


def test_the_private_environment_killed_anywhere_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment without packages would fail at every start."""
    here = tmp_path / "here"
    write(here / "requirements.lock")

    def fill(environment: Path, *_: object) -> None:
        program(environment / "bin/python", "exit 0")
        write(environment / "lib/package")

    monkeypatch.setattr(bootstrap, "_fill", fill)
    for folder in every_stop(here, lambda folder: bootstrap.ensure(folder, "run")):
        python = bootstrap.ensure(folder, "run")
        assert (python.parents[1] / "lib/package").exists()
        assert (folder / ".venv/.gitignore").read_text() == "*\n"
    (tmp_path / "here/requirements.lock").write_text("")
    python = bootstrap.ensure(here, "run")
    python.unlink()
    python.symlink_to(tmp_path / "gone")
    write(python.parents[1] / "lib/former")
    assert bootstrap.ensure(here, "run").exists(), "its base Python was removed"
    assert not (python.parents[1] / "lib/former").exists()


@pytest.mark.parametrize("former", ["", "2020-01-01T00:00:00Z"])
@pytest.mark.parametrize("end", [None, AuditError("no network"), KeyboardInterrupt()], ids=repr)
def test_a_clone_is_dated_when_it_is_fetched(
    end: BaseException | None, former: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the audits of a day would take an empty or an old clone for a new one."""
    repository = Repository("https://git.example/a", Services(tmp_path), "")
    stamp = repository._folder / "fetched"
    dates: list[str] = []

    def date() -> str:
        return stamp.read_text() if stamp.exists() else ""

    def fetch(_: Repository) -> None:
        dates.append(date())
        if end is not None:
            raise end

    monkeypatch.setattr(Repository, "_init", lambda *_: repository._folder.mkdir(exist_ok=True))
    monkeypatch.setattr(Repository, "_has_sha256", lambda _: False)
    monkeypatch.setattr(Repository, "_fetch_wanted", fetch)
    repository._folder.mkdir(parents=True)
    if former:
        stamp.write_text(former)
    if end is None or (former and isinstance(end, AuditError)):
        repository.update()
    else:
        with pytest.raises(type(end)):
            repository.update()
    assert dates == [former]
    if end is None:
        assert 0 <= cache.age(date()) < 60
    else:
        assert (date(), repository.fetched) == (former, former)
