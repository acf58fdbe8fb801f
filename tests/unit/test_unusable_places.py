"""Full disks and unwritable folders: an error with its exit code, and the next run resumes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny import Tiny

from command_line.run_command import Invocation, outcome
from groundwork.errors import OutOfSpaceError, PreflightError
from groundwork.files import writable


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder with its own file system, unmounted at the end."""
    folder = tmp_path / "small"
    folder.mkdir()
    yield folder
    subprocess.run(["umount", "-l", str(folder)], stderr=subprocess.DEVNULL)


def mounted(folder: Path, options: str) -> Path:
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True)
    if done.returncode != 0:
        pytest.skip("only root may mount")
    return folder


@pytest.mark.parametrize(
    "limit", ["size=4k", "size=40k", "size=200k", "nr_inodes=4", "nr_inodes=30", "nr_inodes=80"]
)
def test_a_full_disk_is_named(
    limit: str, tiny: Tiny, small: Path, tmp_path: Path, invocation: Invocation
) -> None:
    tiny.output = mounted(small, limit)
    code = outcome(lambda: tiny.run(pythons=("3.12",), cache=tmp_path / "cache"), invocation)
    assert code == OutOfSpaceError.exit_code
    assert not list(tmp_path.rglob("crash-*"))


def test_a_full_disk_of_the_cache_is_named(tiny: Tiny, small: Path, invocation: Invocation) -> None:
    cache = mounted(small, "nr_inodes=1")
    assert outcome(lambda: tiny.plan(cache=cache), invocation) == OutOfSpaceError.exit_code


def test_a_read_only_disk_is_refused(tiny: Tiny, small: Path, invocation: Invocation, tmp_path: Path) -> None:
    tiny.output = mounted(small, "ro")
    code = outcome(lambda: tiny.run(cache=tmp_path / "cache"), invocation)
    assert code == PreflightError.exit_code


@pytest.mark.parametrize("place", ["/proc/here", "/sys/here", "file/below", "/dev/null"])
def test_an_unwritable_folder_is_named(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PreflightError, match="written to") as caught:
        writable(tmp_path / place, "choose another")
    assert os.path.basename(place) in caught.value.message


@pytest.mark.parametrize("which", ["output", "cache"])
def test_a_disk_without_programs_is_named_before_work(
    which: str,
    tiny: Tiny,
    small: Path,
    invocation: Invocation,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    disk = mounted(small, "noexec")
    tiny.output = disk if which == "output" else tiny.output
    cache = disk if which == "cache" else tmp_path / "cache"
    assert outcome(lambda: tiny.run(pythons=("3.12",), cache=cache), invocation) == PreflightError.exit_code
    assert "mounted noexec" in capsys.readouterr().err
