"""A cache that several users share, and work that isolated builds leave for builds on the host."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from small_files import write
from test_install_pyg import environment
from tiny import Tiny, build_with, make_channel

from groundwork import shared_folder
from groundwork.errors import PreflightError
from groundwork.shared_folder import refuse_foreign
from megabuild.cleaning import size_of
from megabuild.isolation.base import Host, Isolation
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.plan import work_record
from megabuild.plan.options import Options
from megabuild.plan.tree_reuse import TreeUse
from megabuild.run import preflight
from megabuild.run.preflight import check, check_caches
from megabuild.run.work_folders import remove_work, separate_work
from pyg_extensions.install.compile_wheel import Builder

OTHER_USER = 65534
ISOLATED = Bubblewrap(root=Path("/"))
need_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user: only root can become one")


def said_to_other_user(folder: Path) -> str:
    """Return the sentence that another user gets."""
    os.setegid(OTHER_USER)
    os.seteuid(OTHER_USER)
    try:
        refuse_foreign(folder, "a remedy", levels=2)
    except PreflightError as error:
        return f"{error.message} | {error.remedy}"
    finally:
        os.seteuid(0)
        os.setegid(0)
    return ""


@pytest.fixture
def shared() -> Iterator[Path]:
    """An object cache in a folder that all users can write, as /tmp; pytest's folders are private."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder) / "own"


@need_root
@pytest.mark.parametrize(("mode", "below"), [(0o755, ""), (0o700, ""), (0o777, "a"), (0o777, "a/1")])
def test_a_cache_of_another_user_is_named_before_the_build(shared: Path, mode: int, below: str) -> None:
    (shared / "a" / "1").mkdir(parents=True)
    for folder in (shared / "a" / "1", shared / "a", shared):
        folder.chmod(0o777)
    shared.chmod(mode)
    (shared / below).chmod(mode if not below else 0o755)
    assert said_to_other_user(shared) == (
        f"{shared / below} belongs to root: builds cannot write to it | a remedy"
    )


@need_root
def test_a_cache_that_another_user_may_write_is_used(shared: Path) -> None:
    assert said_to_other_user(shared) == "", "it is missing"
    shared.mkdir()
    shared.chmod(0o777)
    assert said_to_other_user(shared) == ""


@need_root
def test_root_in_bubblewrap_cannot_write_another_user_s_cache(shared: Path) -> None:
    shared.mkdir(mode=0o755)
    os.chown(shared, OTHER_USER, OTHER_USER)
    refuse_foreign(shared, "a remedy", levels=2)
    with pytest.raises(PreflightError, match="builds cannot write"):
        refuse_foreign(shared, "a remedy", levels=2, root_is_limited=True)


@need_root
@pytest.mark.parametrize("folder_of", [Options.objects_folder, Options.unpacked_folder])
def test_a_run_looks_at_both_caches_before_it_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder_of: Callable[[Options, Isolation], Path]
) -> None:
    channel = make_channel(tmp_path / "channel")
    build_with(channel, monkeypatch)
    outlook = Tiny(output=tmp_path / "output", channel=channel).outlook()
    folder = folder_of(outlook.options, ISOLATED)
    folder.mkdir(parents=True, mode=0o755)
    os.chown(folder, OTHER_USER, OTHER_USER)
    with pytest.raises(PreflightError, match=f"{folder} belongs to"):
        check(outlook.plan, outlook.estimate, ISOLATED)


@pytest.mark.parametrize("number", [0, 1])
def test_a_cache_that_cannot_be_written_is_named_before_the_build(tmp_path: Path, number: int) -> None:
    folders = [tmp_path / "objects", tmp_path / "packages"]
    in_the_way = write(folders[number])
    options = SimpleNamespace(objects_folder=lambda _: folders[0], unpacked_folder=lambda _: folders[1])
    with pytest.raises(PreflightError, match=f"{in_the_way} cannot be written to") as raised:
        check_caches(cast(Any, SimpleNamespace(options=options)), Host())
    assert "set MEGABUILD_CACHE to a folder of your own" in raised.value.remedy


