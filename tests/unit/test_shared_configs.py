"""Which configs share objects, the order of several, and the hours that this saves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from small_files import write

from groundwork.errors import IsolationError
from megabuild.configs import sharing
from megabuild.configs.config import available, load
from megabuild.configs.sharing import find_sharing, group_by_toolchain, sort_for_sharing
from megabuild.isolation.base import Host, Isolation
from megabuild.isolation.container import Container
from megabuild.isolation.engine import Engine
from megabuild.plan import object_cache
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.last_run import (
    LastRuns,
    find_shared_objects,
    keep_last_runs,
    keep_left_staging,
    read_last_runs,
)
from megabuild.plan.options import Options
from megabuild.plan.run_choices import PygMode
from megabuild.plan.tree_reuse import LastStaging

CONDA_FORGE = (
    "linux_64_cpu", "linux_64_cpu_generic", "linux_64_cuda129", "linux_64_cuda129_generic", "linux_64_cuda130",
    "linux_64_cuda130_generic", "linux_64_cuda134", "linux_64_cuda134_generic",
)  # fmt: skip


def test_configs_of_one_toolchain_are_neighbours_in_the_best_order(repository: Path) -> None:
    shuffled = [*reversed(CONDA_FORGE)]
    assert sort_for_sharing(repository, shuffled) == (
        *("linux_64_cuda130", "linux_64_cuda130_generic", "linux_64_cuda134", "linux_64_cuda134_generic"),
        *("linux_64_cuda129", "linux_64_cuda129_generic", "linux_64_cpu", "linux_64_cpu_generic"),
    )
    chosen = sort_for_sharing(repository, available(repository))
    assert tuple(name for name in chosen if name in CONDA_FORGE) == CONDA_FORGE
    assert sort_for_sharing(repository, ["unreadable", "linux_64_cpu"]) == ("linux_64_cpu", "unreadable")


def test_of_one_toolchain_the_cpu_config_comes_first_and_then_cuda_by_its_version(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load(repository, "linux_64_cpu")
    made = {
        f"{cuda}-{blas}": replace(config, name=f"{cuda}-{blas}", cuda_version=cuda, blas=blas)
        for cuda in ("13.0", None, "9.2", "12.9")
        for blas in ("generic", "mkl")
    }
    monkeypatch.setattr(sharing, "load", lambda _, name: made[name])
    assert sort_for_sharing(repository, made) == tuple(
        f"{cuda}-{blas}" for cuda in (None, "9.2", "12.9", "13.0") for blas in ("mkl", "generic")
    )


@pytest.mark.parametrize(
    ("name", "compiled", "expected"),
    [
        ("linux_64_cpu_generic", CONDA_FORGE[:1], "linux_64_cpu"),
        ("linux_64_cuda130_generic", CONDA_FORGE[:6], "linux_64_cuda130"),
        ("linux_64_cuda134", CONDA_FORGE[:6], ""),  # another CUDA
        ("linux_64_cpu", CONDA_FORGE[4:], ""),  # another compiler
    ],
)
def test_a_config_shares_with_one_of_another_blas(
    repository: Path, name: str, compiled: tuple[str, ...], expected: str
) -> None:
    others = [load(repository, other) for other in compiled]
    assert find_sharing(load(repository, name), others, {}) == expected


#: Not taken from the product: a key that it forgets is missed here.
TOOLCHAIN = (
    "provider", "torch_version", "target_platform", "c_compiler", "c_compiler_version", "cxx_compiler",
    "cxx_compiler_version", "c_stdlib", "c_stdlib_version",
)  # fmt: skip


@pytest.mark.parametrize("key", TOOLCHAIN)
def test_configs_with_another_toolchain_share_nothing(repository: Path, key: str) -> None:
    config = load(repository, "linux_64_cpu")
    other = replace(config, name="other", variant={**config.variant, key: ("another",)})
    assert find_sharing(other, [config], {}) == ""
    assert group_by_toolchain([config, other], {}) == [[config.name], ["other"]]
    same = {key: ("the same",)}  # by an option
    assert find_sharing(other, [config], same) == config.name
    assert group_by_toolchain([config, other], same) == [[config.name, "other"]]


def test_configs_of_two_accelerators_share_nothing(repository: Path) -> None:
    config = load(repository, "linux_64_cpu")
    assert find_sharing(replace(config, name="other", accelerator="cuda130"), [config], {}) == ""


def test_a_config_that_was_compiled_before_shares_with_another_one(repository: Path) -> None:
    config = load(repository, "linux_64_cpu")
    assert find_sharing(config, [config, replace(config, name="other")], {}) == "other"


def a_run(repository: Path, folder: Path, name: str, *earlier: str) -> Options:
    return Options(
        config=load(repository, name), root=repository, output=folder, cache=folder / "cache", earlier=earlier
    )


def test_objects_of_a_former_run_and_of_this_command_are_expected(repository: Path, tmp_path: Path) -> None:
    second = a_run(repository, tmp_path, "linux_64_cpu_generic")
    isolated = Container(engine=Engine.DOCKER, image="x")

    def find(options: Options, isolation: Isolation | IsolationError = isolated) -> str:
        return find_shared_objects(options, {}, isolation)

    assert not find(second)
    assert find(replace(second, earlier=("linux_64_cpu",))) == "linux_64_cpu"
    first = a_run(repository, tmp_path, "linux_64_cpu")
    keep_last_runs(first, LastRuns(link_seconds=60.0))
    assert read_last_runs(first).link_seconds == 60.0
    assert read_last_runs(replace(first, pyg=PygMode.NONE)).link_seconds == 0.0

    def fill_caches() -> None:
        for name, isolation in zip(second.objects_names, (isolated, Host()), strict=True):
            object_cache.identify(second, isolation)
            write(tmp_path / "cache" / "objects" / name / "0" / "1" / "23R")

    object_cache.identify(first, isolated)
    keep_left_staging(first, isolated, LastStaging(fingerprint=Fingerprint()))
    assert not find(second), "no object is in the cache"
    fill_caches()
    assert find(second) == "linux_64_cpu"
    assert find(replace(second, pythons=("3.12",))) == "linux_64_cpu"
    assert not find(replace(second, optimization="0"))
    assert not find(second, Host()), "isolated builds have a cache of their own"
    assert not find(second, IsolationError("x", "y"))
    keep_left_staging(first, Host(), LastStaging(fingerprint=Fingerprint()))
    assert find(second, Host()) == find(second) == "linux_64_cpu", "each cache has a record of its own"
    shutil.rmtree(tmp_path / "cache" / "objects")
    fill_caches()
    assert not find(second), "others have filled the cache since"
    assert not find(second, Host())
    keep_left_staging(first, isolated, LastStaging(fingerprint=Fingerprint()))
    assert find(second) == "linux_64_cpu"
    assert len(list((tmp_path / "cache" / "last-run").rglob("own@*"))) == 1, "the former cache's is gone"


def test_objects_of_other_configs_are_expected_where_a_run_compiles_with_their_values(
    repository: Path, tmp_path: Path
) -> None:
    isolated = Container(engine=Engine.DOCKER, image="x")
    run = a_run(repository, tmp_path, "linux_64_cpu_generic", "linux_64_cpu")
    assert find_shared_objects(run, {}, isolated) == "linux_64_cpu"
    for other in (
        replace(run, rehearse=True),
        replace(run, own=False),
        replace(run, config=load(repository, "linux_64_cpu_wheel")),
    ):
        assert not find_shared_objects(other, {}, isolated)
    newer = {**run.config.variant, "c_compiler_version": ("99",)}
    changed = replace(run, config=replace(run.config, variant=newer))
    assert not find_shared_objects(changed, {}, isolated)
    installed = {"c_compiler_version": ("15",)}
    assert find_shared_objects(changed, installed, isolated) == "linux_64_cpu", "the provider's, for both"


def test_an_unreadable_config_hides_no_objects_of_others(repository: Path, tmp_path: Path) -> None:
    """The config has an error of its own when it is planned."""
    run = a_run(repository, tmp_path, "linux_64_cpu_generic", "linux_64_broken", "linux_64_cpu")
    known = (repository / ".ci_support" / "linux_64_cpu.yaml").read_text()
    write(tmp_path / ".ci_support" / "linux_64_cpu.yaml", known)
    write(tmp_path / ".ci_support" / "linux_64_broken.yaml", "python: [")
    found = find_shared_objects(replace(run, root=tmp_path), {}, Container(engine=Engine.DOCKER, image="x"))
    assert found == "linux_64_cpu"


@pytest.mark.skipif(shutil.which("ccache") is None, reason="ccache is not installed")
def test_an_object_cache_whose_objects_were_cleared_is_an_empty_one(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``ccache --clear`` leaves folders and files with numbers; the user's other cache is not asked."""
    run = a_run(repository, tmp_path, "linux_64_cpu")
    folder = run.objects_folder(Host())
    folder.mkdir(parents=True)
    monkeypatch.setenv("CCACHE_DIR", str(folder))
    monkeypatch.setenv("CCACHE_CONFIGPATH", os.devnull)
    source = write(tmp_path / "a.c", "int f(void) { return 1; }")
    subprocess.run(["ccache", "cc", "-c", source, "-o", tmp_path / "a.o"], check=True)
    assert object_cache.has_object_cache(run, Host())
    subprocess.run(["ccache", "--clear"], check=True, stdout=subprocess.DEVNULL)
    assert len([*folder.iterdir()]) > 1
    assert not object_cache.has_object_cache(run, Host())


