"""Containerfiles, parsed as an engine does; `tests/integration/test_container_images.py` builds from them."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from megabuild.configs.config import available, load
from pyg_extensions.table import EXTENSIONS

NAMES = ("torch-and-pyg", "built-packages")
WORDS = frozenset(["ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "RUN"])
#: What an engine or pip knows by itself.
NOT_OURS = re.compile(r"PIP_\w+")


def text_of(repository: Path, name: str) -> str:
    return (repository / "containers" / f"{name}.Containerfile").read_text(encoding="utf-8")


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Give each instruction with its argument; comments are left out and lines joined."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, argument = line.partition(" ")
            assert word in WORDS, line
            yield word, argument.strip()


def declared(text: str) -> dict[str, str | None]:
    """Return the ARGs before the first FROM, which have all values, with theirs."""
    found: dict[str, str | None] = {}
    for word, argument in instructions(text):
        if word == "FROM":
            break
        for one in shlex.split(argument):
            name, sign, value = one.partition("=")
            found[name] = value if sign else None
    return found


def line_of(text: str, *words: str) -> str:
    """Return the one RUN with these words."""
    (found,) = (
        argument
        for word, argument in instructions(text)
        if word == "RUN" and all(one in argument for one in words)
    )
    return found


def shell(line: str, path: Path | None = None, **values: str) -> subprocess.CompletedProcess[str]:
    """Run a line as in an image, where programs in a folder come before the machine's."""
    environ = {"PATH": f"{path}:/usr/bin:/bin" if path else "/usr/bin:/bin", **values}
    return subprocess.run(["sh", "-c", line], env=environ, capture_output=True, text=True, check=False)


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("name", NAMES)
def test_the_second_stage_has_no_compilers_and_what_is_copied_is_there(name: str, repository: Path) -> None:
    found = list(instructions(text_of(repository, name)))
    stages = [argument for word, argument in found if word == "FROM" and argument != "scratch AS beside"]
    assert stages == ["${BASE} AS build", "${BASE}"]
    last = [word for word, _ in found][::-1].index("FROM")
    assert ("COPY", "--from=build /opt/env /opt/env") in found[-last:]
    assert not any("g++" in argument for _, argument in found[-last:])
    copied = [word for kind, argument in found if kind == "COPY" for word in argument.split()[:-1]]
    sources = [word for word in copied if not word.startswith(("--from", "/opt", "."))]
    assert "scripts" in sources
    assert not [source for source in sources if not (repository / source).exists()]


def test_versions_are_those_of_the_newest_config_that_takes_a_wheel(repository: Path) -> None:
    known = [load(repository, name) for name in available(repository) if name.endswith("_wheel")]
    newest = max(known, key=lambda one: float(one.cuda_version or 0))
    found = declared(text_of(repository, "torch-and-pyg"))
    assert (found["TORCH"], found["CUDA"]) == (newest.torch_version, newest.cuda_version)
    assert found["EXTENSIONS"] == " ".join(one.name for one in EXTENSIONS if one.name != "pyg_lib")


def test_it_is_refused_at_once_where_nobody_said_for_what(repository: Path) -> None:
    line = line_of(text_of(repository, "torch-and-pyg"), "for which GPU?")
    assert shell(line, CUDA="13.2", ARCHS="").returncode == 1
    assert shell(line, CUDA="13.2", ARCHS="12.0").returncode == 0
    assert shell(line, CUDA="", ARCHS="").returncode == 0
    line = line_of(text_of(repository, "built-packages"), "which folder")
    assert (shell(line).returncode, shell(line, CONFIG="linux_64_cpu").returncode) == (1, 0)


@pytest.mark.parametrize(
    ("values", "index"),
    [
        ({"CUDA": ""}, ["--index-url", "https://download.pytorch.org/whl/cpu"]),
        ({"CUDA": "13.2", "TORCH_INDEX": "https://x/y"}, ["--index-url", "https://x/y"]),
    ],
)
def test_pytorch_for_cpus_comes_from_its_own_index(
    values: dict[str, str], index: list[str], repository: Path, tmp_path: Path
) -> None:
    line = line_of(text_of(repository, "torch-and-pyg"), "torch==$TORCH")
    program(tmp_path / "python3", "true")
    program(tmp_path / "pip", 'printf "%s\\n" "$@" >> ' + str(tmp_path / "noted"))
    for inside in ("/opt/env/bin/pip", "/opt/kept.txt"):
        line = line.replace(inside, str(tmp_path / Path(inside).name))
    done = shell(line, tmp_path, TORCH="2.15.0", MORE="numpy", **values)
    assert done.returncode == 0, done.stderr
    noted = (tmp_path / "noted").read_text().splitlines()
    assert noted[: noted.index("torch==2.15.0")] == ["install", *index]


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs the system's Python")
@pytest.mark.parametrize(("name", "needs"), [(NAMES[0], "python3-dev"), (NAMES[1], "python3-venv")])
def test_the_systems_python_gets_what_debian_splits_off(
    name: str, needs: str, repository: Path, tmp_path: Path
) -> None:
    line = line_of(text_of(repository, name), "ca-certificates")
    program(tmp_path / "apt-get", 'echo "$@"')
    assert needs in shell(line, tmp_path).stdout
    (tmp_path / "python3").symlink_to("/usr/bin/python3")  # as an image's own Python
    assert needs not in shell(line, tmp_path).stdout


@pytest.mark.parametrize("name", NAMES)
def test_slimming_is_for_the_gpus_of_an_arch_list(name: str, repository: Path, tmp_path: Path) -> None:
    """The line, run by a shell as in an image, with a program that notes its arguments."""
    text = text_of(repository, name)
    line, keep = line_of(text, " slim "), declared(text)["KEEP"] or ""
    program(tmp_path / "python3", 'for word; do echo "$word"; done')

    def run(**values: str) -> list[str]:
        done = shell(line, tmp_path, **{"CUDA": "13.2", "ARCHS": "", "KEEP": keep, **values})
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[1:]

    assert run(SLIM="") == []
    usual = ["slim", "/opt/env", "--apply", "--forget", "--keep", ""]
    assert run(SLIM="yes", ARCHS="9.0a;12.0+PTX") == [*usual, "--arch-list", "9.0;12.0"]
    assert run(SLIM="yes", ARCHS="", CUDA="") == usual
