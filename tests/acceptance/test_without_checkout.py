"""The program without a checkout: ``pip install DIR`` and ``DIR[conda]``, uvx and pipx (docs/how-it-works.md)."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from pages import documented
from product import BASE_PYTHON, Place

#: The programs of the tests' own environment.
PROGRAMS = Path(sys.executable).parent
COMMANDS = ("audit", "build", "clean", "configs", "env", "install-pyg", "sizes", "slim", "status", "upload", "verify",
            "verify-gpu", "wheels")  # fmt: skip


@pytest.mark.parametrize("words", ["--help", "-h", ""])
def test_help_lists_every_command_with_what_it_does(plain_install: Place, words: str) -> None:
    text = plain_install.run(f"megabuild {words}").succeeded()
    for command in COMMANDS:
        assert re.search(rf"(?m)^ +{command} +\S.*\S", text), command


@pytest.mark.parametrize("command", [*COMMANDS, "env create"])
def test_every_command_has_help_without_the_extra(plain_install: Place, command: str) -> None:
    text = plain_install.run(f"megabuild {command} --help").succeeded()
    assert f"Usage: megabuild {command} " in text
    if command in ("install-pyg", "sizes", "slim", "verify"):
        assert "Examples" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_the_commands(plain_install: Place, shell: str) -> None:
    source = plain_install.run("megabuild", _MEGABUILD_COMPLETE=f"{shell}_source").succeeded()
    assert "_MEGABUILD_COMPLETE" in source
    word = "" if shell == "fish" else "1"
    asked = plain_install.run(
        "megabuild", _MEGABUILD_COMPLETE=f"{shell}_complete", COMP_WORDS="megabuild ", COMP_CWORD=word
    )
    completed = asked.succeeded()
    assert [command for command in COMMANDS if command not in completed] == []


def test_tab_offers_the_commands_and_nothing_else(plain_install: Place) -> None:
    answer = plain_install.run(
        "megabuild", _MEGABUILD_COMPLETE="bash_complete", COMP_WORDS="megabuild ", COMP_CWORD="1"
    )
    answer.succeeded()
    assert answer.errors == ""
    offered = {line.rpartition(",")[2] for line in answer.output.splitlines()}
    assert set(COMMANDS) <= offered


def test_a_command_that_needs_the_extra_names_it(plain_install: Place) -> None:
    text = plain_install.run("megabuild wheels linux_64_cpu_debian").ended_with(4)
    assert "megabuild[conda]" in text


def test_a_misspelt_command_gets_its_name(plain_install: Place) -> None:
    assert "slim" in plain_install.run("megabuild slimm").ended_with(2)


def test_sizes_of_requirements_in_a_plain_install(plain_install: Place) -> None:
    assert re.search(r"six .*kB", plain_install.run("megabuild sizes six").succeeded())


@pytest.mark.long  # another installation
def test_the_extra_adds_environments_and_wheels(conda_install: Place, plain_install: Place) -> None:
    # the fixtures install the wheel that these commands make of DIR
    assert documented("pip install 'DIR[conda]'")
    assert documented("pip install DIR")
    answer = conda_install.run("megabuild wheels linux_64_cpu_debian")
    assert answer.exit_code == 3, answer.text
    assert "no packages" in answer.text
    assert plain_install.run("megabuild wheels linux_64_cpu_debian").exit_code == 4


def test_uvx_measures_requirements(plain_install: Place, checkout: Place) -> None:
    answer = plain_install.run(f"{PROGRAMS}/uvx --from {checkout.folder} megabuild sizes six --json")
    answer.succeeded()
    document = json.loads(answer.output)
    assert "six" in json.dumps(document)


def test_uvx_slims_an_environment(plain_install: Place, checkout: Place) -> None:
    make = f"{PROGRAMS}/uv venv -q --python {BASE_PYTHON} ~/venv"
    plain_install.run(f"{make} && {PROGRAMS}/uv pip install -q --python ~/venv zstandard").succeeded()
    command = documented("uvx --from DIR megabuild slim ~/venv --arch-list 12.0", {"DIR": checkout.folder})
    plain_install.run(f"{PROGRAMS}/{command}").succeeded()


@pytest.mark.long  # another installation
def test_uvx_installs_pyg(pyg_user: Place) -> None:
    start = f"{PROGRAMS}/uvx --from {pyg_user.folder} megabuild"
    text = pyg_user.run(f"{start} install-pyg --python ~/venv torch_cluster --plan").ended_with(4)
    assert "PyTorch" in text
    assert "index" not in text


@pytest.mark.long  # another installation
def test_pipx_installs_it(plain_install: Place, checkout: Place, tmp_path: Path) -> None:
    command = documented("pipx install DIR", {"DIR": checkout.folder})
    plain_install.run(
        f"{PROGRAMS}/uvx {command}", PIPX_HOME=tmp_path / "pipx", PIPX_BIN_DIR=tmp_path / "bin"
    ).succeeded()
    assert "slim" in plain_install.run(f"{tmp_path}/bin/megabuild --help").succeeded()
