"""What becomes of a private environment that is not whole."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from megabuild import bootstrap
from megabuild.errors import IntegrityError, PreflightError


@pytest.mark.parametrize(
    "content", ["def main(:\n", "raise ValueError('torn')\n", "\0\0", "import nothing_of_that_name"]
)
def test_a_damaged_module_has_the_environment_set_up_anew(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "lib" / "site-packages"
    site.mkdir(parents=True)
    (site / "torn_module.py").write_text(content)
    (tmp_path / bootstrap.STAMP).write_text("the lock's digest")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    with pytest.raises(IntegrityError, match=r"missing from \.venv or damaged"):
        bootstrap._imported("torn_module")
    assert not (tmp_path / bootstrap.STAMP).exists()


def test_a_fault_of_ours_is_not_the_environment_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "our_module.py").write_text("def main(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SyntaxError):
        bootstrap._imported("our_module")


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A repository on a disk that is read-only."""
    root = tmp_path / "repository"
    root.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro", "none", root], check=False, capture_output=True
    )
    if done.returncode != 0:
        pytest.skip("only root may mount")
    yield root
    subprocess.run(["umount", "-l", root], check=True)


def test_a_repository_that_is_read_only_has_its_environment_in_the_cache(
    read_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    assert bootstrap._home(read_only) == tmp_path / "cache" / "venv"
    assert bootstrap._home(tmp_path) == tmp_path / ".venv"
    monkeypatch.setenv("MEGABUILD_CACHE", "/proc/nowhere")
    with pytest.raises(PreflightError, match="can be written to"):
        bootstrap._home(read_only)
