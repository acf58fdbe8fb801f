"""Each package folder of an environment counts once, also with several names."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_files import write

from gpu_tools.site_packages import find_import_folders, find_metadata, find_site_packages


def make_site(prefix: Path, folder: str) -> Path:
    site = prefix / folder
    site.mkdir(parents=True)
    return site


def found(prefix: Path) -> list[tuple[str, str]]:
    return [(site.folder.relative_to(prefix).as_posix(), site.python) for site in find_site_packages(prefix)]


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("lib/python3.1", "python3.12"),
        ("lib/python3.1", "{prefix}/lib/python3.12"),
        ("lib/python3.1", "{other}/lib/python3.12"),  # a copied environment
        ("lib/python3.1", "nowhere"),
        ("lib/python3.1", "python3.1"),
        ("lib64", "lib"),
        ("lib/python3.12/dist-packages", "site-packages"),
    ],
)
def test_a_link_is_not_a_second_folder(tmp_path: Path, link: str, target: str) -> None:
    prefix, other = tmp_path / "env", tmp_path / "other"
    for environment in (prefix, other):
        make_site(environment, "lib/python3.12/site-packages")
    (prefix / link).symlink_to(target.format(prefix=prefix, other=other))
    assert [python for _, python in found(prefix)] == ["3.12"]
    (alias := tmp_path / "alias").symlink_to(prefix)
    assert [python for _, python in found(alias)] == ["3.12"]


def test_the_existing_python_comes_first(tmp_path: Path) -> None:
    """Old conda installs packages for every Python into python3.13, where the interpreter is python3.13t."""
    for folder in ("python3.13/site-packages", "python3.13t/site-packages", "python3/dist-packages"):
        make_site(tmp_path, f"lib/{folder}")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3.13t").touch()
    assert [python for _, python in found(tmp_path)] == ["3.13t", "3.13"]


def test_packages_of_a_folder_have_metadata_and_remains_of_pip_are_none(tmp_path: Path) -> None:
    for name in ("b-1.dist-info", "a.egg-info", "~orch-1.dist-info", "c.data-info", "d.dist-info.old"):
        (tmp_path / name).mkdir()
    assert [path.name for path in find_metadata(tmp_path)] == ["a.egg-info", "b-1.dist-info"]


def test_editable_installations_and_named_folders_are_found_without_running_anything(tmp_path: Path) -> None:
    site = make_site(tmp_path, "lib/python3.12/site-packages")
    for name in ("beside", "absolute", "src/pkg", "other/real", "nested/sub"):
        (tmp_path / name).mkdir(parents=True)
    lines = [
        "# ../../../beside",
        "import os; os.mkdir('x')",
        "import\tsys",
        "",
        "  ../../../beside  ",
        "../../../gone",
    ]
    write(site / "b.pth", "\n".join(lines))
    write(site / "a.pth", f"{tmp_path / 'absolute'}\n{site / '../../../beside'}\n")
    folders = {"pkg": "src/pkg", "alias": "other/real", "ns.sub": "nested/sub", "gone": "gone/gone"}
    mapping = {name: str(tmp_path / folder) for name, folder in folders.items()}
    write(site / "__editable___pkg_1_finder.py", f"MAPPING: dict[str, str] = {mapping}\nNAMESPACES = {{}}\n")
    assert find_import_folders(site) == [tmp_path / "absolute", tmp_path / "beside", tmp_path / "src"]
