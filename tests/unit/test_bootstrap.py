"""The private environment: its folder, its trusted owners, and errors while it is set up."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from small_files import program, write
from tiny import wait_for

from groundwork import bootstrap
from groundwork.errors import IntegrityError, OutOfSpaceError, PreflightError, ProviderError
from groundwork.user_folders import cache_folder, expanded, home_folder, replace_home

SOURCES = Path(__file__).parents[2] / "src"


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}, {"HOME": "relative"}, {"HOME": "."}])
def test_a_missing_home_folder_has_a_hint(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # a user id that /etc/passwd does not have
    monkeypatch.chdir(tmp_path)
    assert home_folder(environ) is None
    with pytest.raises(PreflightError) as refused:
        cache_folder(environ)
    assert "HOME" in refused.value.message
    assert "MEGABUILD_CACHE" in refused.value.remedy
    assert cache_folder({**environ, "MEGABUILD_CACHE": "named"}) == tmp_path / "named"
    assert cache_folder({**environ, "XDG_CACHE_HOME": "/caches"}) == Path("/caches/megabuild")
    assert cache_folder({**environ, "XDG_CACHE_HOME": "/caches", "MEGABUILD_CACHE": "/c"}) == Path("/c")
    assert cache_folder({"XDG_CACHE_HOME": "caches", "HOME": "/h"}).is_relative_to("/h")
    for given, caches in (({}, None), ({"MEGABUILD_CACHE": "/c"}, "/c/others")):
        changed = {**environ, **given}
        replace_home(changed)
        assert changed.get("XDG_CACHE_HOME") == caches
        assert "HOME" not in changed or not given
    assert expanded("~/wheels") == tmp_path / "~" / "wheels"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("folder", [".venv", ".venv/run-1"])
def test_an_environment_of_another_user_is_refused(folder: str, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root gives folders away")
    (tmp_path / ".venv" / "run-1").mkdir(parents=True)
    os.chown(tmp_path / folder, 12345, 12345)
    with pytest.raises(PreflightError, match=f"{folder} .*12345"):
        bootstrap._folder(tmp_path, "run-1")


@pytest.mark.parametrize("target", ["", "gone"])
def test_an_error_names_a_venv_that_is_not_a_folder(target: str, tmp_path: Path) -> None:
    checkout = tmp_path / "my checkout"
    checkout.mkdir()
    venv = checkout / ".venv"
    venv.symlink_to(target) if target else venv.touch()
    with pytest.raises(PreflightError, match="not a folder") as refused:
        bootstrap._folder(checkout, "run-1")
    assert shlex.split(refused.value.remedy) == ["run:", "rm", str(venv)]


def test_a_python_without_a_module_of_its_own_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    bootstrap.check_python()
    monkeypatch.setitem(sys.modules, "ctypes", None)
    with pytest.raises(PreflightError, match="ctypes") as refused:
        bootstrap.check_python()
    assert "libffi-dev" in refused.value.remedy


def test_a_start_says_what_it_waits_for_before_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = write(tmp_path / bootstrap._LOCKS["run"], "")
    shown: list[str] = []

    def flock(_: object, operation: int) -> None:
        if operation & fcntl.LOCK_NB:
            raise BlockingIOError
        shown.append(capsys.readouterr().err)

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(bootstrap, "_make", lambda *_: None)
    bootstrap.ensure(lock.parent, "run")
    assert shown == ["waiting for another start, which is setting up .venv\n"]


def test_the_error_of_a_damaged_module_has_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "torn_module.py").write_text("def main(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(bootstrap, "ensure", lambda *_: Path(sys.prefix, "bin", "python"))
    with pytest.raises(SystemExit) as refused:
        bootstrap.run_inside(str(tmp_path), "program", "torn_module")
    assert refused.value.code == IntegrityError.exit_code
    first, hint = capsys.readouterr().err.splitlines()
    assert first.startswith("error: torn_module cannot be imported: SyntaxError: ")
    assert f"rm -r {sys.prefix}" in hint


def run_with(
    monkeypatch: pytest.MonkeyPatch, failing: str, output: str, settings: str = ""
) -> list[dict[str, str]]:
    """Replace programs by answers; return the environments of pip's installations."""
    environments: list[dict[str, str]] = []

    def run(command: list[str], *, env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[str]:
        if "install" in command:
            environments.append(env)
        failed = failing in command
        if "venv" in command and not failed:
            Path(command[-1], "lib", "python3", "site-packages").mkdir(parents=True)
        return subprocess.CompletedProcess(command, int(failed), output if failed else settings)

    monkeypatch.setattr(subprocess, "run", run)
    return environments


def test_settings_of_the_user_do_not_move_the_private_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVIDIA's images set PIP_CONSTRAINT; a file may name a target."""
    for name in filter(lambda name: name.startswith("PIP_"), tuple(os.environ)):
        monkeypatch.delenv(name)
    environments = run_with(monkeypatch, "nothing", "", "install.target='/t'\nglobal.proxy='p'")
    for name in ("CONSTRAINT", "TARGET", "USER", "REQUIRE_VIRTUALENV"):
        monkeypatch.setenv(f"PIP_{name}", "/etc/pip/x")
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example/simple")
    bootstrap._make(tmp_path / ".venv" / "run-1", tmp_path / "requirements.lock", 0)
    (environment,) = environments
    assert {name: value for name, value in environment.items() if name.startswith("PIP_")} == {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "https://index.example/simple",
        "PIP_PROXY": "p",
    }
    assert (tmp_path / ".venv" / "run-1" / bootstrap.STAMP).exists()


@pytest.mark.parametrize("bundled", [True, False])
def test_pip_is_unpacked_where_python_has_its_wheel(
    bundled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else venv installs it, as with Debian's Python."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        (tmp_path / ".venv/run-1/lib/python3/site-packages").mkdir(parents=True, exist_ok=True)
        return subprocess.CompletedProcess(command, 0, "")

    write(tmp_path / "ensurepip" / "__init__.py")
    if bundled:
        (tmp_path / "ensurepip" / "_bundled").mkdir()
        with zipfile.ZipFile(tmp_path / "ensurepip/_bundled/pip-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("pip/__main__.py", "")
    spec = importlib.util.spec_from_file_location("ensurepip", tmp_path / "ensurepip" / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    monkeypatch.setattr(subprocess, "run", run)
    bootstrap._make(tmp_path / ".venv" / "run-1", tmp_path / "requirements.lock", 0)
    assert ("--without-pip" in commands[0]) == bundled
    assert [path.name for path in tmp_path.glob(".venv/run-1/lib/*/*/pip/*")] == ["__main__.py"] * bundled


@pytest.mark.parametrize("place", ["end", "data"])
def test_a_damaged_pip_of_this_python_is_named(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        (tmp_path / ".venv/run-1/lib/python3/site-packages").mkdir(parents=True, exist_ok=True)
        return subprocess.CompletedProcess(command, 0, "")

    wheel = tmp_path / "ensurepip" / "_bundled" / "pip-1.0-py3-none-any.whl"
    write(tmp_path / "ensurepip" / "__init__.py")
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pip/__main__.py", "".join(map(str, range(9999))))
    whole = wheel.read_bytes()
    wheel.write_bytes({"end": whole[:-30], "data": whole[:60] + bytes(200) + whole[260:]}[place])
    spec = importlib.util.spec_from_file_location("ensurepip", tmp_path / "ensurepip" / "__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(PreflightError) as caught:
        bootstrap._make(tmp_path / ".venv" / "run-1", tmp_path / "requirements.lock", 0)
    assert f"{wheel}: this Python's own pip is damaged" in caught.value.message
    assert not (tmp_path / ".venv" / "run-1").exists()


RETRIES = "".join(
    f"WARNING: Retrying (Retry(total={left}, connect=None)) after connection broken by 'NewConnectionError("
    "'<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f84a9041590>: Failed to establish a new"
    " connection: [Errno -3] Temporary failure in name resolution')': /simple/click/\n"
    for left in range(4, -1, -1)
)


@pytest.mark.parametrize(
    ("failing", "output", "said", "hint"),
    [
        ("venv", "No module named ensurepip\n", "No module named ensurepip", "install venv"),
        ("install", "ERROR: none\n", "ERROR: none", "start with Python 3.10 to 3."),
        (
            "install",
            f"{RETRIES}ERROR: No matching distribution found for click==8.1.8\n",
            "click==8.1.8: Temporary failure in name resolution",
            "check the network",
        ),
    ],
)
def test_the_step_that_failed_decides_the_hint(
    failing: str, output: str, said: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_with(monkeypatch, failing, output)
    monkeypatch.setattr(bootstrap, "_NEWEST", sys.version_info.minor - 1)
    with pytest.raises(ProviderError) as raised:
        bootstrap._make(tmp_path / ".venv" / "run-1", tmp_path / "requirements.lock", 0)
    assert raised.value.message.split("private environment:")[1].strip() == said
    assert raised.value.remedy.startswith(hint)
    assert not (tmp_path / ".venv" / "run-1").exists()


def test_an_environment_is_made_on_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    monkeypatch.setattr(bootstrap, "_make", lambda environment, *_: made.append(environment))
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))))
    write(tmp_path / "requirements.lock")
    python = bootstrap.ensure(tmp_path, "run")
    assert made == [python.parent.parent]


@pytest.mark.parametrize(
    ("module", "words", "refused"),
    [
        ("command_line.build", ["linux_64_cpu"], True), ("command_line.main", ["build", "linux_64_cpu"], True),
        ("command_line.build", ["linux_64_cpu", "--output=/o"], False), ("command_line.build", ["-h"], False),
        ("command_line.main", ["slim", "/e"], False), ("command_line.build", ["linux_64_cpu", "-o", "/o"], False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["a b", "müller"])
def test_a_build_refuses_its_path_before_it_makes_an_environment(
    module: str, words: list[str], refused: bool, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class EnvironmentMade(Exception):
        pass

    def ensure(root: Path, use: str) -> Path:
        raise EnvironmentMade

    (tmp_path / name).mkdir()
    monkeypatch.setattr(bootstrap, "ensure", ensure)
    monkeypatch.setattr(sys, "argv", ["program", *words])
    with pytest.raises(SystemExit, match="4") if refused else pytest.raises(EnvironmentMade):
        bootstrap.run_inside(str(tmp_path / name), "program", module)


def test_the_locks_and_the_hint_know_the_same_newest_python(repository: Path) -> None:
    assert f" 3.{bootstrap._NEWEST}; do" in (repository / "scripts" / "update-locks").read_text()


def test_a_checkout_that_cannot_be_written_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: Path, **_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(folder))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(PreflightError, match=f"^{tmp_path}/.venv: Read-only"):
        bootstrap._make(tmp_path / ".venv" / "run-1", tmp_path / "requirements.lock", 0)


def test_the_next_start_waits_for_the_programs_of_a_killed_one(tmp_path: Path) -> None:
    """They still write to the environment: the lock is theirs, too."""
    lock, begun, go = write(tmp_path / "requirements.lock"), tmp_path / "begun", tmp_path / "go"
    waits = f"kill -9 $PPID; touch {begun}; until [ -e {go} ]; do sleep 0.05; done"
    python = program(tmp_path / "python", f'case "$*" in *" venv "*) {waits} ;; esac')
    code = (
        f"import sys, pathlib; sys.path.insert(0, {str(SOURCES)!r}); sys.executable = {str(python)!r}\n"
        f"from groundwork import bootstrap; bootstrap.ensure(pathlib.Path({str(tmp_path)!r}), 'run')"
    )
    killed = subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False)
    assert killed.returncode == -9
    assert wait_for(begun.exists)
    with lock.open("rb") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        go.touch()
        fcntl.flock(file, fcntl.LOCK_EX)


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (PreflightError("no home", "set HOME"), PreflightError.exit_code, "error: no home\nhint: set HOME\n"),
        (OSError(errno.ENOSPC, "No space left", "/x"), OutOfSpaceError.exit_code, "error: /x: "),
        (KeyboardInterrupt(), 130, "error: interrupted by Ctrl-C"),
        (ZeroDivisionError("a bug"), None, ""),
    ],
    ids=repr,
)
def test_an_error_before_the_environment_exists_has_its_exit_code(
    error: BaseException, code: int | None, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit if code else type(error)) as caught, bootstrap._explained():
        raise error
    assert getattr(caught.value, "code", None) == code
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("error", [errno.EACCES, errno.EIO])
def test_another_error_of_the_system_is_not_hidden(error: int) -> None:
    with pytest.raises((OSError, SystemExit)) as caught, bootstrap._explained():
        raise OSError(error, os.strerror(error))
    assert getattr(caught.value, "code", 1) != 0


@pytest.mark.parametrize("failing", ["venv", "install"])
def test_a_full_disk_is_no_fault_of_an_index(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_with(monkeypatch, failing, "error: a\nOSError: [Errno 28] No space left on device\nmore\n")
    monkeypatch.setattr(bootstrap, "_bundled_pip", lambda: None)
    with pytest.raises(OutOfSpaceError):
        bootstrap._make(tmp_path / ".venv" / "run-1", tmp_path / "requirements.lock", 0)
    assert not (tmp_path / ".venv" / "run-1").exists()


def test_an_environment_that_another_start_has_just_made_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / bootstrap._LOCKS["run"], "a==1")
    key = bootstrap.virtual_environment(tmp_path / bootstrap._LOCKS["run"], "run")
    folder = tmp_path / ".venv" / f"run-{key.version}-{key.digest[:12]}"
    done: list[str] = []

    def flock(*_: object) -> None:
        done.append("lock")
        write(folder / "bin/python")
        write(folder / bootstrap.STAMP)

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(bootstrap, "_make", lambda *_: done.append("make"))
    assert bootstrap.ensure(tmp_path, "run") == folder / "bin/python"
    assert done == ["lock"]
