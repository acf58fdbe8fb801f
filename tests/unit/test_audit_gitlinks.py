"""Submodules from a list: of git's own making, or nixpkgs' src.nix."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundwork.errors import AuditError
from pin_audit.gitlinks import Gitlink, read

FMT, XNNPACK, NESTED = (
    "407c905e45ad75fc29bf0f9bb7c5c2fd3475976f",
    "51a0103656eff6fc9bfd39a4597923c4b542c883",
    "a23996fce38ff6ccfbcdc09f1e63f2c4be5ea2ef",
)
TREE = f"100644 blob {'e' * 40}\tREADME\n160000 commit {FMT}\tthird_party/fmt\n160000 commit {XNNPACK}\ta b/XNNPACK\n"
STATUS = (
    f" {FMT} third_party/fmt (12.1.0)\n-{XNNPACK} third_party/XNNPACK\n+{NESTED} a/b/c (v2.2.4-1-ga23996f)\n"
)


def nix(name: str, owner: str, revision: str) -> str:
    fields = f'owner = "{owner}"; repo = "{name}"; rev = "{revision}"; hash = "sha256-";'
    return f"  src_{name} = fetchFromGitHub {{ {fields} }};\n"


def copies(name: str, *places: tuple[str, str]) -> str:
    lines = "".join(f"    cp -r ${{src_{child}_recursive}}/* $out/{path}\n" for child, path in places)
    return f"  src_{name}_recursive = runCommand \"{name}\" {{ }} ''\n    cp -r ${{src_{name}}} $out\n{lines}  '';\n"


SOURCES = nix("top", "pytorch", "v2.12.0") + nix("pipe", "pytorch", FMT) + nix("pybind11", "pybind", NESTED)
BELOW = copies("pipe", ("pybind11", "deps/pybind11")) + copies("top", ("pipe", "third_party/pipe"))
NIX = f"{{ version }}:\nrec {{\n{SOURCES}{BELOW}}}\n"


def listed(text: str, folder: Path) -> tuple[Gitlink, ...]:
    path = folder / "list"
    path.write_text(text, encoding="utf-8")
    return read(path)


def test_ls_tree(tmp_path: Path) -> None:
    assert listed(TREE, tmp_path) == (Gitlink("third_party/fmt", FMT), Gitlink("a b/XNNPACK", XNNPACK))


def test_submodule_status(tmp_path: Path) -> None:
    assert listed(STATUS, tmp_path) == (
        Gitlink("third_party/fmt", FMT, "12.1.0"),
        Gitlink("third_party/XNNPACK", XNNPACK),
        Gitlink("a/b/c", NESTED, "v2.2.4-1-ga23996f"),
    )


def test_src_nix_names_addresses_and_what_lies_below(tmp_path: Path) -> None:
    assert listed(NIX, tmp_path) == (
        Gitlink("third_party/pipe", FMT, "", "https://github.com/pytorch/pipe.git"),
        Gitlink("third_party/pipe/deps/pybind11", NESTED, "", "https://github.com/pybind/pybind11.git"),
    )


def test_a_src_nix_that_contains_itself_ends(tmp_path: Path) -> None:
    loop = NIX.replace(copies("pipe", ("pybind11", "deps/pybind11")), copies("pipe", ("pipe", "again")))
    assert 1 < len(listed(loop, tmp_path)) < 10


@pytest.mark.parametrize("text", ["", "nothing\n", f"160000 commit {FMT[:-1]}\tshort\n"])
def test_a_file_without_any_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="lists no submodules"):
        listed(text, tmp_path)
