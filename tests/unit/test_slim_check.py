"""What could be imported before a slimming can be afterwards, or it is undone."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from calling import exit_code as call
from slim_world import SITE, install, tree, venv

from command_line.run_command import Invocation
from gpu_tools.slim import check as checking
from groundwork.errors import UsageError, VerdictError

FRAGILE = "import pathlib\npathlib.Path(__file__).with_name('libx.a').read_bytes()\n"


@pytest.fixture
def env(tmp_path: Path) -> Path:
    """Return an environment of which a step would take what a package reads as it is imported."""
    env = venv(tmp_path / "env")
    install(
        env,
        "sound",
        {
            "sound.py": "import os\n",
            "spaced/deep/__init__.py": "import sound\n",
            "libsound.a": b"!<arch>\n" * 9000,
        },
    )
    install(env, "fragile", {"fragile/__init__.py": FRAGILE, "fragile/libx.a": b"!<arch>\n" * 9000})
    return env


def test_what_breaks_is_named_and_undone(
    env: Path, invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(env)
    assert call(invocation, "slim", str(env), "--apply") == VerdictError.exit_code
    said = " ".join(capsys.readouterr().err.split())
    assert "`import fragile`" in said
    assert "libx.a" in said
    assert "restored" in said
    assert tree(env) == before
    assert call(invocation, "slim", str(env), "--apply", "--no-check") == 0
    assert not (env / SITE / "fragile/libx.a").exists()


def test_modules_that_fail_before_are_nobody_s_fault(
    env: Path, invocation: Invocation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
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
    assert call(invocation, "slim", str(env), "--apply", "--json") == 0
    checked = json.loads(capsys.readouterr().out)["checked"]
    assert checked["modules"] == 3  # sound, spaced.deep, zshy
    assert checked["failed_before"] == ["aborting", "leaving", "raising", "sleeping", "talking"]
    assert not [*env.rglob("__pycache__")]
    assert call(invocation, "slim", str(env), "--undo") == 0
    assert tree(env) == before


def test_a_command_is_checked_as_well(
    env: Path, invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(env / SITE / "fragile")
    before = tree(env)
    there = f"python -c 'import sound' && test -e {env}/{SITE}/libsound.a"
    code = call(invocation, "slim", str(env), "--apply", "--check", "true", "--check", there)
    assert code == VerdictError.exit_code
    assert "libsound.a` failed" in "".join(capsys.readouterr().err.split("\n  "))
    assert tree(env) == before
    assert (
        call(invocation, "slim", str(env), "--apply", "--check", "echo lost; exit 3") == UsageError.exit_code
    )
    assert "code 3: lost" in " ".join(capsys.readouterr().err.split())
    assert tree(env) == before
    assert call(invocation, "slim", str(env), "--apply", "--check", "true") == 0
    assert "1 command" in capsys.readouterr().out


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
        assert call(invocation, "slim", str(env), "--apply") == 0
    finally:
        os.chdir(before)
    assert [*folder.iterdir()] == []
    assert not (home / "in-the-home").exists()