@pytest.mark.parametrize("damage", ["missing", "a folder", "a link", "not text", "off"])
def test_an_object_cache_has_an_identity_as_long_as_its_folder_exists(
    damage: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder can be written by builds, so its mark may be anything."""
    run = a_run(repository, tmp_path, "linux_64_cpu")
    first = object_cache.identify(run, Host())
    assert re.fullmatch("[0-9a-f]{32}", first)
    assert object_cache.identify(run, Host()) == object_cache.read_identity(run, Host()) == first
    assert not object_cache.has_object_cache(run, Host()), "an empty one with a mark is an empty one"
    (mark,) = run.objects_folder(Host()).iterdir()
    mark.unlink()
    if damage == "a folder":
        mark.mkdir()
    elif damage == "a link":
        mark.symlink_to(write(tmp_path / "elsewhere", first))
    elif damage == "not text":
        mark.write_bytes(b"\xff" * 100)
    elif damage == "off":
        monkeypatch.setenv("TORCH_CCACHE", "none")
    assert object_cache.read_identity(run, Host()) == ""
    if damage in ("off", "a folder"):
        assert object_cache.identify(run, Host()) == ""
    else:
        assert object_cache.identify(run, Host()) not in ("", first)
        assert not mark.is_symlink()


def test_one_object_cache_serves_a_feedstock_but_not_its_rehearsals(repository: Path, tmp_path: Path) -> None:
    own = [a_run(repository, tmp_path, name) for name in CONDA_FORGE]
    others = [replace(own[0], own=False, root=tmp_path / name / "zstd-feedstock") for name in ("a", "b")]
    names = {run.objects_name for run in own}
    assert len(names) == 1
    names |= {run.objects_name for run in (replace(own[0], rehearse=True), *others)}
    assert len(names) == 4
    assert {run.objects_name.partition("/")[2] for run in (*own, *others)} == {""}
