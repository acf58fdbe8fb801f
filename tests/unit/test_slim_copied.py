"""`megabuild slim --undo` and `--apply` where an environment was copied, changed or upgraded since it was slimmed."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from slim_world import SITE, environment, record, tree, wrong_in_records
from test_sizes_cli import call
from test_slim_in_place import TORCH, killed, loads

from command_line.run_command import Invocation
from groundwork.errors import IntegrityError, NotUndoneError, UsageError

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
BACKUP = ".megabuild-slim"
TORCHS_LIST = f"{SITE}/torch-2.13.0.dist-info/RECORD"
COPIES = {
    "cp": "cp -r {source} {target}",
    "tar": "mkdir {target} && tar -C {source} -c . | tar -C {target} -x",  # dates in whole seconds
    "old": "cp -r {source} {target} && find {target} -exec touch -hd 1980-01-01 {{}} +",  # as some images have them
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("made") / "env")


@pytest.fixture
def env(made: Path, tmp_path: Path) -> Path:
    subprocess.run(["cp", "-a", made, tmp_path], check=True)
    return tmp_path / "env"


def copy(source: Path, how: str = "cp") -> Path:
    target = source.with_name("copy")
    subprocess.run(COPIES[how].format(source=source, target=target), shell=True, check=True)
    return target


def content(root: Path) -> Mapping[str, tuple[object, ...]]:
    """Return what a copy keeps of a tree: all but dates and the number of hard links."""
    return {path: (one[0], one[3]) for path, one in tree(root).items()}


def originals(root: Path) -> dict[str, bytes]:
    """Return the originals in the folder for them, by their path in the environment, wherever they lie in it."""
    return {
        str(path).partition("/originals/")[2]: path.read_bytes()
        for path in (root / BACKUP).rglob("*")
        if path.is_file() and not path.is_symlink() and "originals" in path.parts
    }


def upgrade(env: Path) -> bytes:
    """Put a later torch in place of the one that is there; return the library that it had."""
    library = env / TORCH
    library.unlink()
    library.write_bytes(b"a later one")
    shutil.rmtree(env / TORCHS_LIST.removesuffix("/RECORD"))
    record(env, "torch", "2.14.0", ["torch"])
    return next(data for path, data in originals(env).items() if path == TORCH)


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_comes_back_as_it_was(
    env: Path, invocation: Invocation, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    before = content(env)
    assert call(invocation, "slim", str(env), "--keep", "symbols", "--apply") == 0
    assert call(invocation, "slim", str(env), "--apply") == 0
    copied = copy(env, how)
    assert call(invocation, "slim", str(copied), "--undo") == 0
    assert "is as it was" in " ".join(capsys.readouterr().out.split())
    assert content(copied) == before
    assert call(invocation, "slim", str(env), "--undo") == 0
    assert content(env) == before


def test_a_copy_can_be_slimmed_anew_and_comes_back(env: Path, invocation: Invocation) -> None:
    before = content(env)
    assert call(invocation, "slim", str(env), "--apply") == 0
    copied = copy(env)
    assert call(invocation, "slim", str(copied), "--keep", "compile", "--apply") == 0
    assert (copied / SITE / "triton/__init__.py").exists()
    assert wrong_in_records(copied) == []
    assert call(invocation, "slim", str(copied), "--undo") == 0
    assert content(copied) == before


@pytest.mark.parametrize("what", ["--apply", "--undo"])
def test_a_copy_of_what_was_cut_short_comes_back(env: Path, invocation: Invocation, what: str) -> None:
    """While it is slimmed, a library and its original are one file, which a copy makes two of."""
    before = content(env)
    count = int(killed(env, 0, "--apply").stderr.split()[-1])
    if what == "--apply":
        assert call(invocation, "slim", str(env), "--undo") == 0
    for at in (count // 3, count // 2, count - 12) if what == "--apply" else (4, 12, 30):
        if what == "--undo":
            assert call(invocation, "slim", str(env), "--apply") == 0
        assert killed(env, at, what).returncode == -signal.SIGKILL
        copied = copy(env)
        assert call(invocation, "slim", str(copied), "--undo") == 0
        assert content(copied) == before, f"killed at change {at}"
        shutil.rmtree(copied)
        assert call(invocation, "slim", str(env), "--undo") == 0


def test_what_was_installed_again_as_it_was_is_nobody_else_s(env: Path, invocation: Invocation) -> None:
    before = content(env)
    assert call(invocation, "slim", str(env), "--apply") == 0
    for path in (TORCH, TORCHS_LIST, f"{SITE}/torch/include/torch.h"):
        place = env / path
        place.parent.mkdir(exist_ok=True)
        place.unlink(missing_ok=True)
        place.write_bytes(originals(env)[path])
    assert call(invocation, "slim", str(env), "--undo") == 0
    assert content(env) == before


def test_a_file_that_was_changed_is_left_with_its_original_until_it_is_moved_away(
    env: Path, invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(env)
    assert call(invocation, "slim", str(env), "--apply") == 0
    copied = copy(env)
    (copied / TORCH).chmod(0o755)
    (copied / TORCH).write_bytes(b"mine")
    capsys.readouterr()
    assert call(invocation, "slim", str(copied), "--undo") == NotUndoneError.exit_code
    told = capsys.readouterr()
    assert "is as it was" not in told.out
    for word in (TORCH, "torch-2.13.0", f"{copied}/{BACKUP}", "--forget"):
        assert word in told.err
    assert (copied / TORCH).read_bytes() == b"mine"
    assert [*originals(copied)] == [TORCH]
    (copied / TORCH).unlink()
    assert call(invocation, "slim", str(copied), "--undo") == 0
    assert content(copied) == before


def test_originals_of_a_package_that_was_upgraded_are_kept_until_they_are_forgotten(
    env: Path, invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(invocation, "slim", str(env), "--apply") == 0
    former = upgrade(env)
    whole = tree(env)
    assert call(invocation, "slim", str(env), "--keep", "symbols", "--apply") == NotUndoneError.exit_code
    assert "torch-2.13.0" in capsys.readouterr().err
    assert tree(env) == whole
    upgraded = content(env / SITE / "torch")
    assert call(invocation, "slim", str(env), "--undo") == NotUndoneError.exit_code
    assert content(env / SITE / "torch") == upgraded
    assert (env / SITE / "triton/__init__.py").exists()
    assert originals(env)[TORCH] == former
    assert call(invocation, "slim", str(env), "--forget") == 0
    assert not (env / BACKUP).exists()
    assert call(invocation, "slim", str(env), "--apply") == 0
    assert wrong_in_records(env) == []


def test_originals_that_a_copy_left_out_are_missed(
    env: Path, invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(invocation, "slim", str(env), "--apply") == 0
    for path in (
        f"{SITE}/torch/include/torch.h",
        f"{SITE}/torch/__pycache__/__init__.cpython-311.pyc",
        TORCH,
    ):
        (env / BACKUP / "originals" / path).unlink()
    copied = copy(env)
    assert call(invocation, "slim", str(copied), "--undo") == NotUndoneError.exit_code
    assert "torch-2.13.0: " in capsys.readouterr().err
    assert (copied / SITE / "triton/__init__.py").exists()
    assert loads(copied / TORCH)


def test_originals_without_a_manifest_are_not_deleted(env: Path, invocation: Invocation) -> None:
    assert call(invocation, "slim", str(env), "--apply") == 0
    (env / BACKUP / "manifest.json").unlink()
    kept = originals(env)
    for what in ("--undo", "--apply", "--forget"):
        assert call(invocation, "slim", str(env), what) == IntegrityError.exit_code
    assert originals(env) == kept


def test_nothing_is_put_where_a_link_leads(env: Path, invocation: Invocation, tmp_path: Path) -> None:
    assert call(invocation, "slim", str(env), "--apply") == 0
    mine = tmp_path / "sources"
    mine.mkdir()
    (env / SITE / "triton").symlink_to(mine)
    assert call(invocation, "slim", str(env), "--undo") == NotUndoneError.exit_code
    assert not [*mine.iterdir()]
    assert f"{SITE}/triton/__init__.py" in originals(env)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change owners")
def test_the_originals_folder_is_the_owner_s(env: Path, invocation: Invocation) -> None:
    for path in [env, *env.rglob("*")]:
        os.chown(path, 1234, 1235, follow_symlinks=False)
    before = tree(env)
    assert call(invocation, "slim", str(env), "--apply") == 0
    for path in [env / BACKUP, *(env / BACKUP).rglob("*")]:
        assert (path.lstat().st_uid, path.lstat().st_gid) == (1234, 1235), path
    assert call(invocation, "slim", str(env), "--undo") == 0
    assert tree(env) == before


def test_the_way_back_can_be_pasted(
    env: Path, invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    place = env.with_name("énv mit Leer")
    env.rename(place)
    assert call(invocation, "slim", str(place), "--apply") == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "--undo" in line)
    words = shlex.split(line)
    assert words == ["megabuild", "slim", str(place), "--undo"]
    assert call(invocation, *words[1:]) == 0
    assert call(invocation, *words[1:]) == UsageError.exit_code
