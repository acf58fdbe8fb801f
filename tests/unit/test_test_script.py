"""What scripts/test says before it begins."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


def test_missing_tools_are_named_and_nobody_is_asked_to_install_servers(
    repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".ci").mkdir()
    shutil.copy(repository / "scripts" / "test", tmp_path / "scripts")
    (tmp_path / ".ci" / "apt-packages.txt").write_text(
        "# program package\nsh dash\nno-such-server a-server\n"
    )
    environ = {name: value for name, value in os.environ.items() if name != "CI"}
    done = subprocess.run(
        [tmp_path / "scripts" / "test"],
        env={**environ, "PYTHON": "false"},  # ends where it would make its environment
        text=True,
        capture_output=True,
        check=False,
    )
    skipped, remedy = done.stderr.splitlines()
    assert skipped == "Tests with tools that are not installed are skipped: a-server."
    assert remedy.endswith("a container with the packages of .ci/apt-packages.txt.")
