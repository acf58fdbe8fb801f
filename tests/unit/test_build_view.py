"""What stands before every compiler: it finds the object cache, and never only itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import megabuild
from megabuild.plan.limits import Limits
from megabuild.run.launcher import COMPILER_LAUNCHER, write_launcher


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TORCH_CCACHE", raising=False)
    monkeypatch.setenv("CCACHE_MAXSIZE", "7G")
    (tmp_path / "tmp").mkdir()
    write_launcher(
        tmp_path,
        Limits(),
        inside=str(tmp_path),
        scripts=str(Path(megabuild.__file__).parent.parent),
        python=sys.executable,
        folder=f"{tmp_path}/objects",
        shared="file:/shared",
        stats=f"{tmp_path}/stats",
    )
    return tmp_path / COMPILER_LAUNCHER


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def compiled(launcher: Path, *folders: Path) -> str:
    path = os.pathsep.join([*map(str, folders), "/usr/bin", "/bin"])
    return subprocess.run(
        [launcher, "echo", "compiled"],
        env={"PATH": path},
        stdout=subprocess.PIPE,
        text=True,
        timeout=10,
        check=True,
    ).stdout.strip()


def test_the_object_cache_is_used_where_there_is_one(launcher: Path, tmp_path: Path) -> None:
    program(tmp_path / "bin" / "ccache", 'echo "cached in $CCACHE_DIR, $CCACHE_MAXSIZE: $*"')
    assert compiled(launcher, tmp_path / "bin") == f"cached in {tmp_path / 'objects'}, 7G: echo compiled"


def test_a_build_that_puts_the_launcher_on_path_as_the_cache_still_ends(
    launcher: Path, tmp_path: Path
) -> None:
    program(tmp_path / "wrapped" / "ccache", f'exec "{launcher}" "$@"')
    assert compiled(launcher, tmp_path / "wrapped") == "compiled"


def test_such_a_build_gets_the_real_cache_if_it_leaves_the_path_as_it_was(
    launcher: Path, tmp_path: Path
) -> None:
    program(tmp_path / "bin" / "ccache", 'echo "cached: $*"')
    path = f"{tmp_path / 'bin'}:/usr/bin:/bin"
    program(tmp_path / "wrapped" / "ccache", f'PATH="{path}" exec "{launcher}" "$@"')
    assert compiled(launcher, tmp_path / "wrapped", tmp_path / "bin") == "cached: echo compiled"
