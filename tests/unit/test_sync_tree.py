"""Sources copied into a build tree, whatever the kind of an entry was and becomes."""

from __future__ import annotations

import os
import random
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_files import write
from stop_at_write import every_stop

import sync_tree
import tree_dates

NAMES = ("a", "b", "b.sync", "z")
#: The kinds of an entry: a function that makes it at a path.
KINDS = ("file", "folder", "full folder", "link to a file", "link to a folder", "link to nothing", "nothing")


def make(kind: str, path: Path) -> None:
    """Make an entry of this kind; ``real/own.h`` next to it is the target of links."""
    write(path.parent / "real" / "own.h", "real\n")
    if kind == "file":
        write(path, "a file\n")
    elif kind == "folder":
        path.mkdir()
    elif kind == "full folder":
        write(path / "own.h", "in the folder\n")
        write(path / "below" / "other.h", "below\n")
    elif kind == "link to a file":
        path.symlink_to("real/own.h")
    elif kind == "link to a folder":
        path.symlink_to("real")
    elif kind == "link to nothing":
        path.symlink_to("none")


def entries(root: Path) -> dict[str, object]:
    """Kind, mode and content of all entries of a tree."""
    found: dict[str, object] = {}
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if name == sync_tree.MANIFEST:
            continue
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = "folder"
        else:
            found[name] = (stat.S_IMODE(path.stat().st_mode), path.read_text())
    return found


@pytest.mark.parametrize("becomes", KINDS)
@pytest.mark.parametrize("was", KINDS)
@pytest.mark.parametrize("name", ["alias", "zalias", "nested/alias"])
def test_an_entry_of_any_kind_becomes_any_other(name: str, was: str, becomes: str, tmp_path: Path) -> None:
    first, second, tree = tmp_path / "first", tmp_path / "second", tmp_path / "tree"
    make(was, first / name)
    make(becomes, second / name)
    sync_tree.sync(first, tree)
    assert entries(tree) == entries(first)
    sync_tree.sync(second, tree)
    assert entries(tree) == entries(second)
    assert sync_tree.sync(second, tree) == sync_tree.Synced(0, 0, 0)


def random_sources(random_: random.Random, root: Path, outside: Path, depth: int = 3) -> None:
    root.mkdir()
    for name in NAMES:
        kind = random_.choice(["file", "program", "folder", "folder", "link", "nothing"])
        path = root / name
        if kind in ("file", "program"):
            path.write_text(random_.choice(["one\n", "two\n"]))
            path.chmod(0o755 if kind == "program" else 0o644)
        elif kind == "folder" and depth:
            random_sources(random_, path, outside, depth - 1)
        elif kind == "link":
            path.symlink_to(random_.choice([*NAMES, "../a", "../b/z", "none", str(outside)]))


def folders(root: Path) -> Iterator[Path]:
    """All real folders of a tree, itself included, relative to it."""
    for here, _, _ in os.walk(root):
        yield Path(here).relative_to(root)


def keeps_folder(root: Path, folder: Path) -> bool:
    """Whether no file or link is in the place of a folder, or of one above it."""
    places = [root / folder, *(root / above for above in folder.parents)]
    return all(place.is_dir() and not place.is_symlink() for place in places if os.path.lexists(place))


@pytest.mark.parametrize("seed", range(40))
def test_a_tree_becomes_its_sources_and_keeps_objects_and_dates(seed: int, tmp_path: Path) -> None:
    random_ = random.Random(seed)
    first, second, tree, outside = (tmp_path / name for name in ("first", "second", "tree", "outside"))
    for name in NAMES:
        write(outside / name, "another program's\n")
    elsewhere = entries(outside)
    random_sources(random_, first, outside)
    random_sources(random_, second, outside)
    sync_tree.sync(first, tree)
    assert entries(tree) == entries(first)
    for path in tree.rglob("*"):
        os.utime(path, ns=(10**18, 10**18), follow_symlinks=False)
    built = [folder for folder in folders(tree) if random_.random() < 0.5]
    for folder in built:
        write(tree / folder / "made.o", "made\n").chmod(0o644)

    sync_tree.sync(second, tree)

    kept = [folder for folder in built if keeps_folder(second, folder)]
    expected = entries(second)
    for folder in kept:
        expected[(folder / "made.o").as_posix()] = (0o644, "made\n")
        expected |= {above.as_posix(): "folder" for above in [folder, *folder.parents] if above != Path()}
    assert entries(tree) == expected
    for name, entry in entries(first).items():
        if entry == expected.get(name) and entry != "folder":
            assert (tree / name).lstat().st_mtime_ns == 10**18
    assert entries(outside) == elsewhere


