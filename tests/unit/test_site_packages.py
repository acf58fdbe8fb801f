"""Each package folder of an environment counts once, also with several names."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_tools.site_packages import find_site_packages


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
