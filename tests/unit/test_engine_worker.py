"""What the worker does around the engine's calls."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from megabuild.engine import worker


@pytest.mark.parametrize("variable", ["RATTLER_CACHE_DIR", "XDG_CACHE_HOME"])
def test_a_former_build_of_the_same_name_is_forgotten_before_a_test(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RATTLER_CACHE_DIR", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    packages = (tmp_path if variable == "RATTLER_CACHE_DIR" else tmp_path / "rattler" / "cache") / "pkgs"
    former, other = packages / "a-1-h0_0" / "info", packages / "a-1-h0_1" / "info"
    for folder in (former, other):
        folder.mkdir(parents=True)
    worker.forget("a-1-h0_0.conda")
    worker.forget("a-1-h0_0.conda")
    assert [path.name for path in packages.iterdir()] == ["a-1-h0_1"]


def test_packages_that_lie_there_for_other_runs_are_not_tested(tmp_path: Path) -> None:
    for name in ("linux-64/a-1-h0_0.conda", "noarch/b-1-h0_0.conda", "linux-64/other-1-h0_0.conda"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    planned = ["a-1-h0_0.conda", "b-1-h0_0.conda", "gone-1-h0_0.conda"]
    job = {"output_dir": str(tmp_path), "target_platform": "linux-64", "planned": planned}
    assert [path.name for path in worker.packages(job)] == planned[:2]


@pytest.mark.parametrize(
    ("unpacked", "times", "content", "foreign"),
    [
        (False, 3, "another", False),  # the engine unpacked the file itself
        (True, 4, "own", False),  # unpacked once, for an environment
        (True, 4, "another", True),
        (True, 5, "own", True),  # somebody else's in between
    ],
)
def test_a_package_unpacked_from_another_file_of_the_same_name_is_noticed(
    unpacked: bool, times: int, content: str, foreign: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATTLER_CACHE_DIR", str(tmp_path))
    package = tmp_path / "a-1-h0_0.conda"
    package.write_text("own")
    (tmp_path / "pkgs" / "a-1-h0_0").mkdir(parents=True)
    if not unpacked:
        worker.forget(package.name)
    lock = times.to_bytes(8, "big") + hashlib.sha256(content.encode()).digest()
    (tmp_path / "pkgs" / "a-1-h0_0.lock").write_bytes(lock)
    assert worker.foreign(package, before=3) is foreign