@pytest.mark.parametrize("kind", KINDS)
def test_the_temporary_file_of_a_killed_run_is_replaced(kind: str, tmp_path: Path) -> None:
    source, tree = tmp_path / "source", tmp_path / "tree"
    write(source / "real" / "own.h", "real\n")
    write(source / "a.cpp", "int a;\n")
    (source / "link").symlink_to("a.cpp")
    make(kind, tree / tree_dates.SCRATCH)
    sync_tree.sync(source, tree)
    assert entries(tree) == entries(source)


def test_names_of_a_manifest_outside_the_tree_are_ignored(tmp_path: Path) -> None:
    source, tree, mine = tmp_path / "source", tmp_path / "tree", write(tmp_path / "mine", "mine\n")
    source.mkdir()
    write(tree / sync_tree.MANIFEST, f'["../mine", "{mine}", ".", "a/../../mine"]')
    sync_tree.sync(source, tree)
    assert mine.read_text() == "mine\n"


@pytest.fixture
def half_synced(tmp_path: Path) -> Path:
    """Sources, and a tree of former ones: a changed file, a removed one, links, and changed kinds."""
    first, here = tmp_path / "first", tmp_path / "here"
    for folder, text in ((first, "old\n"), (here / "source", "new\n")):
        write(folder / "changed.h", text)
        write(folder / "same.h", "same\n")
    write(first / "gone" / "gone.h", "gone\n")
    write(first / "alias" / "a.h", "a folder\n")
    (here / "source" / "alias").symlink_to("gone")
    (first / "link").symlink_to("same.h")
    (here / "source" / "link").symlink_to("changed.h")
    sync_tree.sync(first, here / "tree")
    write(here / "tree" / "made.o", "made\n")
    return here


def synced(folder: Path) -> None:
    sync_tree.main([str(folder / "source"), str(folder / "tree")])


def test_a_sync_killed_anywhere_is_completed_by_the_next(half_synced: Path) -> None:
    expected = entries(half_synced / "source") | {"made.o": entries(half_synced / "tree")["made.o"]}
    for folder in every_stop(half_synced, synced):
        synced(folder)
        assert entries(folder / "tree") == expected


def test_a_killed_sync_leaves_no_file_to_a_run_with_fewer_sources(half_synced: Path) -> None:
    """Another branch is checked out after the kill."""
    write(half_synced / "source" / "added.h", "added\n")
    for folder in every_stop(half_synced, synced):
        other = folder / "other"
        write(other / "same.h", "same\n")
        sync_tree.sync(other, folder / "tree")
        assert sorted(entries(folder / "tree")) == ["made.o", "same.h"]


def test_a_former_source_is_not_removed_through_a_link(tmp_path: Path) -> None:
    """A build may replace a folder of sources by a link to its own."""
    source = write(tmp_path / "source/folder/a.h").parents[1]
    sync_tree.sync(source, tmp_path / "tree")
    (tmp_path / "tree/folder").rename(tmp_path / "moved")
    (tmp_path / "tree/folder").symlink_to(tmp_path / "moved")
    (source / "folder/a.h").unlink()
    sync_tree.sync(source, tmp_path / "tree")
    assert (tmp_path / "moved/a.h").exists()


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_tree_in_its_sources_own_folder_keeps_them(is_linked: bool, tmp_path: Path) -> None:
    """Without the driver, the tree is in the engine's work folder."""
    source = write(tmp_path / "work/a.cpp").parent
    tree = source
    if is_linked:
        tree = tmp_path / "link"
        tree.symlink_to(source)
    assert sync_tree.main([str(source), str(tree)]) == 0
    assert [path.name for path in source.iterdir()] == ["a.cpp"]


def test_the_engines_own_files_are_no_sources_but_others_of_their_names_are(tmp_path: Path) -> None:
    for name in ("conda_build.log", "build_env.sh", "tools/build_env.sh"):
        write(tmp_path / "work" / name)
    sync_tree.sync(tmp_path / "work", tmp_path / "tree")
    assert entries(tmp_path / "tree").keys() == {"tools", "tools/build_env.sh"}


