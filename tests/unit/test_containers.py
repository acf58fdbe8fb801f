"""Containerfiles, read as an engine does; `tests/integration/test_container_images.py` builds from them."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from small_files import program

from megabuild.configs.config import available, load
from pyg_extensions.table import EXTENSIONS

NAMES = ("torch-and-pyg", "built-packages")


def instructions(repository: Path, name: str) -> list[tuple[str, str]]:
    """Give each instruction with its argument; comments are left out and lines joined."""
    text = (repository / "containers" / f"{name}.Containerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    pairs = (line.partition(" ") for line in lines if line.strip())
    return [(word, argument.strip()) for word, _, argument in pairs]


def declared(repository: Path, name: str) -> dict[str, str]:
    """Return the ARGs that have values: those before the first FROM."""
    arguments = (argument for word, argument in instructions(repository, name) if word == "ARG")
    words = (word for argument in arguments for word in shlex.split(argument))
    return dict(word.split("=", 1) for word in words if "=" in word)


def shell(
    repository: Path, name: str, words: str, folder: Path, **values: str
) -> subprocess.CompletedProcess[str]:
    """Run the one RUN with these words as in an image, where programs in a folder come before the machine's."""
    (line,) = (
        argument for word, argument in instructions(repository, name) if word == "RUN" and words in argument
    )
    environ = {"PATH": f"{folder}:/usr/bin:/bin", **values}
    return subprocess.run(["sh", "-c", line], env=environ, capture_output=True, text=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_second_stage_has_no_compilers_and_what_is_copied_is_there(name: str, repository: Path) -> None:
    read = instructions(repository, name)
    stages = [argument for word, argument in read if word == "FROM" and argument != "scratch AS beside"]
    assert stages == ["${BASE} AS build", "${BASE}"]
    last = [word for word, _ in read][::-1].index("FROM")
    assert ("COPY", "--from=build /opt/env /opt/env") in read[-last:]
    assert not any("g++" in argument for _, argument in read[-last:])
    copied = [word for kind, argument in read if kind == "COPY" for word in argument.split()[:-1]]
    sources = [word for word in copied if not word.startswith(("--from", "/opt", "."))]
    assert {"scripts", "src"} <= set(sources)
    assert not [source for source in sources if not (repository / source).exists()]


def test_versions_are_those_of_the_newest_config_that_takes_a_wheel(repository: Path) -> None:
    configs = [load(repository, name) for name in available(repository) if name.endswith("_wheel")]
    newest = max(configs, key=lambda config: float(config.cuda_version or 0))
    values = declared(repository, NAMES[0])
    assert (values["TORCH"], values["CUDA"]) == (newest.torch_version, newest.cuda_version)
    assert values["EXTENSIONS"] == " ".join(one.name for one in EXTENSIONS if one.has_sdist)


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs the system's Python")
@pytest.mark.parametrize(("name", "needs"), [(NAMES[0], "python3-dev"), (NAMES[1], "python3-venv")])
def test_the_systems_python_gets_what_debian_splits_off(
    name: str, needs: str, repository: Path, tmp_path: Path
) -> None:
    program(tmp_path / "apt-get", 'echo "$@"')
    assert needs in shell(repository, name, "ca-certificates", tmp_path).stdout
    (tmp_path / "python3").symlink_to("/usr/bin/python3")  # as an image's own Python
    assert needs not in shell(repository, name, "ca-certificates", tmp_path).stdout


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("values", "more"),
    [
        ({"SLIM": ""}, None),
        ({"SLIM": "yes", "ARCHS": "9.0a;12.0+PTX"}, ["--arch-list", "9.0;12.0"]),
        ({"SLIM": "yes", "ARCHS": "", "CUDA": ""}, []),
    ],
)
def test_slimming_is_for_the_gpus_of_an_arch_list(
    name: str, values: dict[str, str], more: list[str] | None, repository: Path, tmp_path: Path
) -> None:
    program(tmp_path / "python3", 'for word; do echo "$word"; done')
    given = {"CUDA": "13.2", "ARCHS": "", "KEEP": declared(repository, name)["KEEP"], **values}
    done = shell(repository, name, " slim ", tmp_path, **given)
    usual = ["slim", "/opt/env", "--apply", "--forget", "--keep", ""]
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, [] if more is None else [*usual, *more])


PIP = """
case "$1" in
    freeze) printf '%s\\n' $PACKAGES; exit "$FREEZE" ;;
    *) echo "$@" ;;
esac
"""
KEPT = "torch==2.15.0\nnvidia-cublas==13.1\ncuda-toolkit==13.2\n"


@pytest.mark.parametrize(
    ("packages", "kept", "freeze", "code", "printed"),
    [
        (
            "torch==2.15.0 nvidia-cublas==13.2 Cuda-Nvcc==13.2 cuda-toolkit==13.2 torch_scatter==2", KEPT, "0", 0,
            ["uninstall -y nvidia-cublas Cuda-Nvcc", "install --no-deps nvidia-cublas==13.1 cuda-toolkit==13.2"],
        ),
        ("torch==2.15.0 torch_scatter==2", "torch==2.15.0\n", "0", 0, []),
        ("torch==2.15.0", "torch==2.15.0\n", "0", 0, []),
        ("torch==2.15.0", KEPT, "1", 1, []),
        ("nvidia-cublas==13.2", None, "0", 1, []),
    ],
)  # fmt: skip
def test_nvidia_s_packages_become_those_of_before_the_compiler(
    packages: str,
    kept: str | None,
    freeze: str,
    code: int,
    printed: list[str],
    repository: Path,
    tmp_path: Path,
) -> None:
    program(tmp_path / "env/bin/pip", PIP)
    if kept is not None:
        (tmp_path / "kept.txt").write_text(kept)
    (line,) = (argument for _, argument in instructions(repository, NAMES[0]) if "uninstall" in argument)
    environ = {"PATH": "/usr/bin:/bin", "PACKAGES": packages, "FREEZE": freeze}
    line = line.replace("/opt/", f"{tmp_path}/")
    done = subprocess.run(["sh", "-c", line], env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()) == (code, printed), done.stderr
