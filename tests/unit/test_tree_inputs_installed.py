"""Files that an earlier install of a kept tree left behind are deleted, and no others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_files import write
from stop_at_write import every_stop_in_place

from tree_inputs import __main__ as tree_inputs
from tree_inputs import compare, installed, outputs, snapshot
from tree_inputs.compare import Comparison
from tree_inputs.owners import Owner
from tree_inputs.record import Kind, Source
from tree_inputs.tree import Tree


def install(tree: Path, *names: str) -> None:
    """Install files, as CMake does, and list them."""
    paths = [write(tree / "torch" / name, name) for name in names]
    write(tree / "build" / "install_manifest.txt", "\n".join(map(str, paths)))


def names(tree: Path) -> set[str]:
    return {str(path.relative_to(tree / "torch")) for path in (tree / "torch").rglob("*") if path.is_file()}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with a source in the folder into which it is installed."""
    write(tmp_path / "tree/torch/lib/source.cpp", "")
    return tmp_path / "tree"


def test_a_header_of_a_former_release_is_deleted(tree: Path) -> None:
    install(tree, "include/kept.h", "include/gone.h", "lib/libtorch.so")
    installed.note(tree / "build")
    install(tree, "include/kept.h", "lib/libtorch.so")
    assert installed.remove_former(tree / "build", tree / "torch") == (str(tree / "torch/include/gone.h"),)
    assert names(tree) == {"include/kept.h", "lib/libtorch.so", "lib/source.cpp"}


def test_a_header_of_an_install_that_was_killed_is_deleted_later(tree: Path) -> None:
    install(tree, "include/gone.h")
    installed.note(tree / "build")
    install(tree, "include/kept.h")  # and killed before the former files were deleted
    installed.note(tree / "build")
    install(tree, "include/kept.h")
    installed.remove_former(tree / "build", tree / "torch")
    assert names(tree) == {"include/kept.h", "lib/source.cpp"}


def test_a_former_file_is_deleted_wherever_its_deletion_is_killed(tree: Path) -> None:
    def prepare() -> None:
        install(tree, "include/kept.h", "include/gone.h", "lib/gone.so")
        installed.note(tree / "build")
        install(tree, "include/kept.h")

    def remove() -> None:
        installed.remove_former(tree / "build", tree / "torch")

    for _ in every_stop_in_place(tree, prepare, remove):
        installed.note(tree / "build")
        install(tree, "include/kept.h")
        remove()
        assert names(tree) == {"include/kept.h", "lib/source.cpp"}


def test_an_install_elsewhere_in_between_hides_no_file(tree: Path) -> None:
    install(tree, "include/gone.h")
    installed.note(tree / "build")
    installed.remove_former(tree / "build", tree / "torch")
    write(tree / "build/install_manifest.txt", "/tmp/of-the-back-end/include/other.h\n")
    installed.note(tree / "build")
    install(tree, "include/kept.h")
    installed.remove_former(tree / "build", tree / "torch")
    assert names(tree) == {"include/kept.h", "lib/source.cpp"}


def test_a_source_in_place_of_an_installed_file_is_kept(tree: Path) -> None:
    install(tree, "lib/source.cpp", "include/gone.h")
    write(tree / ".megabuild-sync.json", json.dumps(["torch/lib/source.cpp"]))
    installed.note(tree / "build")
    install(tree)
    installed.remove_former(tree / "build", tree / "torch")
    assert names(tree) == {"lib/source.cpp"}


def test_all_installed_files_are_deleted_if_the_environment_changed(tree: Path) -> None:
    """CMake keeps an installed file that has the date of its replacement, as headers of wheels may have."""
    install(tree, "include/of-a-former-install.h")
    installed.note(tree / "build")
    install(tree, "include/pybind11/common.h")
    installed.forget(tree / "build", tree / "torch")
    assert names(tree) == {"lib/source.cpp"}


def test_they_are_deleted_also_after_a_kill_in_between(tree: Path) -> None:
    """A tree without a record: all outputs are removed, and ninja's log, then all installed files."""

    def prepare() -> None:
        install(tree, "include/pybind11/common.h")
        write(tree / "build/.ninja_log", "# ninja log v7\n")

    def compare() -> None:
        tree_inputs.main(["compare", str(tree / "build"), str(tree / "torch")])

    for _ in every_stop_in_place(tree, prepare, compare):
        compare()
        assert names(tree) == {"lib/source.cpp"}


