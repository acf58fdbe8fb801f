"""Help texts, the list of configs, and the choice of a config."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from calling import call
from click.testing import CliRunner
from small_files import write

from command_line import build
from command_line.configs import choose
from command_line.main import COMMANDS, load, megabuild
from command_line.options import _example_rows
from command_line.run_command import Invocation
from groundwork.errors import ConfigError, UsageError
from megabuild.configs.config import CONFIG_FOLDER
from megabuild.configs.config_file import stamped
from megabuild.configs.matrix import compared
from megabuild.configs.provider_name import ProviderName

NAMES = ("linux_64_cpu", "linux_64_cuda130", "osx_64_cpu")


def test_configs_are_listed_with_their_properties(invocation: Invocation) -> None:
    lines = call(invocation, "configs").stdout.splitlines()
    assert "linux_64_cuda130" in [line.split()[0] for line in lines]
    document = json.loads(call(invocation, "configs", "--json").stdout)
    assert document["format"] == "megabuild/configs"
    found = {entry["name"]: entry for entry in document["configs"]}
    assert found["linux_64_cuda130"]["cuda_version"] == "13.0"
    assert found["linux_64_cpu_debian"]["pythons"] == ["3.10", "3.11", "3.12", "3.13"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("configs", "--write", "--check"), "--write and --check"),
        (("slim", ".", "--apply", "--output", "x"), "--apply and --output"),
        (("slim", ".", "--apply", "--undo"), "--apply and --undo"),
        (("slim", ".", "--undo", "--forget"), "--undo and --forget"),
        (("slim", ".", "--output", "x", "--forget"), "--output and --forget"),
        (("slim", "env", "--apply", "--check", "true", "--no-check"), "--check and --no-check"),
    ],
)
def test_options_that_exclude_each_other_are_refused_before_anything_is_done(
    words: tuple[str, ...],
    named: str,
    invocation: Invocation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "env" / "conda-meta").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("megabuild.configs.matrix.compared", None)
    done = call(invocation, *words)
    assert (done.exit_code, f"error: {named} exclude each other" in done.stderr) == (2, True)


def test_outdated_configs_are_named_and_rewritten(tmp_path: Path, repository: Path) -> None:
    shutil.copy(repository / "conda_build_config.yaml", tmp_path)
    shutil.copytree(repository / CONFIG_FOLDER, tmp_path / CONFIG_FOLDER)
    (tmp_path / CONFIG_FOLDER / "osx_64_cpu.yaml").unlink()
    (tmp_path / CONFIG_FOLDER / "mine.yaml").write_text(stamped("python: []\n"))
    with (tmp_path / CONFIG_FOLDER / "linux_64_cpu.yaml").open("a") as file:
        file.write("changed: [by hand]\n")
    files = [f"{CONFIG_FOLDER}/{name}.yaml" for name in ("linux_64_cpu", "mine", "osx_64_cpu")]
    states = dict(zip(files, ("changed", "unknown", "missing"), strict=True))
    result = compared(tmp_path, mend=False)
    assert (result.exit_code, result.document) == (ConfigError.exit_code, {"outdated": states})
    assert [line.split() for line in result.lines[:3]] == [[state, file] for file, state in states.items()]
    assert "configs --write" in result.lines[-1]
    written = compared(tmp_path, mend=True)
    assert (written.format, written.document) == ("configs", {"outdated": states})
    verbs = ("wrote", "deleted", "wrote")
    assert [line.split() for line in written.lines] == [list(row) for row in zip(verbs, files, strict=True)]
    assert compared(tmp_path, mend=False).exit_code == 0


@pytest.mark.parametrize("state", ["changed", "missing", "unknown", "foreign"])
def test_each_kind_of_an_outdated_config_ends_the_check(state: str, tmp_path: Path, repository: Path) -> None:
    """CI asks for the exit code alone."""
    shutil.copy(repository / "conda_build_config.yaml", tmp_path)
    shutil.copytree(repository / CONFIG_FOLDER, tmp_path / CONFIG_FOLDER)
    path = tmp_path / CONFIG_FOLDER / "osx_64_cpu.yaml"
    match state:
        case "changed":
            path.write_text(f"{path.read_text()}changed: [by hand]\n")
        case "missing":
            path.unlink()
        case "unknown":
            path = path.with_name("mine.yaml")
            path.write_text(stamped("python: []\n"))
        case _:
            path.write_text("python: []\n")
    result = compared(tmp_path, mend=False)
    assert result.document == {"outdated": {f"{CONFIG_FOLDER}/{path.name}": state}}
    assert result.exit_code == ConfigError.exit_code


def test_the_list_of_commands_has_whole_sentences() -> None:
    shown = " ".join(CliRunner().invoke(megabuild, ["--help"]).output.split())
    assert not [name for name in COMMANDS if f" {name} {load(name).get_short_help_str(200)}" not in shown]


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("words", [(), ("env",), ("env", "create"), *((name,) for name in COMMANDS)])
def test_narrow_help_texts_have_the_same_words_and_whole_commands(words: tuple[str, ...], width: int) -> None:
    def shown(columns: int) -> str:
        done = CliRunner().invoke(megabuild, [*words, "--help"], terminal_width=columns)
        assert done.exit_code == 0
        return done.output

    wide, narrow = shown(300), shown(width)
    assert narrow.split() == wide.split()
    examples = [line.strip() for line in wide.partition("Examples:\n")[2].splitlines()]
    commands = [re.split(r" {2,}", line)[0] for line in examples if line.startswith("megabuild ")]
    lines = narrow.splitlines()
    assert all(any(command in line for line in lines) for command in commands)
    too_wide = [line.strip() for line in lines if len(line) > width and " " in line.strip()]
    assert not [line for line in too_wide if line not in commands and line not in _terms(wide)]


def test_an_example_has_its_whole_remark_also_below_it() -> None:
    rows = _example_rows("{prog} --option VALUE   a remark  in two parts", "megabuild", 30)
    assert rows == ["  megabuild --option VALUE", "      a remark  in two parts"]


def _terms(help_text: str) -> list[str]:
    """Return the options and usages of a wide help text, which stay whole: ``-o, --output DIR``."""
    return [re.split(r" {2,}", line.strip())[0] for line in help_text.splitlines()]


@pytest.mark.parametrize(("words", "command"), [([], "slim"), (["env"], "create")])
def test_a_group_of_commands_without_one_lists_them(
    words: list[str], command: str, invocation: Invocation
) -> None:
    done = call(invocation, *words)
    assert (done.exit_code, done.stderr) == (0, "")
    assert re.search(rf"^Commands:$.*^  {command} ", done.stdout, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("words", "guess"),
    [(["slimm"], "slim"), (["stats"], "status"), (["env", "creat"], "create"), (["veryfi"], "verify")],
)
def test_a_mistyped_command_is_guessed(words: list[str], guess: str, invocation: Invocation) -> None:
    done = call(invocation, *words)
    assert (done.exit_code, f"hint: did you mean {guess}?" in done.stderr) == (UsageError.exit_code, True)


@pytest.mark.parametrize("name", ["slim", "sizes", "verify"])
def test_a_command_for_any_environment_loads_nothing_of_the_driver(name: str) -> None:
    code = f"""import sys
