"""The user's pip settings: which reach a pip that megabuild runs, and a pip that does not answer."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from small_files import program

from groundwork import pip_settings
from groundwork.errors import ProviderError
from groundwork.pip_settings import ENVIRONMENT, PipSettings

#: The settings that move, suppress or restrict an installation.
MOVING = (
    "dry-run", "no-deps", "only-binary", "prefix", "python", "require-hashes", "root", "target", "user",
)  # fmt: skip


#: Those of pip's own output and checks, which change neither packages nor their place.
DISPLAY = (
    "config-file", "debug", "disable-pip-version-check", "log", "log-file", "no-color", "no-input",
    "no-python-version-warning", "no-warn-conflicts", "no-warn-script-location", "progress-bar", "quiet",
    "require-virtualenv", "root-user-action", "verbose",
)  # fmt: skip


def fake_pip(folder: Path, answer: str) -> tuple[str, ...]:
    return (str(program(folder / "pip", answer)),)


def read(folder: Path, listed: str, environ: dict[str, str]) -> PipSettings:
    return pip_settings.read(fake_pip(folder, f"cat <<'END'\n{listed}\nEND"), {"PATH": os.defpath, **environ})


def test_settings_that_move_packages_reach_no_pip(tmp_path: Path) -> None:
    variables = {f"PIP_{name.upper().replace('-', '_')}": "1" for name in MOVING}
    asked = {"PIP_INDEX_URL": "https://index.example/simple", "PIP_QUIET": "1", "HOME": "/h", **variables}
    settings = read(tmp_path, "install.target='/t'", asked)
    assert settings.ignored() == MOVING
    environ = settings.environ(asked)
    pips = {name: value for name, value in environ.items() if name.startswith("PIP_")}
    assert pips == {"PIP_INDEX_URL": "https://index.example/simple", "PIP_CONFIG_FILE": "/dev/null"}
    assert environ["HOME"] == "/h"


def test_settings_of_what_pip_shows_are_not_named_as_ignored() -> None:
    """Images for containers set several of them."""
    assert PipSettings(dict.fromkeys((*DISPLAY, "target"), "1")).ignored() == ("target",)


def test_a_later_place_overrides_and_a_warning_is_no_setting(tmp_path: Path) -> None:
    listed = (
        "WARNING: old\nglobal.index-url='a'\nglobal.timeout='7'\nglobal.cert='c'\n"
        "install.index-url='b'\nfreeze.timeout='9'\n"
        "install.find-links='\\n/a\\n/b'\ninstall.user=damaged"
    )
    assert read(tmp_path, listed, {}).values == {
        "index-url": "b", "default-timeout": "7", "cert": "c", "find-links": "\n/a\n/b",
    }  # fmt: skip
    values = read(tmp_path, listed, {"PIP_PYPI_URL": "d", "PIP_CERT": "", "PIP_TIMEOUT": "180"}).values
    assert (values["index-url"], values["cert"], values["default-timeout"]) == ("d", "c", "180")


@pytest.mark.parametrize("variables", [{}, {"PIP_CONFIG_FILE": "/own.conf"}, {"PIP_CONFIG_FILE": os.devnull}])
def test_pip_is_asked_for_the_file_that_the_user_names(variables: dict[str, str], tmp_path: Path) -> None:
    pip = fake_pip(tmp_path, 'echo "${PIP_CONFIG_FILE-none} ${PIP_TARGET-none}"')
    shown = pip_settings.ask(pip, {**variables, "PIP_TARGET": "/t", "PATH": os.defpath}, "config", "list")
    assert shown.split() == [variables.get("PIP_CONFIG_FILE", "none"), "none"]


def test_limits_of_versions_and_permissions_are_for_the_users_environments_only(tmp_path: Path) -> None:
    settings = read(tmp_path, "global.constraint='c.txt'\nglobal.break-system-packages='true'", {})
    assert settings.is_on("break-system-packages")
    assert settings.ignored() == ()
    assert set(settings.environ({})) == {"PIP_CONFIG_FILE"}
    assert settings.environ({}, ENVIRONMENT)["PIP_CONSTRAINT"] == "c.txt"


@pytest.mark.parametrize(
    ("answer", "said", "hint"),
    [
        ("echo 'python: No module named pip' >&2; exit 1", "No module named pip", "ensurepip"),
        ("echo 'ERROR: broken https://me:s3cret@index.example' >&2; exit 3", "index.example", "pip config"),
        ("kill -9 $$", "SIGKILL", "pip config"),
        ("echo 'This version of pip does not support python 3.9' >&2; exit 1", "3.9", "/pip -m ensurepip"),
    ],
)
def test_a_pip_without_an_answer_is_an_error(answer: str, said: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(ProviderError) as raised:
        pip_settings.read(fake_pip(tmp_path, answer), {})
    assert said in raised.value.message
    assert "s3cret" not in raised.value.message
    assert hint in raised.value.remedy


def test_a_slow_pip_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pip_settings, "_SECONDS", 0.1)
    with pytest.raises(ProviderError, match="pip config list"):
        pip_settings.read(fake_pip(tmp_path, "exec sleep 5"), {"PATH": os.environ["PATH"]})


def test_the_running_python_starts_its_own_pip() -> None:
    assert pip_settings.own_pip() == (sys.executable, "-I", "-m", "pip")


@pytest.mark.parametrize(
    "name",
    [
        "cache-dir", "cert", "client-cert", "default-timeout", "extra-index-url", "find-links", "index-url",
        "keyring-provider", "no-cache-dir", "no-index", "proxy", "resume-retries", "retries", "trusted-host",
        "use-deprecated", "use-feature",
    ],
)  # fmt: skip
def test_the_way_to_packages_reaches_every_pip(name: str) -> None:
    settings = PipSettings({name: "x"})
    variable = f"PIP_{name.upper().replace('-', '_')}"
    assert settings.environ({}) == {variable: "x", "PIP_CONFIG_FILE": os.devnull}
    assert settings.ignored() == ()
