"""`megabuild slim` over an environment: what goes, what stays, and the way back, also in a copy or after changes."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from calling import exit_code as call
from slim_world import HOSTILE, SITE, environment, install, tree, venv, wrong_in_records
from small_files import write
from stop_at_write import every_stop, watched

from command_line.run_command import Invocation
from gpu_tools.slim import backup, commands
from gpu_tools.slim.backup import hold_backup
from gpu_tools.slim.manifest import TouchedFile, is_alike, list_touched, read_manifest
from gpu_tools.slim.steps import SlimRequest
from groundwork.errors import (
    BusyError,
    IntegrityError,
    OutOfSpaceError,
    PreflightError,
    UnknownError,
    UsageError,
    VerdictError,
)

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
TORCH, TORCHS_HEADER = f"{SITE}/torch/lib/libtorch_cuda.so", f"{SITE}/torch/include/torch.h"
TORCHS_LIST = f"{SITE}/torch-2.13.0.dist-info/RECORD"
BACKUP = ".megabuild-slim"
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


@pytest.fixture
def slim(env: Path, invocation: Invocation) -> Any:
    """Return what runs the command line over the environment."""
    return partial(call, invocation, "slim", str(env))


def copy(source: Path, how: str = "cp") -> Path:
    target = source.with_name("copy")
    subprocess.run(COPIES[how].format(source=source, target=target), shell=True, check=True)
    return target


def content(root: Path) -> Mapping[str, tuple[object, ...]]:
    """Return what a copy keeps of a tree: all but dates and the number of hard links."""
    return {path: (one[0], one[3]) for path, one in tree(root).items()}


def without_backup(root: Path) -> Mapping[str, tuple[object, ...]]:
    """Return the content of a tree without slim's own folder."""
    return {path: entry for path, entry in content(root).items() if not path.startswith(BACKUP)}