from command_line.main import load
load({name!r})
driver = [f"megabuild.{{part}}" for part in ("build", "engine", "isolation", "plan", "providers", "audit")]
print(sorted({{"rattler", "rattler_build", *driver}} & sys.modules.keys()))"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_help_loads_no_module_that_few_commands_need() -> None:
    code = """import sys
from command_line.main import COMMANDS, load
for name in COMMANDS:
    load(name)
print(sorted({"importlib.metadata", "email", "markdown_it"} & sys.modules.keys()))"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_shell_gets_its_completion(invocation: Invocation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_MEGABUILD_COMPLETE", "zsh_source")
    done = call(invocation)
    assert (done.exit_code, done.stderr, "compdef _megabuild_completion" in done.stdout) == (0, "", True)


def test_config_names_are_completed(tmp_path: Path) -> None:
    from click.shell_completion import ShellComplete

    from command_line.build import build

    complete = ShellComplete(build, {}, "build-locally.py", "_BUILD_LOCALLY_PY_COMPLETE")
    names = [item.value for item in complete.get_completions([], "osx_")]
    assert names == ["osx_64_cpu", "osx_64_cpu_generic", "osx_arm64_cpu"]
    for file in ("recipe/recipe.yaml", ".ci_support/osx_64_.yaml"):
        write(tmp_path / file)
    (name,) = complete.get_completions(["--root", str(tmp_path)], "osx_")
    assert name.value == "osx_64_", "of the feedstock"


def test_the_only_config_is_the_default_and_each_named_one_is_chosen_once() -> None:
    assert choose(NAMES[2:], ()) == ("osx_64_cpu",)
    with pytest.raises(UsageError) as caught:
        choose(NAMES, ())
    assert "linux_64_cpu" in caught.value.remedy
    assert "megabuild configs" in caught.value.remedy
    assert choose(NAMES, ["linux_64_cuda130.yaml"]) == ("linux_64_cuda130",)
    # refused later, with suggestions, when its file is read
    assert choose(NAMES, ["unknown"]) == ("unknown",)
    chosen = ("linux_64_cpu", "osx_64_cpu", "linux_64_cuda130")
    assert choose(NAMES, ["*_cpu", "linux_64_cpu", "linux_64_c*"]) == chosen
    with pytest.raises(UsageError, match=r"'windows_\*'"):
        choose(NAMES, ["windows_*"])
    names = ("odd[1]", "odd1", "star*", "stars")
    assert choose(names, ["odd[1]", "star*"]) == ("odd[1]", "star*")
    assert choose(names, ["odd[[]1]"]) == ("odd[1]",)


def test_all_takes_no_names(invocation: Invocation) -> None:
    done = call(invocation, "build", "--all", "linux_64_cpu")
    assert (done.exit_code, "--all takes no names" in done.stderr) == (UsageError.exit_code, True)


@pytest.mark.parametrize("option", ["--extension", "--pyg-index", "--pyg-sources"])
def test_options_of_extensions_need_extensions(option: str, invocation: Invocation) -> None:
    done = call(invocation, "build", "linux_64_cpu", "--pyg", "none", option, "scatter")
    assert done.exit_code == UsageError.exit_code
    assert f"{option} needs extensions, but --pyg is none" in done.stderr


@pytest.mark.parametrize("name", ["build", "audit", "install-pyg"])
def test_every_program_prints_its_version(name: str, invocation: Invocation, repository: Path) -> None:
    expected = re.search(r'^version = "(.+)"$', (repository / "pyproject.toml").read_text(), re.MULTILINE)
    assert expected is not None
    for words in ((name, "--version"), ("--version",)):
        assert f"version {expected[1]}" in call(invocation, *words).stdout


@pytest.mark.parametrize(
    ("words", "selected"),
    [
        ((), ["of the provider"]),
        (("a", "b"), ["b", "a"]),
        (("a", "x"), ["of the provider"]),
        (("a*", "b"), ["sorted", "of the provider"]),
        (("b", "a*"), ["sorted", "of the provider"]),
    ],
)
def test_names_in_full_are_not_filtered_and_one_pattern_sorts(
    words: Sequence[str], selected: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "available", lambda _: ["b", "a"])
    monkeypatch.setattr(build, "of_provider", lambda *_: ["of the provider"])
    monkeypatch.setattr(build, "sort_for_sharing", lambda _, names: ["sorted", *names])
    assert build._selectable(Path(), ProviderName.DEBIAN, words) == selected
