"""Two builds in different folders give the same packages, byte for byte, where the build sees the same path.

In bubblewrap it does whatever the folder outside. On the host a path is part of what is made (build IDs, byte code), so
there the output folder is the same and emptied in between. Everything is compiled anew: no object cache.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from package_files import published
from rehearsing import rehearse

pytestmark = pytest.mark.long


@pytest.mark.parametrize("engine", ["bubblewrap", "host"])
def test_two_builds_give_the_same_bytes(tmp_path: Path, engine: str) -> None:
    def build(output: Path) -> dict[str, object]:
        config = "linux_64_cpu_debian" if engine == "bubblewrap" else "linux_64_cpu"
        options = ("--engine", engine, "--python", "3.12")
        done = rehearse(config, output, *options, TORCH_CCACHE="no-object-cache")
        if done.returncode in (4, 5):  # no mirror, or no bubblewrap
            pytest.skip(done.stdout.splitlines()[-1])
        assert done.returncode == 0, done.stdout[-5000:]
        return dict(published(output / "packages"))

    first = build(tmp_path / "a")
    assert len(first) == 2 * 3
    if engine == "host":
        shutil.rmtree(tmp_path / "a")
    assert build(tmp_path / ("a" if engine == "host" else "another/longer")) == first