@pytest.mark.parametrize("isolation", [Host(), ISOLATED], ids=["host", "bubblewrap"])
def test_root_of_an_isolation_writes_caches_of_its_own_only(
    isolation: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In it, root lacks the right to write files of other users; compilers write two levels of folders."""
    asked: dict[str, object] = {}
    monkeypatch.setattr(
        preflight, "refuse_foreign", lambda folder, _, **how: asked.update({folder.name: how})
    )
    options = SimpleNamespace(
        objects_folder=lambda _: tmp_path / "objects", unpacked_folder=lambda _: tmp_path / "unpacked"
    )
    check_caches(cast(Any, SimpleNamespace(options=options)), isolation)
    limited = not isolation.is_host
    assert asked == {
        "objects": {"levels": 2, "root_is_limited": limited}, "unpacked": {"levels": 1, "root_is_limited": limited}
    }  # fmt: skip


@need_root
def test_install_pyg_names_an_object_cache_of_another_user(shared: Path, tmp_path: Path) -> None:
    shared.mkdir(mode=0o755)
    user = Builder(environment=environment(cuda_version=None), jobs=1, folder=tmp_path, objects=shared)
    made = {"CMAKE_C_COMPILER_LAUNCHER": "ccache", "CCACHE_DIR": str(shared)}
    os.seteuid(OTHER_USER)
    try:
        with pytest.raises(PreflightError, match="belongs to root"):
            user.check(made, ())
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("former", "now", "kept"),
    [(ISOLATED, Host(), False), (None, Host(), False), (Host(), Host(), True), (Host(), ISOLATED, True),
     (ISOLATED, ISOLATED, True)],
)  # fmt: skip
def test_a_build_on_the_host_runs_no_program_that_an_isolated_build_left(
    tmp_path: Path, former: Isolation | None, now: Isolation, kept: bool
) -> None:
    if former is not None:
        separate_work(tmp_path, former)
    names = ("tree/build/protoc", "out/bld/x", "tests/x", "finished/x", "pyg/a/tmp/x", "pyg/a/out/x")
    left = [write(tmp_path / name, "a program") for name in names]
    logs = write(tmp_path / "logs" / "x.log")
    separate_work(tmp_path, now)
    assert [path.exists() for path in left] == [kept] * len(names)
    assert logs.exists()


def test_work_that_cannot_be_removed_is_not_counted_as_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tree/a.o", "out/b"):
        write(tmp_path / name, "x" * 100_000)
    remove_all = shutil.rmtree

    def remove_some(path: Path, *, ignore_errors: bool) -> None:
        if not path.name.endswith("-tree"):
            remove_all(path, ignore_errors=ignore_errors)

    octets = size_of(tmp_path / "out")
    monkeypatch.setattr(shutil, "rmtree", remove_some)
    assert remove_work(tmp_path) == octets
    assert not (tmp_path / "tree").exists(), "the rest has another name"


def test_a_plan_says_that_a_build_on_the_host_drops_isolated_builds_work(tiny: Tiny) -> None:
    assert tiny.run().ok
    state = tiny.options().state
    work_record.write_record(state, ISOLATED)
    shutil.rmtree(tiny.options().packages)
    decided = tiny.outlook().progress.tree
    assert decided.use is TreeUse.RECOMPILE
    assert "isolated builds made the former tree" in decided.reasons[0]
    assert tiny.run().ok
    assert tiny.outlook().progress.tree.use is TreeUse.REUSE


def test_a_cache_of_a_user_of_another_machine_is_named_by_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_: Path) -> str:
        raise KeyError("getpwuid(): uid not found: 54321")

    monkeypatch.setattr(Path, "owner", unknown)
    assert shared_folder._owner(tmp_path) == f"user {tmp_path.stat().st_uid}"
