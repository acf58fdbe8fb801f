"""Without the packages of the extra: help, short help and completion of every command."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from calling import call
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from small_files import write

from command_line import root
from command_line.main import COMMANDS
from command_line.run_command import Invocation
from groundwork.errors import PreflightError

#: Runs `megabuild`; no module of the list in the first argument can be imported.
_PROGRAM = """\
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

absent = set(sys.argv.pop(1).split(","))
sys.meta_path.insert(0, Absent())
from command_line import root
from command_line.main import main
main()
"""


@pytest.fixture(scope="module")
def absent(repository: Path) -> str:
    """The modules of the packages that only the extra `conda` brings."""
    project = msgspec.toml.decode((repository / "pyproject.toml").read_text())["project"]
    extra = {canonicalize_name(Requirement(word).name) for word in project["optional-dependencies"]["conda"]}
    modules = [
        module
        for module, distributions in packages_distributions().items()
        if extra & {canonicalize_name(name) for name in distributions}
    ]
    assert "rattler_build" in modules
    return ",".join(modules)


def start(absent: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    command = [sys.executable, "-c", _PROGRAM, absent, *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True)


def test_a_command_of_a_checkout_has_its_path_as_one_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "my checkout" / "scripts" / "megabuild"
    write(program, "")
    monkeypatch.setattr(root, "ROOT", tmp_path / "my checkout")
    monkeypatch.setattr(root, "is_checkout", lambda: True)
    assert shlex.split(root.typed("megabuild slim")) == ["python3", str(program), "slim"]


@pytest.mark.parametrize("words", [["--help"], ["-h"], []])
def test_the_list_of_commands_needs_no_extra(words: list[str], absent: str) -> None:
    shown = start(absent, *words)
    assert shown.returncode == 0, shown.stderr
    listed = {line.split()[0] for line in shown.stdout.splitlines() if line.startswith("  ")}
    assert set(COMMANDS) <= listed


@pytest.mark.parametrize("command", [*COMMANDS, "env create"])
def test_the_help_of_a_command_needs_no_extra(command: str, absent: str) -> None:
    shown = start(absent, *command.split(), "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith(f"Usage: megabuild {command} ")


@pytest.mark.parametrize(
    ("shell", "variables"),
    [
        ("bash", {"COMP_WORDS": "megabuild ", "COMP_CWORD": "1"}),
        ("zsh", {"COMP_WORDS": "megabuild ", "COMP_CWORD": "1"}),
        ("fish", {"COMP_WORDS": "megabuild ", "COMP_CWORD": ""}),
    ],
)
def test_completion_needs_no_extra(shell: str, variables: dict[str, str], absent: str) -> None:
    shown = start(absent, _MEGABUILD_COMPLETE=f"{shell}_complete", **variables)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert not [command for command in COMMANDS if command not in shown.stdout]


def test_an_unknown_command_gets_the_name_of_a_close_one(absent: str) -> None:
    shown = start(absent, "slimm")
    assert shown.returncode == 2
    assert "did you mean slim?" in shown.stderr


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ({"url": "file:///a%20b", "dir_info": {}}, "'megabuild[conda] @ file:///a%20b'"),
        (
            {"url": "https://git.example/m.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "'megabuild[conda] @ git+https://git.example/m.git@abc'",
        ),
        (None, "'megabuild[conda]'"),
    ],
)
@pytest.mark.parametrize(
    ("note", "variables", "command"),
    [
        ("", {}, f"{sys.executable} -m pip install {{}}"), ("", {"UV": "uv"}, "uvx --from {} megabuild audit --json"),
        ("uv-receipt.toml", {"UV": "uv"}, "uv tool install {}"),
        ("pipx_metadata.json", {}, "pipx install --force {}"),
    ],
)  # fmt: skip
def test_the_extra_comes_from_the_same_place_with_the_same_installer(
    origin: dict[str, Any] | None, address: str, note: str, variables: dict[str, str], command: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if note:
        (tmp_path / note).touch()
    written = json.dumps(origin) if origin else None
    distribution = SimpleNamespace(read_text=lambda name: written)
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: distribution)
    monkeypatch.setattr(root, "is_checkout", lambda: False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["megabuild", "audit", "--json"])
    monkeypatch.delenv("UV", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    error = root.lacking_extra(ModuleNotFoundError("x", name="rattler.index"))
    assert error is not None
    assert error.message == "rattler is not installed; this command needs it"
    assert error.remedy == "run: " + command.format(address)


def test_a_command_that_cannot_be_imported_names_what_is_not_installed(
    invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def import_module(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name="rattler")

    monkeypatch.setattr("command_line.main.import_module", import_module)
    monkeypatch.setattr(root, "is_checkout", lambda: False)
    done = call(invocation, "audit")
    assert done.exit_code == PreflightError.exit_code
    assert "rattler is not installed; this command needs it" in done.stderr


def test_without_metadata_the_extra_comes_from_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of modules that were copied, or that PYTHONPATH names."""

    def distribution(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", distribution)
    monkeypatch.setattr(root, "is_checkout", lambda: False)
    error = root.lacking_extra(ModuleNotFoundError("x", name="rattler"))
    assert error is not None
    assert error.remedy.endswith(" 'megabuild[conda]'")
