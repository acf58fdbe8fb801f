"""Which objects a compiler made and which the object cache had: the launcher's notes, written and read."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from small_files import program, write

from megabuild.engine.compile_notes import NOTES, read_notes
from megabuild.run.launcher import COMPILER_LAUNCHER, write_launcher


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TORCH_CCACHE", "CCACHE_REMOTE_STORAGE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "tmp").mkdir()
    write_launcher(tmp_path, inside=str(tmp_path), folder=f"{tmp_path}/objects")
    return tmp_path / COMPILER_LAUNCHER


def compile_object(launcher: Path, source: str, made: str, path: str = os.environ["PATH"]) -> None:
    state = launcher.parent
    write(state / "a.c", source)
    command = [str(launcher), "cc", "-c", "a.c", "-o", made]
    subprocess.run(command, cwd=state, check=True, env={"PATH": path}, timeout=60)


@pytest.mark.skipif(shutil.which("ccache") is None, reason="ccache is not installed")
def test_an_object_from_the_cache_has_no_note(launcher: Path) -> None:
    state = launcher.parent
    began = time.time()
    compile_object(launcher, "int f(void) { return 1; }", "deep.o")
    assert read_notes(state).was_compiled("deep.o", began, time.time())
    (state / NOTES).unlink()
    again = time.time()
    compile_object(launcher, "int f(void) { return 1; }", "deep.o")  # the notes changed no key
    notes = read_notes(state)
    assert notes.covers(again)
    assert not notes.starts
    compile_object(launcher, "int f(void) { return 2; }", "deep.o")
    assert list(read_notes(state).starts) == ["deep.o"]


def test_without_a_cache_each_object_has_a_note(launcher: Path, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    program(programs / "cc", "exit 0")
    for name in ("date", "sh"):
        (programs / name).symlink_to(str(shutil.which(name)))
    for made in ("x.o", "sub folder/y.o"):
        compile_object(launcher, "", made, path=str(programs))
    notes = read_notes(tmp_path)
    assert set(notes.starts) == {"x.o", "sub folder/y.o"}
    assert notes.covers(time.time())


def test_another_cache_s_objects_have_no_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = program(tmp_path / "sccache", "exit 0")
    monkeypatch.setenv("TORCH_CCACHE", str(other))
    (tmp_path / "tmp").mkdir()
    write_launcher(tmp_path, inside=str(tmp_path), folder=f"{tmp_path}/objects")
    compile_object(tmp_path / COMPILER_LAUNCHER, "", "x.o")
    assert not read_notes(tmp_path).covers(time.time()), "unknown, not from the cache"


def test_a_folder_that_cannot_be_written_does_not_stop_a_compile(launcher: Path, tmp_path: Path) -> None:
    (tmp_path / "tmp").rmdir()
    program(tmp_path / "bin" / "cc", "exit 0")
    result = subprocess.run(
        [launcher, "cc", "-o", "x.o"],
        env={"PATH": f"{tmp_path}/bin:/bin:/usr/bin", "CCACHE_DISABLE": "1"},
        capture_output=True,
        timeout=60,
    )
    assert (result.returncode, result.stderr) == (0, b"")


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    content = b"100\n200 a.o\n\n x.o\n-5 y.o\n" + b"9" * 40 + b" z.o\nx 1\n\xff\x00\n201 a.o\n202 being writ"
    write(tmp_path / NOTES, content)
    notes = read_notes(tmp_path)
    assert notes.since == 100
    assert notes.starts == {"a.o": [200.0, 201.0]}
    assert not notes.covers(98)
    assert notes.was_compiled("a.o", 200.9, 230)
    assert not notes.was_compiled("a.o", 210, 230)
    assert not notes.was_compiled("b.o", 0, 1000)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "secret", "100 a.o\n")
    (tmp_path / "tmp").mkdir()
    (tmp_path / NOTES).symlink_to(tmp_path / "secret")
    assert read_notes(tmp_path).since is None
    assert read_notes(tmp_path / "missing").since is None
