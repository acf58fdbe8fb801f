"""What could be imported before a slimming can be afterwards, or it is undone."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from calling import call
from slim_world import SITE, install, tree, venv

from command_line.run_command import Invocation
from gpu_tools.slim import check as checking
from gpu_tools.slim.slim_report import check_lines
from groundwork.errors import UsageError, VerdictError

FRAGILE = "import pathlib\npathlib.Path(__file__).with_name('libx.a').read_bytes()\n"


@pytest.fixture
def env(tmp_path: Path) -> Path:
    """Return an environment of which a step would take what a package reads as it is imported."""
    env = venv(tmp_path / "env")
    modules = {"sound.py": "import os\n", "spaced/deep/__init__.py": "import sound\n"}
    install(env, "sound", {**modules, "libsound.a": b"!<arch>\n" * 9000})
    install(env, "fragile", {"fragile/__init__.py": FRAGILE, "fragile/libx.a": b"!<arch>\n" * 9000})
    return env


def test_what_breaks_is_named_and_undone(env: Path, invocation: Invocation) -> None:
    before = tree(env)
    done = call(invocation, "slim", str(env), "--apply")
    assert done.exit_code == VerdictError.exit_code
    told = [words in " ".join(done.stderr.split()) for words in ("`import fragile`", "libx.a", "restored")]
    assert told == [True] * 3
    assert tree(env) == before
    assert call(invocation, "slim", str(env), "--apply", "--no-check").exit_code == 0
    assert not (env / SITE / "fragile/libx.a").exists()


def test_modules_that_fail_before_are_nobody_s_fault(
    env: Path, invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One raises, one exits, one ends the process, one takes too long, one needs the others not to be there."""
    monkeypatch.setattr(checking, "_TIMEOUT", 1.5)
    shutil.rmtree(env / SITE / "fragile")
    bad = {
        "raising.py": "import nothing_like_that\n",
        "leaving.py": "raise SystemExit(0)\n",
        "aborting.py": "import os\nos.abort()\n",
        "sleeping.py": "import time\ntime.sleep(600)\n",
        "talking.py": "print('+')\nsound = input()\n",
    }
    install(env, "bad", bad)
    install(env, "shy", {"zshy/__init__.py": "import sys\nassert 'sound' not in sys.modules\n"})
    before = tree(env)
    done = call(invocation, "slim", str(env), "--apply", "--json")
    assert done.exit_code == 0
    checked = json.loads(done.stdout)["checked"]
    assert checked["modules"] == 3  # sound, spaced.deep, zshy
    assert checked["failed_before"] == ["aborting", "leaving", "raising", "sleeping", "talking"]
    assert not [*env.rglob("__pycache__")]
    assert call(invocation, "slim", str(env), "--undo").exit_code == 0
    assert tree(env) == before


def test_a_command_is_checked_as_well(env: Path, invocation: Invocation) -> None:
    shutil.rmtree(env / SITE / "fragile")
    before = tree(env)
    there = f"python -c 'import sound' && test -e {env}/{SITE}/libsound.a"
    for commands, code, told in (
        (["true", there], VerdictError.exit_code, "libsound.a` failed"),
        (["echo lost; exit 3"], UsageError.exit_code, "code 3: lost"),
    ):
        words = [word for command in commands for word in ("--check", command)]
        done = call(invocation, "slim", str(env), "--apply", *words)
        assert (done.exit_code, told in done.stderr.replace("\n  ", "")) == (code, True), done.stderr
        assert tree(env) == before
    done = call(invocation, "slim", str(env), "--apply", "--check", "true")
    assert (done.exit_code, "1 command" in done.stdout) == (0, True)


def test_files_that_a_failed_check_changed_are_named(
    env: Path, invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking.Check, "_import", lambda _, names, __: dict.fromkeys(names, ""))
    changed = env / SITE / "libsound.a"
    words = ["--apply", "--check", f"test -e {changed} || {{ echo new > {changed}; false; }}"]
    done = call(invocation, "slim", str(env), *words)
    told = " ".join(done.stderr.split())
    assert (done.exit_code, "}` failed after slimming" in told) == (VerdictError.exit_code, True)
    assert "1 not, because they were changed" in told
    assert "all original files are restored" not in told
    assert (changed.read_text(), (env / SITE / "fragile/libx.a").exists()) == ("new\n", True)


@pytest.mark.parametrize(("folder", "site"), [("bin", "lib/python3.12/site-packages/"), ("any", "")])
def test_modules_are_those_that_python_imports_by_name(folder: str, site: str, tmp_path: Path) -> None:
    """Of an environment those of site-packages; of a folder of ``pip install --target`` all."""
    (tmp_path / folder).mkdir()
    files = ("gone.py", "b-c/__init__.py", "d/__init__.py", "d/e/__init__.py", "n/s/__init__.py", "d/f.py", "data.txt",
             "g.cpython-312-x86_64-linux-gnu.so", "h.abi3.so", "i.py")  # fmt: skip
    owners = dict.fromkeys([*(f"{site}{name}" for name in files), "root.py"], "x")
    contents = SimpleNamespace(root=tmp_path, owners=owners)
    found = checking._find_modules(cast(Any, contents), {f"{site}gone.py"})
    assert sorted(found) == ["d", "g", "h", "i", "n.s", *([] if site else ["root"])]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change owners")
def test_checks_run_as_the_owner_of_the_environment_without_root_s_groups(tmp_path: Path) -> None:
    env = tmp_path / "env"
    env.mkdir()
    os.chown(env, 12345, 12346)
    groups = os.getgroups()
    os.setgroups([4])
    try:
        command = 'test "$(id -u) $(id -g) $(id -G)" = "12345 12346 12346"'
        assert not checking.Check(env, [], print)._run(["/bin/sh", "-c", command])
    finally:
        os.setgroups(groups)


@pytest.mark.parametrize(("modules", "commands", "line"), [
    (["a", "b"], [], "checked: 2 modules can be imported as before"),
    (["a"], ["b", "c"], "checked: 1 module can be imported as before, and 2 commands succeeded"),
    ([], ["b"], "checked: 1 command succeeded"), ([], [], "not checked: no module can be imported"),
])  # fmt: skip
def test_the_report_says_what_was_checked(modules: list[str], commands: list[str], line: str) -> None:
    check = checking.Check(Path(), commands, print)
    check.modules = modules
    assert check_lines(check) == [line]


def test_it_runs_away_from_the_user_s_files(env: Path, invocation: Invocation, tmp_path: Path) -> None:
    install(env, "curious", {"fragile/__init__.py": "", "curious.py": (
        "import os, pathlib, sys\n"
        "pathlib.Path('in-the-folder').touch()\n"
        "(pathlib.Path.home() / 'in-the-home').touch()\n"
        "assert sys.prefix.endswith('/env'), sys.prefix\n"
        "assert sys.dont_write_bytecode\n")})  # fmt: skip
    folder = tmp_path / "here"
    folder.mkdir()
    home, before = Path.home(), os.getcwd()
    os.chdir(folder)
    try:
        assert call(invocation, "slim", str(env), "--apply").exit_code == 0
    finally:
        os.chdir(before)
    assert [*folder.iterdir()] == []
    assert not (home / "in-the-home").exists()
