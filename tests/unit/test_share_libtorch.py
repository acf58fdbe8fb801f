"""Packing ``torch`` without libtorch, and linking to it afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from small_files import write

import share_libtorch

OF_LIBTORCH = [
    "bin/shm_manager",
    "include/c10/util.h",
    "include/c10/core/a.h",
    "include/torch/a.h",
    "lib/libc10.so",
    "share/cmake/T.cmake",
]
OF_PYTHON = ["__init__.py", "_C.so", "lib/libtorch_python.so", "include/pybind11/p.h", "lib/libown.so"]


def lay(folder: Path, names: list[str], text: str) -> None:
    for name in names:
        write(folder / name, text)


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """An environment with libtorch."""
    lay(tmp_path / "env", OF_LIBTORCH, "libtorch")
    # the environment has this folder too, but not all of it; and a name that torch has elsewhere
    lay(tmp_path / "env", ["include/pybind11/other.h", "__init__.py"], "other")
    return tmp_path / "env"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """What setuptools has collected."""
    lay(tmp_path / "built", [*OF_LIBTORCH, *OF_PYTHON], "torch")
    return tmp_path / "built"


def test_takes_out_what_libtorch_owns_and_nothing_else(built: Path, prefix: Path) -> None:
    lay(prefix, ["lib/libtorch_python.so"], "of another Python")
    taken = share_libtorch.take_out(built, prefix)
    assert taken == [
        "bin/shm_manager",
        "include/c10",
        "include/torch",
        "lib/libc10.so",
        "share/cmake/T.cmake",
    ]
    assert sorted(str(path.relative_to(built)) for path in built.rglob("*") if path.is_file()) == sorted(
        OF_PYTHON
    )


def test_links_lead_to_libtorch_wherever_the_environment_goes(
    built: Path, prefix: Path, tmp_path: Path
) -> None:
    places = share_libtorch.take_out(built, prefix)
    installed = prefix / "lib" / "python3.12" / "site-packages" / "torch"
    shutil.copytree(built, installed)
    assert share_libtorch.link(installed, prefix, places) == len(places) + 1
    moved = tmp_path / "elsewhere"
    prefix.rename(moved)
    there = moved / installed.relative_to(prefix)
    assert {name: (there / name).read_text() for name in OF_LIBTORCH} == dict.fromkeys(
        OF_LIBTORCH, "libtorch"
    )
    assert (there / "include" / "c10").is_symlink()
    assert (there / "lib" / "libtorch_python.so").is_symlink()
    assert (moved / "lib" / "libtorch_python.so").read_text() == "torch"


def test_copies_that_a_wheel_made_of_links_become_links_again(built: Path, prefix: Path) -> None:
    lay(built, ["lib/libtorch_python.so.2", "lib/libtorch_python.so.2.6.0"], "torch")
    lay(built, ["lib/libtorch_python.2.6.0.dylib"], "another one")
    share_libtorch.link(built, prefix, share_libtorch.take_out(built, prefix))
    lib = prefix / "lib"
    files = sorted(path.name for path in lib.glob("libtorch_python*") if not path.is_symlink())
    assert files == ["libtorch_python.2.6.0.dylib", "libtorch_python.so.2.6.0"]
    assert {(lib / f"libtorch_python.so{end}").read_text() for end in ("", ".2", ".2.6.0")} == {"torch"}
    assert (built / "lib" / "libtorch_python.so").read_text() == "torch"


def test_the_command_line_keeps_the_list_in_a_file(
    built: Path, prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noted = tmp_path / "list.txt"
    assert share_libtorch.main(["take-out", str(built), str(prefix), str(noted)]) == 0
    assert share_libtorch.main(["link", str(built), str(prefix), str(noted)]) == 0
    assert "links=6" in capsys.readouterr().out
    assert (built / "lib" / "libc10.so").read_text() == "libtorch"


@pytest.mark.parametrize(
    ("in_torch", "in_environment", "is_owned"),
    [
        (["a.h", "sub/b.h"], ["a.h", "sub/b.h", "c.h"], True),
        (["a.h", "b.h"], ["a.h"], False),
        (["a.h", "b.h"], ["b.h"], False),
        (["a.h", "sub/b.h"], ["sub/b.h"], False),
        ([], [], False),
    ],
)
def test_a_folder_of_headers_is_libtorch_s_if_all_its_files_are(
    in_torch: list[str], in_environment: list[str], is_owned: bool, tmp_path: Path
) -> None:
    (tmp_path / "torch").mkdir()
    lay(tmp_path / "torch", in_torch, "torch")
    lay(tmp_path / "env", in_environment, "libtorch")
    assert share_libtorch.owned(tmp_path / "torch", tmp_path / "env") is is_owned


def test_the_flavours_of_a_library_are_taken_out_and_one_link_leads_to_the_installed_one(
    built: Path, prefix: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A package of its own has each flavour; in the environment of the build is none."""
    flavours = [f"lib/{share_libtorch.LINALG}{end}" for end in (".so", ".so.lapack", "_magma.so")]
    lay(built, flavours, "torch")
    (built / "include/a_link").symlink_to("c10")
    lay(prefix, ["include/a_link/util.h", "include/a_link/core/a.h"], "libtorch")
    noted = tmp_path / "list.txt"
    for action in ("list", "take-out"):
        assert share_libtorch.main([action, str(built), str(prefix), str(noted)]) == 0
        assert set(flavours) <= set(noted.read_text().splitlines())
        assert (built / flavours[0]).exists() == (action == "list")
    assert share_libtorch.main(["link", str(built), str(prefix), str(noted)]) == 0
    links = {path.name for path in (built / "lib").iterdir() if path.is_symlink()}
    assert links == {"libc10.so", "libtorch_python.so", f"{share_libtorch.LINALG}.so"}
    capsys.readouterr()
