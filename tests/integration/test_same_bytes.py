"""Two builds in different folders give the same packages, byte for byte, where the build sees the same path.

In bubblewrap it does whatever the folder outside. On the host a path is part of what is made (build IDs, byte code), so
there the output folder is the same and emptied in between. Everything is compiled anew: no object cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from package_files import published

pytestmark = pytest.mark.long


def build(repository: Path, output: Path, *arguments: str) -> dict[str, object]:
    """Make packages; return their hashes and what they hold, by name."""
    done = subprocess.run(
        [sys.executable, repository / "build-locally.py", *arguments, "--output", output],
        env={**os.environ, "TORCH_CCACHE": "no-object-cache"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode in (4, 5):  # no mirror, or no bubblewrap
        pytest.skip(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout[-5000:]
    assert "objects reused" not in done.stdout
    return dict(published(output / "packages"))


def test_in_bubblewrap_from_any_folder(repository: Path, tmp_path: Path) -> None:
    options = ("linux_64_cpu_debian", "--rehearse", "--engine", "bubblewrap", "--python", "3.12")
    first = build(repository, tmp_path / "a", *options)
    assert len(first) == 2 * 3
    assert build(repository, tmp_path / "another" / "longer", *options) == first


def test_on_the_host_in_one_folder(repository: Path, tmp_path: Path) -> None:
    output = tmp_path / "output"
    first = build(repository, output, "linux_64_cpu", "--rehearse", "--python", "3.12", "--engine", "host")
    assert len(first) == 2 * 3
    shutil.rmtree(output)
    assert (
        build(repository, output, "linux_64_cpu", "--rehearse", "--python", "3.12", "--engine", "host")
        == first
    )