@pytest.mark.parametrize("changed", ["mode", "content", "kind"])
def test_a_source_of_the_same_size_and_date_is_compared(changed: str, tmp_path: Path) -> None:
    """A patch may change a letter, and patched files may have the date of their archive."""
    source, tree = tmp_path / "work", tmp_path / "tree"
    new = write(source / "a.py", "new\n")
    old = write(tree / "a.py", "old\n" if changed == "content" else "new\n")
    if changed == "mode":
        new.chmod(0o755)
    elif changed == "kind":
        old.rename(tree / "b.py")
        old.symlink_to("b.py")
    for path in (new, old):
        os.utime(path, (1, 1))
    assert sync_tree.sync(source, tree).written == 1
    assert (old.read_text(), old.is_symlink(), old.stat().st_mode) == ("new\n", False, new.stat().st_mode)


def test_without_a_folder_of_sources_the_tree_keeps_its_own(tmp_path: Path) -> None:
    source = write(tmp_path / "source/a.h").parent
    sync_tree.sync(source, tmp_path / "tree")
    source.rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match="source: no such folder of sources"):
        sync_tree.sync(source, tmp_path / "tree")
    assert (tmp_path / "tree/a.h").exists()


def test_a_source_that_was_removed_may_be_made_by_a_build(tmp_path: Path) -> None:
    """It is a build's own file from then on, which no later sync removes."""
    source = write(tmp_path / "source/made.h").parent
    tree = tmp_path / "tree"
    sync_tree.sync(source, tree)
    (source / "made.h").unlink()
    write(source / "other.h")
    sync_tree.sync(source, tree)
    assert not (tree / "made.h").exists()
    write(tree / "made.h", "by the build")
    sync_tree.sync(source, tree)
    assert (tree / "made.h").read_text() == "by the build"


def test_a_source_with_a_date_in_the_future_gets_that_of_today(tmp_path: Path) -> None:
    source = write(tmp_path / "source/a.cpp").parent
    later = time.time() + 1e6
    os.utime(source / "a.cpp", (later, later))
    sync_tree.sync(source, tmp_path / "tree")
    assert (tmp_path / "tree/a.cpp").stat().st_mtime < later - 1000


@pytest.mark.parametrize("left", [False, True], ids=["", "after a kill"])
@pytest.mark.parametrize("makes", ["same", "other"])
def test_a_generated_file_keeps_its_date_while_its_content_is_the_same(
    makes: str, left: bool, tmp_path: Path
) -> None:
    """Else ninja would compile all files that include it."""
    output = write(tmp_path / "made.h", "same")
    os.utime(output, (1e9, 1e9))
    if left:
        write(tmp_path / "made.h.former", "of a killed run")
    changed = sync_tree.generate(output, ["sh", "-c", f'printf {makes} >"$1"', "sh", str(output)])
    assert changed == (makes == "other")
    assert output.read_text() == makes
    assert (output.stat().st_mtime == 1e9) == (makes == "same")
    assert os.listdir(tmp_path) == ["made.h"]
    (tmp_path / "made.h").unlink()
    assert sync_tree.generate(output, ["touch", str(output)])


def test_a_replaced_file_is_newer_than_all_objects_also_where_dates_are_coarse(tmp_path: Path) -> None:
    """Else ninja would keep objects of the former content."""
    old, new = write(tmp_path / "tree/a.cpp", "old"), write(tmp_path / "a.cpp", "new")
    os.utime(new, (1, 1))
    newest = time.time_ns() + 30_000_000
    sync_tree._replace(old, new, tmp_path / "tree", newest)
    assert old.read_text() == "new"
    assert old.stat().st_mtime_ns > newest


@pytest.mark.parametrize("kind", KINDS)
def test_the_temporary_file_of_a_killed_sync_is_not_written_through(kind: str, tmp_path: Path) -> None:
    old, new = write(tmp_path / "tree/a.cpp", "old"), write(tmp_path / "a.cpp", "new")
    make(kind, tmp_path / "tree" / tree_dates.SCRATCH)
    sync_tree._replace(old, new, tmp_path / "tree", 0)
    assert entries(tmp_path / "tree") == {
        "a.cpp": (0o644, "new"), "real": "folder", "real/own.h": (0o644, "real\n"),
    }  # fmt: skip
