"""Files of builds are found, listed and removed; all other files stay."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from calling import call
from stop_at_write import every_stop

from command_line.clean import CleanOptions, _is_selected
from command_line.run_command import Invocation
from groundwork import files, in_use
from groundwork.channel import Channel
from groundwork.channel_folder import MADE_OF
from groundwork.errors import BusyError, IntegrityError
from groundwork.text import size
from megabuild import cleaning
from megabuild.cleaning import COSTS, Item, Kind, find_items, remove, size_of
from megabuild.plan.options import objects_lock
from megabuild.store import published

RUN, KEY, STORED = "linux_64_cpu", "0123456789abcdef", "a" * 64
TIME = "20260101T000000"


def put(path: Path, size: int = 1000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    return path


@pytest.fixture
def output(tmp_path: Path) -> Path:
    output = tmp_path / "output"
    run = output / RUN
    in_use.mark(output)
    in_use.mark(run)
    put(run / "lock", 0)
    put(run / "tree" / "build" / "a.o", 300_000)
    put(run / "out" / "build_cache" / "b", 200_000)
    put(run / ".removed-0123abcd" / "rest")
    put(run / "logs" / f"{RUN}-{TIME}.123456Z.log")
    put(run / "logs" / f"{RUN}-{TIME}.999999Z.log")
    (run / "logs" / "latest.log").symlink_to(f"{RUN}-{TIME}.999999Z.log")
    put(run / "run.json")
    package = published.PublishedPackage(path="linux-64/libtorch.conda", size=1, sha256="", fingerprint="")
    files.write(
        output / "packages" / RUN / published.RECORDS, msgspec.json.encode({"libtorch.conda": package})
    )
    put(output / "packages" / RUN / "linux-64" / "libtorch.conda", 50_000)
    return output


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    cache = tmp_path / "cache"
    put(cache / "logs" / "of-install-pyg.log")
    with in_use.shared_lock(cache):
        pass
    for key in (KEY, KEY[::-1]):
        put(cache / "channel/channels" / key / "noarch" / "repodata.json")
        (cache / "channel/channels" / key / MADE_OF).write_text(json.dumps({"x.conda": STORED}))
    put(cache / "channel/store" / STORED / "x.conda")
    put(cache / "objects" / "own" / "0" / "o", 100_000)
    put(cache / "objects" / "own-rehearsal" / "0" / "o")
    put(cache / "objects" / "zstd-feedstock-0123abcd" / "0" / "o")
    put(cache / "rattler" / "zstd-feedstock-0123abcd" / "linux_64_" / "pkgs" / "package")
    put(cache / "wheels" / KEY / "torch.whl")
    put(cache / "debian" / KEY / "usr" / "bin" / "g++")
    put(cache / "debian" / "lock", 0)
    return cache


def clean(output: Path, cache: Path, *kinds: str) -> dict[str, str]:
    """Remove the files of these kinds, or of all; return the reasons for kept files by path."""
    items = [item for item in find_items(output, cache) if item.kind in (kinds or COSTS)]
    return {str(item.path): why for item in items if (why := remove(item, cache))}


def names(items: Iterable[Item]) -> set[str]:
    return {f"{item.kind.value} {item.path.parent.name}/{item.path.name}" for item in items}


def left(*folders: Path) -> set[str]:
    found = (
        path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink()
    )
    return {path.name for path in found if "in-use" not in path.parts and path.name != ".megabuild"}


def test_exactly_the_files_of_builds_are_found(output: Path, cache: Path) -> None:
    foreign = [
        put(output / "logs" / "thesis.zip"), put(output / RUN / "logs" / "experiment.log"), put(output / RUN / "notes"),
        put(cache / "debian" / "mine" / "x"), put(cache / "wheels" / "my.whl"),
        put(cache / "channel" / "channels" / "mine" / "x"), put(cache / "thesis" / "x"),
    ]  # fmt: skip
    assert names(find_items(output, cache)) == {
        f"work {RUN}/out", f"work {RUN}/.removed-0123abcd", f"tree {RUN}/tree", f"packages packages/{RUN}",
        f"logs logs/{RUN}-{TIME}.123456Z.log",
        "objects objects/own", "objects objects/own-rehearsal", "objects objects/zstd-feedstock-0123abcd",
        "downloads zstd-feedstock-0123abcd/linux_64_", f"downloads wheels/{KEY}",
        f"channels channels/{KEY}", f"channels channels/{KEY[::-1]}",
        f"channels store/{STORED}", f"debian debian/{KEY}",
    }  # fmt: skip
    assert clean(output, cache) == {}
    assert list(find_items(output / "none", cache / "nothing")) == []
    assert left(output, cache) == {
        "lock", "run.json", "of-install-pyg.log", f"{RUN}-{TIME}.999999Z.log", *(path.name for path in foreign),
    }, "with the last log and what locks"  # fmt: skip


def test_a_clean_killed_anywhere_is_completed_by_the_next(output: Path, cache: Path, tmp_path: Path) -> None:
    """Of each kind and folder: the next clean of the same kind removes the rest."""
    for name in ("ccache", "pyg-compiled", "sdists", "torch-wheels", "torch-source", "environments"):
        put(cache / name / "below" / "x")
    put(output / "wheels" / RUN / "simple" / "index.html")
    foreign = {
        put(path).name for path in (output / "packages/.removed-0/y", cache / ".removed-mine-sdists/z")
    }
    here = tmp_path / "here"
    here.mkdir()
    for folder in (output, cache):
        shutil.move(folder, here)
    kinds = dict.fromkeys(item.kind for item in find_items(here / "output", here / "cache"))
    assert set(kinds) == set(COSTS)
    for kind in kinds:

        def clean_kind(folder: Path, kind: str = kind) -> None:
            assert clean(folder / "output", folder / "cache", kind) == {}

        for folder in every_stop(here, clean_kind, step=3):
            clean_kind(folder)
            assert not [item for item in find_items(folder / "output", folder / "cache") if item.kind == kind]
            rest = [path for path in folder.rglob(".removed-*") if path.name != ".removed-0123abcd"]
            assert {path.name for path in rest} == {".removed-0", ".removed-mine-sdists"}
            assert left(folder / "output", folder / "cache") >= foreign


@pytest.mark.parametrize("place", ["", "rattler", "objects", "wheels", "channel/store", "debian"])
def test_half_removed_folders_without_a_name_are_found(output: Path, cache: Path, place: str) -> None:
    put(cache / place / ".removed-0123abcd" / "x")
    assert [item.path for item in find_items(output, cache) if files.former_name(item.path.name) == ""] == [
        output / RUN / ".removed-0123abcd",
        cache / place / ".removed-0123abcd",
    ]
    clean(output, cache)
    assert not (cache / place / ".removed-0123abcd").exists()


@pytest.mark.parametrize("name", ["thesis", RUN])
def test_a_foreign_folder_in_the_output_folder_stays(tmp_path: Path, cache: Path, name: str) -> None:
    """With any name and content, even if a build is given the same folder later."""
    output = tmp_path / "theirs"
    paths = ("tests/t.py", "out/o", "tmp/x", "tree/y", f"logs/a-{TIME}Z.log", "lock")
    foreign = [put(output / name / path) for path in paths]
    foreign += [
        put(output / "logs" / "diary.txt"),
        put(output / "packages" / name / "linux-64" / "theirs.conda"),
    ]
    in_use.mark(output)
    in_use.mark(output / name)
    clean(output, cache)
    assert all(path.exists() for path in foreign)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("has_link", [False, True])
def test_a_cache_folder_with_foreign_files_is_not_cleaned(
    tmp_path: Path, output: Path, used: bool, has_link: bool
) -> None:
    """A link is no mark: what made it may have meant another folder."""
    scratch = tmp_path / "scratch"
    paths = ("environments/prod/bin/python", "wheels/my-1.0-py3-none-any.whl", "objects/mythesis/scan.obj")
    foreign = [put(scratch / path) for path in paths]
    if has_link:
        (scratch / ".megabuild").symlink_to(output / ".megabuild")
    if used:
        with in_use.shared_lock(scratch, RUN):
            pass
    assert [item for item in find_items(output, scratch) if item.path.is_relative_to(scratch)] == []
    clean(output, scratch)
    assert all(path.exists() for path in foreign)


def test_an_unpublished_package_keeps_its_channel(output: Path, cache: Path) -> None:
    theirs = put(output / "packages" / RUN / "linux-64" / "theirs.conda")
    (why,) = clean(output, cache, "packages").values()
    assert "theirs.conda" in why
    assert theirs.exists()


def test_links_are_left_alone(output: Path, cache: Path, tmp_path: Path) -> None:
    precious = put(tmp_path / "precious" / "tree" / "file")
    put(precious.parent.parent / "lock")
    (output / RUN / "tmp").symlink_to(precious.parent)
    (output / "linked").symlink_to(precious.parent.parent)
    (precious.parent.parent / ".megabuild").symlink_to(output / ".megabuild")
    (cache / "sdists").symlink_to(precious.parent)
    (cache / "objects" / "linked").symlink_to(precious.parent)
    (output / RUN / "out" / "link").symlink_to(precious.parent)
    (tmp_path / "elsewhere").symlink_to(output)
    assert clean(tmp_path / "elsewhere", cache) == {}, "the output folder may be a link"
    assert precious.exists()
    assert (output / RUN / "logs" / "latest.log").exists()
    assert not (output / RUN / "out").exists()


def test_files_that_a_build_uses_stay(output: Path, cache: Path) -> None:
    put(cache / "rattler" / "pkgs" / "libc.conda")
    with files.FileLock(output / RUN / "lock"), in_use.shared_lock(cache, RUN, objects_lock("own")):
        kept = clean(output, cache)
    assert set(kept.values()) == {"in use"}
    assert {"a.o", "o", "torch.whl", "libtorch.conda", "libc.conda", "g++"} <= left(output, cache)
    for unused in (
        "objects/own-rehearsal",
        "objects/zstd-feedstock-0123abcd",
        "rattler/zstd-feedstock-0123abcd/linux_64_",
    ):
        assert not (cache / unused).exists()


def test_files_of_a_run_with_another_cache_stay_while_it_runs(output: Path, cache: Path) -> None:
    own = (output / "wheels" / RUN, output / "packages" / f".removed-0123abcd-{RUN}")
    other = output / "packages" / ".removed-0123abcd-another_run"
    for folder in (*own, other):
        put(folder / "x.whl")
    with files.FileLock(output / RUN / "lock"):
        kept = clean(output, cache)
    assert set(kept.values()) == {"in use"}
    assert {Path(path).parts[len(output.parts)] for path in kept} == {RUN, "packages", "wheels"}
    assert set(map(str, own)) <= kept.keys()
    assert str(other) not in kept
    assert {"a.o", "b", "rest", "libtorch.conda", "x.whl"} <= left(output)
    assert "o" not in left(cache)


def test_no_run_can_begin_to_use_files_before_they_are_removed(
    output: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, free = files.remove, list[str]()

    def remove_locked(path: Path) -> None:
        (item,) = (item for item in items if item.path == path)
        if isinstance(item.lock, Path):
            with contextlib.suppress(BusyError), files.sole_user(item.lock, "in use"):
                free.append(str(path))
        else:
            with in_use.exclusive_lock(cache, item.lock) as is_free:
                free.extend([str(path)] if is_free else [])
        real(path)

    monkeypatch.setattr(files, "remove", remove_locked)
    items = list(find_items(output, cache))
    assert {type(item.lock) for item in items} > {str}
    assert [remove(item, cache) for item in items] == [""] * len(items)
    assert not any(item.path.exists() for item in items)
    assert free == []


def test_a_channel_that_a_published_package_needs_stays(output: Path, cache: Path) -> None:
    published.note_channels(output / "packages" / RUN, [Channel.of_folder(cache / "channel/channels" / KEY)])
    kept = clean(output, cache, "channels")
    assert {Path(path).name for path in kept} == {KEY, STORED}
    assert all(RUN in why for why in kept.values())
    assert not (cache / "channel/channels" / KEY[::-1]).exists()


def test_no_file_behind_a_linked_folder_is_found(output: Path, cache: Path, tmp_path: Path) -> None:
    linked = (output / "packages", cache / "channel")
    for folder in linked:
        folder.rename(tmp_path / f"other {folder.name}")
        folder.symlink_to(tmp_path / f"other {folder.name}")
    found = [item.path for item in find_items(output, cache)]
    assert not [path for path in found if path.is_relative_to(linked[0]) or path.is_relative_to(linked[1])]


def test_unpacked_packages_have_the_lock_of_their_run(output: Path, cache: Path) -> None:
    put(cache / "rattler" / RUN / "pkgs" / "package")
    found = {item.path: item for item in find_items(output, cache)}
    foreign = "zstd-feedstock-0123abcd/linux_64_"
    for name in (RUN, foreign):
        item = found[cache / "rattler" / name]
        assert (item.run, item.lock) == (name, name)


def test_the_channels_of_all_runs_stay(output: Path, cache: Path) -> None:
    """An earlier run for another Python may have had other channels than the last one."""
    for name in (KEY, KEY[::-1]):
        channel = Channel.of_folder(cache / "channel/channels" / name)
        published.note_channels(output / "packages" / RUN, [channel])
    assert {Path(path).name for path in clean(output, cache, "channels")} == {KEY, KEY[::-1], STORED}


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b'[["\xff"]]', b'{"a": 1}', b'[["/x"', b'[["https://host:port"]]'],
    ids=["empty", "bytes", "text", "object", "cut", "address"],
)
def test_every_channel_stays_while_the_record_of_needed_ones_is_damaged(
    content: bytes, output: Path, cache: Path
) -> None:
    channel = output / "packages" / RUN
    (channel / ".megabuild-channels.json").write_bytes(content)
    kept = clean(output, cache, "channels")
    assert {Path(path).name for path in kept} == {KEY, KEY[::-1], STORED}
    assert all(
        f"{RUN} may need it" in why and ".megabuild-channels.json is damaged" in why for why in kept.values()
    )
    published.note_channels(channel, [Channel.of_folder(cache / "channel/channels" / KEY)])
    assert {Path(path).name for path in clean(output, cache, "channels")} == {KEY, STORED}, (
        "the next run replaces it"
    )


@pytest.mark.parametrize("instead", ["nothing", "a file"])
def test_every_channel_stays_while_an_output_folder_is_missing(
    tmp_path: Path, output: Path, cache: Path, instead: str
) -> None:
    """Its disk may not be mounted, or it belongs to another user."""
    other = tmp_path / "disk" / "output"
    put(other / "packages" / "x" / published.RECORDS)
    published.note_channels(other / "packages" / "x", [Channel.of_folder(cache / "channel/channels" / KEY)])
    in_use.note_output(cache, other)
    (tmp_path / "disk").rename(tmp_path / "not-mounted")
    if instead == "a file":
        (tmp_path / "disk").touch()
    kept = clean(output, cache, "channels")
    assert {Path(path).name for path in kept} == {KEY, KEY[::-1], STORED}
    (note,) = in_use.outputs(cache).values()
    assert all(f"if {other} is gone for good, delete {note}" in why for why in kept.values())
    (tmp_path / "disk").unlink(missing_ok=True)
    (tmp_path / "not-mounted").rename(tmp_path / "disk")
    assert {Path(path).name for path in clean(output, cache, "channels")} == {KEY, STORED}


@pytest.mark.parametrize("instead", ["nothing", "a file"])
def test_an_output_folder_without_packages_keeps_no_channel(output: Path, cache: Path, instead: str) -> None:
    shutil.rmtree(output / "packages")
    if instead == "a file":
        (output / "packages").touch()
    assert clean(output, cache, "channels") == {}


def test_a_note_of_an_output_folder_that_is_no_file_is_named(output: Path, cache: Path) -> None:
    """A pipe would be waited for, and then nothing known of the packages that need channels."""
    in_use.note_output(cache, output)
    (note,) = in_use.outputs(cache).values()
    note.unlink()
    os.mkfifo(note)
    with pytest.raises(IntegrityError, match=f"{note} is not a regular file"):
        list(find_items(output, cache))


@pytest.mark.parametrize("how", ["tmpfs", "bind"])
def test_a_mounted_folder_stays(output: Path, cache: Path, tmp_path: Path, how: str) -> None:
    precious, point = put(tmp_path / "precious" / "file"), output / RUN / "tree" / "a b"
    point.mkdir()
    words = ["-t", "tmpfs", "none"] if how == "tmpfs" else ["--bind", precious.parent]
    if os.geteuid() != 0 or subprocess.run(["mount", *words, point], capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        (why,) = clean(output, cache, "tree").values()
        assert str(point) in why
        assert precious.exists()
    finally:
        subprocess.run(["umount", "-l", point], check=True)
    assert clean(output, cache, "tree") == {}


def test_a_file_with_two_names_in_a_folder_is_counted_once(tmp_path: Path) -> None:
    os.link(put(tmp_path / "a" / "1", 400_000), tmp_path / "a" / "2")
    assert 400_000 <= size_of(tmp_path / "a") < 420_000


def test_files_of_two_disks_may_have_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def file(device: int, number: int) -> Any:
        status = SimpleNamespace(st_dev=device, st_ino=number, st_blocks=2)
        return SimpleNamespace(lstat=lambda: status)

    monkeypatch.setattr(cleaning, "_walk", lambda _: [file(1, 5), file(2, 5), file(1, 5)])
    assert size_of(Path("/x")) == 2 * 1024


@pytest.mark.parametrize(
    ("run", "config", "belongs"),
    [
        ("linux_64_cpu", "linux_64_cpu", True),
        ("linux_64_cpu-rehearsal", "linux_64_cpu", True),
        ("linux_64_cpu-2.14.0", "linux_64_cpu", True),
        ("linux_64_cpu_debian", "linux_64_cpu", False),
        ("linux_64_cuda130", "linux_64_cuda13", False),
        ("linux_64_cpu", "linux_64_cpu-rehearsal", False),
        ("linux_64_cpu_debian", "linux_64_cpu*", True),
        ("", "linux_64_cpu", False),
        ("", "*", False),
    ],
)
def test_a_config_is_cleaned_with_its_rehearsals_and_releases_alone(
    run: str, config: str, belongs: bool, tmp_path: Path
) -> None:
    options = CleanOptions(configs=(config,), kinds=("tree",), apply=True, output=None)
    assert _is_selected(Item(kind=Kind.TREE, path=tmp_path, run=run), options) == belongs
    assert not _is_selected(Item(kind=Kind.LOGS, path=tmp_path, run=run), options)


def test_the_command_lists_first_and_removes_with_apply(
    output: Path, cache: Path, invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGABUILD_CACHE", str(cache))

    def ask(*words: str) -> str:
        done = call(invocation, "clean", *words, "-o", str(output))
        assert done.exit_code == 0, done.output
        return done.stdout

    shown = ask("*", "--kind", "tree", "--kind", "downloads")
    assert re.findall(r"(?m)^(tree|downloads) +(\S+)", shown) == [
        ("downloads", "zstd-feedstock-0123abcd/linux_64_"), ("tree", RUN),
    ]  # fmt: skip
    assert re.search(r"(?m)^objects +\d", ask("--kind", "objects")), "they belong to no config"
    assert "tree" in ask()
    assert (output / RUN / "tree").exists()
    assert "removed" in ask(RUN, "--kind", "tree", "--apply")
    assert not (output / RUN / "tree").exists()
    before = left(output, cache)
    refused = {
        ("--apply",): 2,
        (RUN, "--apply"): 2,
        ("--kind", "x", "--apply"): 2,
        ("osx",): 3,
        (RUN, "osx", "--kind", "logs", "--apply"): 3,
    }
    for words, code in refused.items():
        assert call(invocation, "clean", *words, "-o", str(output)).exit_code == code
    assert left(output, cache) == before


def test_a_folder_that_is_removed_in_part_is_named_and_not_counted_as_removed(
    output: Path, cache: Path, invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has files of another user, as of a container that ran as root."""
    monkeypatch.setenv("MEGABUILD_CACHE", str(cache))
    remove_all = shutil.rmtree

    def remove_some(path: Path, *, ignore_errors: bool) -> None:
        if not path.name.endswith("-tree"):
            remove_all(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", remove_some)
    octets = size_of(output / RUN / "out")
    words = ["--kind", "tree", "--kind", "work", "--apply", "-o", str(output)]
    (output / RUN / ".removed-0123abcd" / "rest").unlink()
    (output / RUN / ".removed-0123abcd").rmdir()
    done = call(invocation, "clean", RUN, *words)
    (rest,) = (output / RUN).glob(".removed-*-tree")
    tree = output / RUN / "tree"
    assert f"kept {tree}: removed in part; the rest is in {rest}, where some files" in done.stdout
    assert f"removed {size(octets)}\n" in done.stdout


def test_files_that_stay_are_named_with_the_reason_and_not_counted_as_removed(
    output: Path, cache: Path, invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGABUILD_CACHE", str(cache))
    tree = output / RUN / "tree"
    others = ("own-rehearsal", "zstd-feedstock-0123abcd")
    octets = sum(size_of(cache / "objects" / name) for name in others)
    words = ["--kind", "tree", "--kind", "objects", "--apply", "-o", str(output)]
    with files.FileLock(output / RUN / "lock"), in_use.shared_lock(cache, objects_lock("own")):
        done = call(invocation, "clean", *words)
    assert done.exit_code == 0, done.output
    assert tree.exists()
    assert [path.name for path in (cache / "objects").iterdir()] == ["own"]
    assert f"kept {tree} and 1 more: in use" in done.stdout
    published.note_channels(output / "packages" / RUN, [Channel.of_folder(cache / "channel/channels" / KEY)])
    words[3] = "channels"
    with files.FileLock(output / RUN / "lock"):
        shown = call(invocation, "clean", *words).stdout
    reasons = re.findall(r"(?m)^kept .*: (.*)", shown)
    assert sorted(reasons) == ["in use", f"needed to install the packages of {RUN}"]
    assert f"removed {size(octets)}\n" in done.stdout
