"""What scripts/test says before it begins, and how it ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from small_files import program, write

#: The names of the steps, and words of the commands that they run.
STEPS = {
    "configs in step": "python -m megabuild configs", "ruff": "ruff check", "ruff format": "ruff format",
    "mypy": "mypy", "density": "measure_density.py", "imports": "lint-imports", "tests": "python -m pytest",
}  # fmt: skip
#: Each program: in place of Python, it also tells where the environment is.
STUB = """
[ "$1" != -c ] || { echo "$0"; exit; }
case "${0##*/} $*" in *"$FAILING"*) exit 5 ;; esac
"""


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


@pytest.mark.parametrize("failing", ["update", "install", ""])
def test_on_a_ci_machine_a_tool_that_cannot_be_installed_ends_it(
    failing: str, repository: Path, tmp_path: Path
) -> None:
    """The tests that need the tool would be skipped."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(repository / "scripts" / "test", tmp_path / "scripts")
    write(tmp_path / ".ci/apt-packages.txt", "no-such-server a-server\n")
    program(tmp_path / "bin/apt-get", f'[ "$1" != "{failing}" ] || exit 100')
    program(tmp_path / "bin/id", "echo 0")
    python = program(tmp_path / "bin/python", "exit 3")  # it would make the environment
    environ = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "CI": "true", "PYTHON": str(python)}
    done = subprocess.run([tmp_path / "scripts" / "test"], env=environ, capture_output=True, check=False)
    assert done.returncode == (100 if failing else 3), done.stderr


@pytest.mark.parametrize("arguments", [(), ("--checks",)])
@pytest.mark.parametrize("failing", [*STEPS, "none"])
def test_a_step_that_fails_fails_the_whole(
    failing: str, arguments: tuple[str, ...], repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(repository / "scripts" / "test", tmp_path / "scripts")
    write(tmp_path / ".ci/apt-packages.txt", "")
    for name in ("python", "ruff", "mypy", "lint-imports"):
        program(tmp_path / "bin" / name, STUB)
    python = str(tmp_path / "bin/python")
    environ = {**os.environ, "PYTHON": python, "FAILING": STEPS.get(failing, failing)}
    command = [str(tmp_path / "scripts" / "test"), *arguments]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    fails = failing in STEPS and not (arguments and failing == "tests")
    assert done.returncode == int(fails), done.stderr
    assert (f"failed: {failing}\n" in done.stdout) == (fails and failing != "tests")


@pytest.mark.parametrize(
    ("available", "free", "has_own_folder", "in_memory"),
    [
        (20_000_000, 10_000_000, False, True),
        (20_000_000, 65_536, False, False),
        (4_000_000, 10_000_000, False, False),
        (20_000_000, 10_000_000, True, False),
    ],
    ids=["enough", "a container's 64 MB", "little memory", "the user's own folder"],
)
@pytest.mark.parametrize("fails", [False, True])
def test_temporary_files_are_in_memory_if_there_is_enough(
    fails: bool,
    available: int,
    free: int,
    has_own_folder: bool,
    in_memory: bool,
    repository: Path,
    tmp_path: Path,
) -> None:
    if not runs_programs(Path("/dev/shm")):
        pytest.skip("/dev/shm runs no programs")
    write(tmp_path / ".ci/apt-packages.txt", "")
    (tmp_path / "scripts").mkdir()
    shutil.copy(repository / "scripts" / "test", tmp_path / "scripts")
    own = tmp_path / "own"
    own.mkdir()
    python = program(
        tmp_path / "bin/python",
        f"""
        [ "$1" != -c ] || {{ echo "$0"; exit; }}
        case "$*" in *"-m pytest"*"not long"*)
            echo "${{TMPDIR:-}}" > {tmp_path}/told
            touch "${{TMPDIR:-{own}}}/of-a-failed-test"
            exit {int(fails)} ;;
        esac
        """,
    )
    for name in ("ruff", "mypy", "lint-imports"):
        program(tmp_path / "bin" / name, "")
    program(tmp_path / "bin/awk", f"echo {available}")
    program(tmp_path / "bin/df", f"echo Avail; echo {free}")
    environ = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "PYTHON": str(python)}
    if has_own_folder:
        environ["TMPDIR"] = str(own)
    done = subprocess.run(
        [tmp_path / "scripts/test"], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == int(fails), done.stderr
    folder = Path((tmp_path / "told").read_text().strip())
    assert folder.name.startswith("megabuild-tests.") == in_memory
    if in_memory:
        assert folder.exists() == fails
        assert (f"rm -r {folder}" in done.stderr) == fails
        shutil.rmtree(folder, ignore_errors=True)


def runs_programs(folder: Path) -> bool:
    try:
        with tempfile.TemporaryDirectory(dir=folder) as made:
            subprocess.run([program(Path(made) / "program", "exit 0")], check=True)
    except OSError:
        return False
    return True
