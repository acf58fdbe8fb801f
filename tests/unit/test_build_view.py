"""What stands before every compiler: it finds the object cache, and never only itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import megabuild
from megabuild.engine.compiler_gate import NOTES
from megabuild.plan.limits import Limits
from megabuild.run.launcher import COMPILER_LAUNCHER, write_launcher


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TORCH_CCACHE", raising=False)
    monkeypatch.setenv("CCACHE_MAXSIZE", "7G")
    return written(tmp_path)


def written(state: Path) -> Path:
    """The launcher of a state folder, where nothing is known and nothing limited."""
    (state / "tmp").mkdir(exist_ok=True)
    write_launcher(
        state,
        Limits(),
        inside=str(state),
        scripts=str(Path(megabuild.__file__).parent.parent),
        python=sys.executable,
        folder=f"{state}/objects",
        shared="file:/shared",
        stats=f"{state}/stats",
    )
    return state / COMPILER_LAUNCHER


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


def test_of_another_cache_it_is_not_known_what_compilers_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_CCACHE", str(tmp_path / "sccache"))
    program(tmp_path / "sccache", 'echo "$CCACHE_PREFIX sccache: $*"')
    launcher = written(tmp_path)
    done = subprocess.run(
        [launcher, "g++", "-c", "a.c", "-o", "a.o"], capture_output=True, text=True, check=True
    )
    assert done.stdout == " sccache: g++ -c a.c -o a.o\n"
    signs = [line[:2] for line in (tmp_path / "tmp" / NOTES).read_text().splitlines()]
    assert signs == ["> ", "= "], "when it began and ended, and no size"
    monkeypatch.setenv("TORCH_CCACHE", "none")
    program(tmp_path / "compiler", "exit 0")
    subprocess.run([written(tmp_path), tmp_path / "compiler", "-c", "a.c", "-o", "a.o"], check=True)
    sign, _, name, _ = (tmp_path / "tmp" / NOTES).read_text().splitlines()[-1].split()
    assert (sign, name) == ("+", "a.o")
