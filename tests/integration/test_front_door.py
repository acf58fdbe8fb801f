"""The private environment: made on first use, entered afterwards, made again where it was not finished."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import wait_for

BASE = getattr(sys, "_base_executable", sys.executable)


@pytest.fixture
def clone(repository: Path, tmp_path: Path) -> Path:
    """A copy of what the front door needs, without an environment."""
    for name in ("build-locally.py", "requirements.lock", "scripts", "src", ".ci_support"):
        source = repository / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    return tmp_path


@pytest.fixture
def small(clone: Path) -> Path:
    """A clone whose program needs one package: an environment is made in a tenth of the time."""
    packages = re.split(r"^(?=\w)", (clone / "requirements.lock").read_text(), flags=re.MULTILINE)
    (clone / "requirements.lock").write_text(next(one for one in packages if one.startswith("click==")))
    program = 'import sys\nimport click\ndef main():\n    click.echo(" ".join(sys.argv[1:]))\n'
    (clone / "src" / "command_line" / "build.py").write_text(program)
    return clone


def start(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [BASE, str(clone / "build-locally.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=clone.parent)


def environments(clone: Path) -> list[Path]:
    return sorted((clone / ".venv").glob("run-*"))


def test_the_first_start_sets_up_and_later_ones_do_not(small: Path) -> None:
    first = start(small, "--list")
    assert first.returncode == 0, first.stderr
    assert first.stdout == "--list\n"
    assert first.stderr.startswith("setting up ")
    assert first.stderr.split()[-1] == f"{small}/.venv", "nothing else; a long path is folded"
    assert (small / ".venv" / ".gitignore").read_text() == "*\n"

    # a link to it from elsewhere is the same door
    link = small.parent / f"{small.name}-link.py"
    link.symlink_to(small / "build-locally.py")
    linked = subprocess.run([BASE, str(link), "--list"], capture_output=True, text=True, cwd="/")
    assert (linked.returncode, linked.stderr, linked.stdout) == (0, "", first.stdout)

    second = start(small, "--list")
    assert (second.returncode, second.stderr, second.stdout) == (0, "", first.stdout)

    # a changed lock makes another environment; who is in the former one stays there
    with (small / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    third = start(small, "--list")
    assert (third.returncode, "setting up" in third.stderr) == (0, True)
    (former,) = {*environments(small)} - {
        made := max(environments(small), key=lambda path: path.stat().st_mtime)
    }
    shutil.rmtree(former)

    # a package deleted by hand: the error says what to delete
    for folder in made.glob("lib/python*/site-packages/click"):
        shutil.rmtree(folder)
    damaged = start(small, "--list")
    assert (damaged.returncode, f"rm -r {made}" in damaged.stderr) == (6, True)


@pytest.mark.long
def test_starts_at_the_same_time_set_up_once(small: Path) -> None:
    command = [BASE, str(small / "build-locally.py"), "words"]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=small)
        for _ in range(3)
    ]
    finished = [process.communicate(timeout=300) for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert sum("setting up an environment" in stderr for _, stderr in finished) == 1  # the others wait for it
    assert all(stdout == "words\n" for stdout, _ in finished)


def test_a_killed_set_up_is_repaired_by_the_next_start(small: Path) -> None:
    command = [BASE, str(small / "build-locally.py"), "--list"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=small)
    wait_for(lambda: list(small.glob(".venv/run-*/lib/python*/site-packages/pip")))
    process.send_signal(signal.SIGKILL)
    process.wait()
    (left,) = environments(small)
    assert not (left / "complete").exists()
    (left / "of-the-killed-start").touch()
    again = start(small, "--list")
    assert again.returncode == 0, again.stderr
    assert not (left / "of-the-killed-start").exists(), "without its stamp nothing is trusted"


@pytest.mark.parametrize(
    ("lock", "code", "said"),
    [
        ("click==8.1.8 --hash=sha256:" + "0" * 64 + "\n", 5, ("/.venv", "click==8.1.8")),
        (None, 6, ("requirements.lock",)),
    ],
)
def test_a_lock_whose_hashes_do_not_fit_or_that_is_missing_is_named(
    clone: Path, lock: str | None, code: int, said: tuple[str, ...]
) -> None:
    path = clone / "requirements.lock"
    path.write_text(lock) if lock else path.unlink()
    refused = start(clone, "--list")
    assert refused.returncode == code
    assert all(text in refused.stderr for text in said)
    assert environments(clone) == []


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.8", "3.9"])
@pytest.mark.parametrize(
    "door",
    ["build-locally.py", "scripts/megabuild", "scripts/install-pyg", "scripts/audit-pins", "scripts/test"],
)
def test_an_old_python_gets_a_sentence(door: str, version: str, clone: Path) -> None:
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}*/bin/python"))
    old = str(pyenv[-1]) if pyenv else shutil.which(f"python{version}")
    # pyenv's shims exist for Pythons that are not chosen, and end with 127
    if old is None or subprocess.run([old, "-c", ""], capture_output=True).returncode != 0:
        pytest.skip(f"no Python {version} here")
    path = str(clone / door)
    command = [path, "--checks"] if door == "scripts/test" else [old, path]
    shutil.copytree(Path(__file__).parents[2] / ".ci", clone / ".ci")
    refused = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHON": old, "CI": ""}
    )
    assert refused.returncode == 4
    error, hint = refused.stderr.splitlines()[-2:]
    assert error.endswith(f" needs Python 3.10 or newer; this is Python {version}")
    assert hint.startswith("hint: run: ")
    assert environments(clone) == []