def originals(root: Path) -> dict[str, bytes]:
    folder = root / BACKUP / "originals"
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def loads(library: Path) -> bool:
    """Say whether a library can be loaded and works, in a process of its own."""
    code = f"import ctypes; assert ctypes.CDLL({str(library)!r}).torch_cuda() == 42"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_applied_is_what_was_planned_and_everything_comes_back(
    env: Path, slim: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cached = tmp_path / "cached.so"
    os.link(env / TORCH, cached)  # as uv does
    before, cache, loaded = tree(env), cached.read_bytes(), ctypes.CDLL(str(env / TORCH))
    assert slim("--arch-list", "12.0") == 0
    _, table, *_ = capsys.readouterr().out.split("\n\n")
    assert max(map(len, table.splitlines())) <= 80
    assert slim("--json") == 0
    planned = json.loads(capsys.readouterr().out)
    assert tree(env) == before
    files = (path for path in env.rglob("*") if path.is_file() and not path.is_symlink())
    assert planned["before"] == sum(path.lstat().st_size for path in files)
    steps = {step["name"]: step for step in planned["steps"]}
    assert planned["before"] - planned["after"] == sum(step["saves"] for step in steps.values())
    assert steps["triton"]["costs"] == ["compile-gpu"]
    assert steps["headers-torch"]["costs"] == ["compile-cpu", "compile-gpu", "extensions"]
    assert steps["nvidia-profiling"]["costs"] == ["profiler"]

    assert slim("--apply", "--json") == 0
    assert json.loads(capsys.readouterr().out)["after"] == planned["after"]
    after = set(tree(env))
    assert not {f"{SITE}/triton", f"{SITE}/torch/include"} & after
    assert not {f"{SITE}/nvidia/cu13/lib/lib{one}" for one in ("cusolverMg.so.12", "nvperf_host.so")} & after
    assert {f"{SITE}/nvidia/cu13/lib/libcudnn_ops.so.9", "notes.txt"} <= after  # opened by name; nobody's
    assert (env / TORCH).stat().st_mode & 0o777 == 0o555
    assert (env / TORCH).stat().st_size < len(cache) - 4096
    assert cached.read_bytes() == cache
    assert loads(env / TORCH)
    assert loaded.torch_cuda() == 42
    assert wrong_in_records(env) == []

    assert slim("--undo") == 0
    assert tree(env) == before
    assert (env / TORCH).samefile(cached)


def test_a_library_of_an_unknown_form_is_named_and_stays(
    env: Path, slim: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with_data = (env / TORCH).read_bytes() + b"appended" * 1000  # as a bundle of a program and its files
    (env / TORCH).chmod(0o755)
    (env / TORCH).write_bytes(with_data)
    said = f"! 1 file not slimmed, the first: {TORCH}: data after the last section"
    assert slim("--arch-list", "12.0") == 0
    assert said in " ".join(capsys.readouterr().out.split())
    assert slim("--apply", "--json") == 0
    assert json.loads(capsys.readouterr().out)["left_alone"] == {TORCH: "data after the last section"}
    assert (env / TORCH).read_bytes() == with_data
    assert not (env / SITE / "triton").exists(), "the rest is slimmed"


def test_the_command_that_copies_an_environment_has_its_path_as_one_word(tmp_path: Path) -> None:
    env = tmp_path / "my env"
    (env / "conda-meta").mkdir(parents=True)
    with pytest.raises(UsageError) as refused:
        commands.check_subject(env, in_place=False, writes=True)
    assert shlex.split(refused.value.remedy.partition("--apply: ")[2]) == ["cp", "-a", str(env), "DIR"]


def test_a_second_slimming_begins_with_the_originals(env: Path, slim: Any) -> None:
    before = tree(env)
    assert slim("--apply") == 0
    for what in ([], ["--output", str(env.with_name("copy"))]):  # not on top of what is slimmed
        assert slim(*what) == UsageError.exit_code
    assert slim("--keep", "compile,extensions,profiler,distributed", "--arch-list", "12.0", "--apply") == 0
    for name in ("libtriton.so", os.path.basename(HOSTILE[0]), "libnvperf_host.so", "ptxas-blackwell"):
        assert [*(env / SITE).rglob(name)]
    assert not [*(env / SITE).rglob("libcusolverMg*"), *(env / SITE).rglob("ptxas")]
    assert wrong_in_records(env) == []
    assert slim("--undo") == 0
    assert tree(env) == before


def test_forgetting_gives_the_room_free(env: Path, slim: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert slim("--apply", "--forget") == 0
    assert not (env / BACKUP).exists()
    assert slim("--undo") == UsageError.exit_code
    told = capsys.readouterr()
    assert ("no originals" in told.err, "--undo" in told.out) == (True, False)
    assert loads(env / TORCH)


def test_a_full_disk_leaves_everything_as_it_was(
    made: Path, invocation: Invocation, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["cp", "-a", made, small_disk], check=True)
    env = small_disk / "env"
    before = tree(env)
    (small_disk / "filling").write_bytes(bytes(shutil.disk_usage(small_disk).free - 20_000))
    assert call(invocation, "slim", str(env), "--apply") == OutOfSpaceError.exit_code
    assert "not enough disk space" in capsys.readouterr().err
    assert tree(env) == before
    (small_disk / "filling").unlink()
    assert call(invocation, "slim", str(env), "--apply") == 0
    (small_disk / "filling").write_bytes(bytes(shutil.disk_usage(small_disk).free))
    assert call(invocation, "slim", str(env), "--undo") == 0
    assert tree(env) == before


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, check=False).returncode:
        pytest.skip("needs a file system of its own, which root may mount")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def killed(slim: Any, env: Path, at: int, *arguments: str) -> int:
    """Run the command line in a process that kills itself at a change of the file system; return their number."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, which a fork has none of
        child = os.fork()
    if not child:
        changes = 0

        def changed(event: str, parameters: tuple[Any, ...]) -> None:
            nonlocal changes
            writes = event == "open" and isinstance(parameters[2], int) and parameters[2] & os.O_ACCMODE
            if (writes or event in EVENTS) and any(str(one).startswith(str(env)) for one in parameters[:2]):
                changes += 1
                os.write(writing, b".")
                if changes == at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(changed)
        slim(*arguments)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        count = len(stream.read())
    assert os.waitpid(child, 0)[1] == (signal.SIGKILL if at else 0)
    return count


EVENTS = {f"os.{name}" for name in ("rename", "link", "remove", "rmdir", "mkdir", "chmod", "utime")}


@pytest.mark.parametrize("what", ["--apply", "--undo"])
def test_killed_at_any_moment_it_loads_and_comes_back(
    what: str, env: Path, slim: Any, invocation: Invocation
) -> None:
    """While it is slimmed, a library and its original are one file, which a copy makes two of."""
    before, in_copy = tree(env), content(env)
    assert slim("--apply", "--no-check") == 0
    count = killed(slim, env, 0, "--undo")
    if what == "--apply":
        count = killed(slim, env, 0, "--apply", "--no-check")
        assert slim("--undo") == 0
    for moment in range(5):
        at = 3 + (count - 4) * moment // 4
        if what == "--undo":
            assert slim("--apply", "--no-check") == 0
        killed(slim, env, at, what, *(["--no-check"] if what == "--apply" else []))
        assert loads(env / TORCH)
        if moment % 3 == 1:
            copied = copy(env)
            if (copied / BACKUP).is_dir():
                assert call(invocation, "slim", str(copied), "--undo") == 0
            assert content(copied) == in_copy, f"a copy, killed at change {at} of {count}"
            shutil.rmtree(copied)
        elif moment % 3 == 2:
            assert slim("--apply", "--no-check") == 0
            assert wrong_in_records(env) == []
        if (env / BACKUP).is_dir():
            assert slim("--undo") == 0
        assert tree(env) == before, f"killed at change {at} of {count}"


def test_a_library_is_always_there_and_a_manifest_on_the_disk_names_it_first(env: Path, slim: Any) -> None:
    """Running programs load it meanwhile, and a power cut may empty files that were not flushed."""
    with watched(env) as calls:
        assert slim("--apply", "--no-check") == 0
    original = f"{BACKUP}/originals/{TORCH}"
    flushed = calls.index(f"fsync {BACKUP}/manifest.json")
    changes = [number for number, call in enumerate(calls) if f"{BACKUP}/originals/" in call]
    assert flushed < min(changes)
    assert calls.index(f"link {original}") < calls.index(f"rename {TORCH}")
    assert f"rename {original}" not in calls


def test_new_files_are_on_the_disk_before_an_original_is_replaced(env: Path, slim: Any) -> None:
    with watched(env) as calls:
        assert slim("--apply", "--no-check") == 0
    first = min(number for number, made in enumerate(calls) if f"{BACKUP}/originals/" in made)
    new = {made.removeprefix("open ") for made in calls[:first] if made.startswith(f"open {BACKUP}/new/")}
    assert {f"{BACKUP}/new/{TORCH}", f"{BACKUP}/new/{TORCHS_LIST}"} <= new
    assert new <= {made.removeprefix("fsync ") for made in calls[:first] if made.startswith("fsync ")}


@pytest.mark.parametrize("what", ["--apply", "--undo"])
def test_what_was_cut_short_is_not_forgotten(what: str, env: Path, slim: Any) -> None:
    """Some are back, some are not: neither state is one to stay in."""
    assert slim("--apply", "--no-check") == 0
    arguments = ["--undo"]
    if what == "--apply":
        assert slim("--undo") == 0
        arguments = ["--apply", "--no-check"]
        count = killed(slim, env, 0, *arguments)
        assert slim("--undo") == 0
    else:
        count = 40
    killed(slim, env, count // 2, *arguments)
    manifest = json.loads((env / BACKUP / "manifest.json").read_text())
    assert not manifest["complete"]
    assert slim("--forget") == PreflightError.exit_code
    assert slim("--undo") == 0


def test_a_forget_killed_anywhere_is_repeated_until_done(env: Path, slim: Any) -> None:
    assert slim("--apply", "--no-check") == 0
    halfway = 0
    for folder in every_stop(env, commands.forget):
        if (folder / BACKUP / "forgotten").is_dir():
            halfway += 1
            with pytest.raises(UsageError, match="--forget was interrupted"):
                commands.undo(folder)
            with pytest.raises(UsageError, match="--forget was interrupted"):
                commands.check_subject(folder, in_place=False, writes=False)
        else:  # --undo restores the files that a manifest names
            has_manifest = (folder / BACKUP / "manifest.json").exists()
            assert has_manifest == (folder / BACKUP / "originals").is_dir()
        if (folder / BACKUP).is_dir():
            commands.forget(folder)
        assert not (folder / BACKUP).exists()
        assert loads(folder / TORCH)
    assert halfway > 5


def test_a_second_forget_killed_anywhere_never_looks_like_a_slimming(env: Path, slim: Any) -> None:
    """Its originals are gone: neither --undo nor --apply may count on them."""
    assert slim("--apply", "--no-check") == 0
    (env / BACKUP / "originals").rename(env / BACKUP / "forgotten")
    for folder in every_stop(env, commands.forget):
        gone = not (folder / BACKUP / "manifest.json").exists()
        assert gone or (folder / BACKUP / "forgotten").is_dir()
        if (folder / BACKUP).is_dir():
            commands.forget(folder)
        assert not (folder / BACKUP).exists()


def test_a_slimming_after_a_killed_forget_has_its_own_originals(made: Path, env: Path, slim: Any) -> None:
    assert slim("--apply", "--no-check") == 0
    (env / BACKUP / "originals").rename(env / BACKUP / "forgotten")
    for path in (TORCHS_LIST, TORCHS_HEADER):  # installed again
        (env / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(made / path, env / path)
    before = without_backup(env)
    assert slim("--apply", "--no-check") == 0
    assert slim("--undo") == 0
    assert without_backup(env) == before


def test_originals_that_a_user_deleted_are_forgotten(
    env: Path, slim: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert slim("--apply", "--no-check") == 0
    shutil.rmtree(env / BACKUP / "originals")
    assert slim("--undo") == VerdictError.exit_code
    assert "reinstall the packages" in capsys.readouterr().err
    assert slim("--forget") == 0
    assert not (env / BACKUP).exists()


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_comes_back_as_it_was(env: Path, slim: Any, invocation: Invocation, how: str) -> None:
    before = content(env)
    assert slim("--keep", "symbols", "--apply") == 0
    assert slim("--apply") == 0
    copied = copy(env, how)
    assert call(invocation, "slim", str(copied), "--keep", "compile", "--apply") == 0
    assert (copied / SITE / "triton/__init__.py").exists()
    assert wrong_in_records(copied) == []
    assert call(invocation, "slim", str(copied), "--undo") == 0
    assert content(copied) == before


def test_what_was_installed_again_as_it_was_is_nobody_else_s(env: Path, slim: Any) -> None:
    before = content(env)
    assert slim("--apply") == 0
    for path in (TORCH, TORCHS_LIST, TORCHS_HEADER):
        place = env / path
        place.parent.mkdir(exist_ok=True)
        place.unlink(missing_ok=True)
        place.write_bytes(originals(env)[path])
    assert slim("--undo") == 0
    assert content(env) == before


def test_a_file_that_was_changed_is_left_with_its_original_until_it_is_moved_away(
    env: Path, slim: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(env)
    assert slim("--apply") == 0
    (env / TORCH).chmod(0o755)
    (env / TORCH).write_bytes(b"mine")
    capsys.readouterr()
    assert slim("--undo") == VerdictError.exit_code
    told = capsys.readouterr().err
    for word in (TORCH, f"{env}/{BACKUP}", "--forget"):
        assert word in told
    assert (env / TORCH).read_bytes() == b"mine"
    assert [*originals(env)] == [TORCH]
    (env / TORCH).unlink()
    assert slim("--undo") == 0
    assert content(env) == before


@pytest.mark.parametrize("what", ["--apply", "--undo"])
def test_originals_of_a_package_that_was_upgraded_are_deleted(
    env: Path, slim: Any, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """`pip install -U` of one package after slimming; the other packages are restored."""
    assert slim("--apply") == 0
    (env / TORCH).unlink()
    (env / TORCH).write_bytes(b"a later one")
    shutil.rmtree((env / TORCHS_LIST).parent)
    install(env, "torch", {"torch/lib/libtorch_cuda.so": b"a later one"}, version="2.14.0")
    capsys.readouterr()
    assert slim(what, *(["--keep", "triton"] if what == "--apply" else [])) == 0
    assert "/torch-2.13.0.dist-info" in "".join(capsys.readouterr())
    assert (env / TORCH).read_bytes() == b"a later one"
    assert (env / SITE / "triton/__init__.py").exists()
    assert TORCH not in (originals(env) if (env / BACKUP).exists() else {})
    assert slim("--undo") in (0, UsageError.exit_code)
    assert not (env / BACKUP).exists()
    assert wrong_in_records(env) == []


def test_files_that_a_reinstalled_package_lacks_are_not_put_back(tmp_path: Path) -> None:
    """Its list is another one, so the originals may be of another build."""
    env = venv(tmp_path / "env")
    listed = install(env, "x", {"x/libx.a": b"!<arch>\n" * 9})
    commands.apply(env, SlimRequest(), print, checks=None, keep_originals=True)
    listed.write_text(listed.read_text() + "x/new.py,,\n")
    with pytest.raises(VerdictError, match="0 files restored, 2 not"):
        commands.undo(env)
    assert not (env / SITE / "x/libx.a").exists()
    assert originals(env).keys() == {f"{SITE}/x/libx.a", str(listed.relative_to(env))}


def test_a_repeated_forget_counts_the_originals_that_the_first_one_left(tmp_path: Path) -> None:
    write(tmp_path / BACKUP / "forgotten/lib/a.so", b"x" * 100)
    assert commands.forget(tmp_path).document["freed"] == 100
    assert not (tmp_path / BACKUP).exists()


@pytest.mark.parametrize("kind", ["folders", "touched"])
@pytest.mark.parametrize("path", ["../x", "a/../../x", "/x"])
def test_a_manifest_that_names_a_path_outside_is_refused(kind: str, path: str, tmp_path: Path) -> None:
    entry = {"path": path, "mode": 0o755} if kind == "folders" else {"path": path, "record": ""}
    manifest = {"complete": True, "folders": [], "touched": [], kind: [entry]}
    file = write(tmp_path / "manifest.json", json.dumps(manifest))
    with pytest.raises(IntegrityError, match="path outside the environment"):
        read_manifest(file, tmp_path / "originals")


def test_byte_code_goes_and_comes_with_the_package_of_its_source() -> None:
    cached = "x/__pycache__/a.cpython-312.pyc"
    contents = SimpleNamespace(lists=[SimpleNamespace(files=("x/a.py",), path="x.dist-info/RECORD")])
    touched = list_touched(cast(Any, SimpleNamespace(contents=contents, new={}, gone={cached, "y.h"})))
    assert {file.path: file.record for file in touched} == {cached: "x.dist-info/RECORD", "y.h": ""}


def test_new_files_of_an_interrupted_slimming_are_deleted(tmp_path: Path) -> None:
    """No file would be written in the place of one of these."""
    left = write(tmp_path / BACKUP / "new/lib/a.so", "half")
    with hold_backup(tmp_path):
        assert not left.exists()


def test_a_link_in_the_place_of_the_originals_is_refused(env: Path, slim: Any, tmp_path: Path) -> None:
    thesis = tmp_path / "mine" / "new" / "thesis"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("years of work")
    (env / BACKUP).symlink_to(thesis.parent.parent)
    for what in ("--apply", "--undo", "--forget"):
        assert slim(what) == IntegrityError.exit_code
    assert [*thesis.parent.parent.rglob("*")] == [thesis.parent, thesis]
    (env / BACKUP).unlink()
    (env / BACKUP).write_text("a file")
    assert slim("--apply") == IntegrityError.exit_code


def test_a_manifest_that_cannot_be_written_ends_the_slimming_before_it_begins(
    env: Path, slim: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(env)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(backup, "write", full)
    assert slim("--apply") == OutOfSpaceError.exit_code
    assert content(env) == before
    assert not (env / BACKUP).exists()


def test_originals_that_are_gone_are_missed(env: Path, slim: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert slim("--apply") == 0
    for path in (TORCHS_HEADER, TORCH):
        (env / BACKUP / "originals" / path).unlink()
    assert slim("--undo") == VerdictError.exit_code
    assert "2 not, " in capsys.readouterr().err
    assert (env / SITE / "triton/__init__.py").exists()
    assert loads(env / TORCH)


@pytest.mark.parametrize("text", [None, "{", "[" * 100_000, '{"folders": []}', "outside"])
def test_originals_without_a_manifest_are_not_deleted(text: str | None, env: Path, slim: Any) -> None:
    assert slim("--apply") == 0
    manifest = env / BACKUP / "manifest.json"
    if text == "outside":
        text = manifest.read_text().replace(TORCH, "../outside")
    manifest.unlink() if text is None else manifest.write_text(text)
    kept = originals(env)
    for what in ("--undo", "--apply", "--forget"):
        assert slim(what) == IntegrityError.exit_code
    assert originals(env) == kept


def test_nothing_is_put_where_a_link_leads(env: Path, slim: Any, tmp_path: Path) -> None:
    assert slim("--apply") == 0
    mine = tmp_path / "sources"
    mine.mkdir()
    (env / SITE / "triton").symlink_to(mine)
    assert slim("--undo") == VerdictError.exit_code
    assert not [*mine.iterdir()]
    assert f"{SITE}/triton/__init__.py" in originals(env)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change owners")
def test_the_originals_folder_is_the_owner_s(env: Path, slim: Any) -> None:
    for path in [env, *env.rglob("*")]:
        os.chown(path, 1234, 1235, follow_symlinks=False)
    before = tree(env)
    assert slim("--apply") == 0
    for path in [env / BACKUP, *(env / BACKUP).rglob("*")]:
        assert (path.lstat().st_uid, path.lstat().st_gid) == (1234, 1235), path
    assert slim("--undo") == 0
    assert tree(env) == before


def test_two_at_once(env: Path, slim: Any) -> None:
    with hold_backup(env):
        assert slim("--apply") == BusyError.exit_code
    assert not (env / BACKUP).exists()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--keep", "nonsense"], UsageError),
        (["--arch-list", "12.0+PTX"], UsageError),
        (["--arch-list", "native"], UnknownError),
        (["--apply", "--undo"], UsageError),
        (["--no-check"], UsageError),
        (["--check", "true"], UsageError),
        (["--apply", "--no-check", "--check", "true"], UsageError),
    ],
)
def test_mistakes_have_exit_codes(
    arguments: list[str], error: type[UsageError], slim: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")  # a machine without nvidia-smi
    assert slim(*arguments) == error.exit_code


@pytest.mark.parametrize("command", [commands.undo, commands.forget])
def test_a_folder_that_was_never_slimmed_has_nothing_to_restore_or_forget(
    command: Callable[[Path], object], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"^{tmp_path}: no originals"):
        command(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EPERM, PreflightError.exit_code),  # a file system without hard links, or another user's file
        (errno.ENOSPC, OutOfSpaceError.exit_code),
    ],
)
def test_a_file_that_cannot_be_replaced_leaves_the_environment_as_it_was(
    number: int,
    code: int,
    after: int,
    env: Path,
    slim: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    real = os.replace
    moved: list[str] = []

    def refuse(source: Any, target: Any) -> None:
        if f"/{BACKUP}/new/" in str(source) or f"/{BACKUP}/originals/" in str(target):
            moved.append(str(target))
            if len(moved) == after + 1:
                raise OSError(number, os.strerror(number), str(target))
        real(source, target)

    before = without_backup(env)
    monkeypatch.setattr(os, "replace", refuse)
    assert slim("--apply", "--no-check") == code
    assert ("to a file system with hard links" in " ".join(capsys.readouterr().err.split())) == (
        number == errno.EPERM
    )
    assert len(moved) > after
    assert without_backup(env) == before


def test_a_backup_has_the_modes_of_the_folders_of_all_touched_files(tmp_path: Path) -> None:
    for name in ("a/b/x", "a/y", "c/z"):
        write(tmp_path / name, "x")
    (tmp_path / "c").chmod(0o750)
    touched = [SimpleNamespace(path=name) for name in ("a/b/x", "a/y", "c/z")]
    folders = backup.Backup._list_folders(cast(Any, SimpleNamespace(_root=tmp_path)), cast(Any, touched))
    assert [folder.path for folder in folders] == [".", "a", "a/b", "c"]
    assert folders[-1].mode == 0o750


@pytest.mark.parametrize(
    ("now", "is_at"),
    [("the new", True), ("nothing", True), ("another", False), ("longer one", False), ("a link", False),
     ("a folder", False), ("a file above", False)],
)  # fmt: skip
def test_a_file_is_as_slimming_left_it_if_it_is_missing_or_the_same(
    now: str, is_at: bool, tmp_path: Path
) -> None:
    path = write(tmp_path / "lib/libx.so", "the new")
    digest = hashlib.sha256(b"the new").hexdigest()
    file = TouchedFile(path="lib/libx.so", record="", size=len("the new"), when=1, digest=digest)
    path.unlink()
    match now:
        case "a link":
            write(tmp_path / "target", "the new")
            path.symlink_to(tmp_path / "target")
        case "a folder":
            path.mkdir()
        case "a file above":
            path.parent.rmdir()
            write(path.parent)
        case "nothing":
            pass
        case "longer one":
            os.utime(write(path, now), ns=(1, 1))
        case _:
            write(path, now)
    assert file.is_at(path) is is_at


@pytest.mark.parametrize(("one", "other"), [(one, other) for one in "abcd" for other in "abcde"])
def test_an_original_is_in_its_place_if_kind_and_content_are_the_same(
    one: str, other: str, tmp_path: Path
) -> None:
    for name, text in {"a": "text", "b": "other text"}.items():
        write(tmp_path / name, text)
    for name, target in {"c": "a", "d": "b"}.items():
        (tmp_path / name).symlink_to(target)
    assert is_alike(tmp_path / one, tmp_path / other) is (one == other)