@pytest.mark.parametrize("name", ["installed-before.txt", "install_manifest.txt"])
def test_lists_that_a_build_damaged_delete_nothing_outside(
    name: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = write(tree.parent / "outside/mine.txt", "mine")
    write(tree / "build/other.txt", "")
    (tree / "torch/way-out").symlink_to(outside.parent)
    forged = [
        str(outside), str(tree / "torch/../../outside/mine.txt"), str(tree / "torch/way-out/mine.txt"),
        str(tree / "torch"), f"{tree}/torch/..", "relative/mine.txt", str(tree / "build/other.txt"), "/",
    ]  # fmt: skip
    write(tree / "build" / name, "\n".join(forged).encode() + b"\n\xff\xfe/\x00\n")
    relative = write(tree / "torch/relative/mine.txt")
    monkeypatch.chdir(tree / "torch")
    installed.forget(tree / "build", tree / "torch")
    assert outside.read_text() == "mine"
    assert relative.exists()
    assert (tree / "build/other.txt").exists()


def test_a_list_that_is_a_link_or_a_pipe_is_not_followed(tree: Path) -> None:
    victim = write(tree.parent / "victim.txt", f"{tree}/torch/lib/source.cpp\n")
    (tree / "build").mkdir()
    former = tree / "build/installed-before.txt"
    former.symlink_to(victim)
    os.mkfifo(tree / "build/install_manifest.txt")
    installed.note(tree / "build")
    assert victim.read_text() == f"{tree}/torch/lib/source.cpp\n"
    assert not former.is_symlink()
    assert installed.remove_former(tree / "build", tree / "torch") == ()


def test_staging_compares_before_configuring_and_records_last(repository: Path) -> None:
    script = (repository / "recipe/build_staging.sh").read_text()
    steps = (
        '"$RECIPE_DIR/sync_tree.py"',
        'tree_inputs" compare build',
        "configured-with.txt 2>",
        "configure_tree\n",
        'tree_inputs" begin build',
        "\ninstall_tree",
        "phase check",
        'tree_inputs" record build',
        "install_libtorch.py",
    )
    places = [script.index(step) for step in steps]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("compare", "::megabuild:: inputs files=0 objects=0 links=0 others=0\n"),
        ("begin", "warning: tree_inputs begin: "),
        ("record", "warning: no record of the compile's start"),
    ],
)
def test_a_tree_that_is_not_configured_ends_no_build(
    command: str, says: str, tree: Path, repository: Path
) -> None:
    words = [sys.executable, str(repository / "recipe/tree_inputs"), command, "build", "torch"]
    (tree / "build").mkdir()
    done = subprocess.run(words, cwd=tree, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(says)
    assert done.stderr == ""


def test_what_a_record_lacks_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next build compiles more than its user expects."""
    recorded = SimpleNamespace(unknown=("/env/a.h", "/env/b.h"), record=SimpleNamespace(files={}))
    monkeypatch.setattr(installed, "remove_former", lambda *_: ())
    monkeypatch.setattr(snapshot, "record", lambda *_: recorded)
    assert tree_inputs.main(["record", str(tmp_path), str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "warning: files changed during the compile" in said
    assert "/env/a.h, /env/b.h" in said
    monkeypatch.setattr(snapshot, "record", lambda *_: None)
    monkeypatch.setattr(installed, "remove_former", lambda *_: ("include/former.h",))
    assert tree_inputs.main(["record", str(tmp_path), str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "warning: no record of the compile's start" in said
    assert "include/former.h" in said, "else it would be packed"


TEN = ", ".join(f"/env/{number:02}.h" for number in range(10))


@pytest.mark.parametrize(
    ("changes", "says", "is_forgotten"),
    [
        ({}, "", False),
        ({"folders": ("/env/lib",)}, "-- changed: /env/lib\n", True),
        (
            {"is_proven": False},
            "-- no record of the files that this tree's objects read: everything is compiled again\n",
            True,
        ),
        (
            {
                "files": tuple(f"/env/{number:02}.h" for number in range(12)),
                "removed": {Kind.CORE: 2, Kind.CUDA: 1},
            },
            f"-- changed: a-package: {TEN} and 1 more\n-- changed: no package: /env/11.h\n",
            True,
        ),
    ],
)
def test_a_changed_environment_is_printed_and_forgets_what_was_installed(
    changes: dict[str, Any],
    says: str,
    is_forgotten: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A file of several packages is printed once; the counts of the last line are those of all files."""
    found = Comparison(**{"is_proven": True, "links": 4, "others": 5, **changes})
    forgotten: list[tuple[Path, Path]] = []
    owners = {Owner(Source.HOST, "a-package"), Owner(Source.HOST, "b-package")}
    owned = SimpleNamespace(of=lambda path: set() if path == "/env/11.h" else owners)
    monkeypatch.setattr(compare, "compare", lambda *_: found)
    monkeypatch.setattr(installed, "forget", lambda *paths: forgotten.append(paths))
    monkeypatch.setattr(tree_inputs, "Owners", lambda _: owned)
    assert tree_inputs.main(["compare", str(tmp_path), "/installed"]) == 0
    counts = "".join(f" {kind.value}={count}" for kind, count in found.removed.items())
    figures = f"files={len(found.files)} objects={sum(found.removed.values())} links=4 others=5{counts}"
    assert capsys.readouterr().out == f"{says}::megabuild:: inputs {figures}\n"
    assert forgotten == ([(tmp_path, Path("/installed"))] if is_forgotten else [])


def test_a_compile_begins_without_dead_outputs_and_with_its_files_recorded_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps: list[str] = []

    def step(name: str, result: object) -> Callable[..., object]:
        def run(*_: object) -> object:
            steps.append(name)
            return result

        return run

    monkeypatch.setattr(Tree, "load", lambda _: None)
    monkeypatch.setattr(outputs, "remove_dead", step("remove_dead", ("generated.h",)))
    monkeypatch.setattr(installed, "note", step("note", None))
    monkeypatch.setattr(snapshot, "begin", step("begin", 7))
    assert tree_inputs.main(["begin", str(tmp_path), "/installed"]) == 0
    assert steps == ["remove_dead", "note", "begin"]
    said = "-- removed 1 files that are no longer made: generated.h\n-- recorded 7 files outside the tree\n"
    assert capsys.readouterr().out == said
