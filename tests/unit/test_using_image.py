"""Containerfiles, parsed as an engine does."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from click.testing import CliRunner
from tiny import make_channel, make_package

from megabuild.cli.exits import Invocation
from megabuild.cli.megabuild import megabuild
from megabuild.engine import archive
from megabuild.errors import MegabuildError, PreflightError, UsageError
from megabuild.plan import published
from megabuild.using import image

NAME = "linux_64_cuda132_wheel"
WORDS = frozenset(["ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "FROM", "RUN"])


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Give each instruction with its argument; comments are left out and lines joined."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, argument = line.partition(" ")
            assert word in WORDS, line
            yield word, argument.strip()


def arguments(text: str) -> dict[str, str]:
    """Values of ARG, as they are in the end; those of one name are the same in all stages."""
    found: dict[str, str] = {}
    for word, argument in instructions(text):
        if word == "ARG":
            for declared in shlex.split(argument):
                name, _, value = declared.partition("=")
                assert found.setdefault(name, value) == value, name
    return found


def channel(folder: Path, beside: Path | str) -> Path:
    """A published channel with two extensions for a GPU."""
    made = [
        make_package(folder / "made" / "linux-64", name, "1.0", "0")
        for name in ("pytorch_scatter", "pytorch")
    ]
    where = folder / "packages" / NAME
    published.publish(
        where,
        [archive.read(path) for path in made],
        platform="linux-64",
        fingerprints={path.name: "f" for path in made},
        seconds={},
    )
    published.note_channels(where, (beside,))
    return where


@pytest.mark.parametrize("name", ["wheel", "built"])
def test_a_template_is_a_containerfile_with_two_stages_and_what_they_copy_is_there(
    name: str, repository: Path
) -> None:
    text = (files("megabuild.using") / f"{name}.Containerfile").read_text()
    found = list(instructions(text))
    assert [argument for word, argument in found if word == "FROM"] == ["${BASE} AS build", "${BASE}"]
    last = [word for word, _ in found][::-1].index("FROM")
    assert ("COPY", "--from=build /opt/env /opt/env") in found[-last:]
    assert not any("g++" in argument for _, argument in found[-last:])
    copied = [word for kind, argument in found if kind == "COPY" for word in argument.split()[:-1]]
    sources = [word for word in copied if not word.startswith(("--from", "/opt", "."))]
    assert "scripts" in sources
    assert not [source for source in sources if not (repository / source).exists()]
    names = set(arguments(text))
    for kind, argument in found:
        used = {word.split("}")[0].split(":")[0] for word in argument.split("${")[1:]}
        assert kind == "ENV" or used <= names, argument


def test_a_wheels_values_are_those_asked_for(invocation: Invocation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")  # no nvidia-smi

    def run(*words: str) -> str:
        done = CliRunner().invoke(megabuild, ["containerfile", *words], obj=invocation)
        if isinstance(done.exception, MegabuildError):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.stdout

    cuda = arguments(run("--arch-list", "9.0 12.0+PTX", "--torch", "2.15.0", "torch_scatter", "pyg-lib"))
    assert (cuda["ARCHS"], cuda["TORCH"], cuda["CUDA"]) == ("9.0;12.0+PTX", "2.15.0", "13.2")
    assert cuda["EXTENSIONS"] == "torch_scatter pyg-lib"
    assert cuda["TORCH_INDEX"] == ""
    cpu = arguments(run("--cpu", "--base", "python:3.12-slim"))
    assert (cpu["ARCHS"], cpu["CUDA"], cpu["BASE"]) == ("", "", "python:3.12-slim")
    assert cpu["TORCH_INDEX"] == image.CPU_INDEX
    assert cpu["EXTENSIONS"] == "torch_scatter torch_sparse torch_cluster torch_spline_conv"
    assert (cpu["SLIM"], cuda["SLIM"]) == ("", "")
    small = arguments(run("--arch-list", "12.0", "--slim", "--keep", "profiler, distributed"))
    assert small["SLIM"] == "--keep byte-code,profiler,distributed"
    with pytest.raises(UsageError, match="nothing called tea to keep"):
        run("--cpu", "--slim", "--keep", "tea")
    with pytest.raises(UsageError, match="--keep goes with --slim"):
        run("--cpu", "--keep", "profiler")
    with pytest.raises(UsageError, match="no NVIDIA GPU here"):
        run()
    with pytest.raises(UsageError, match="--python does not go without --from"):
        run("--cpu", "--python", "3.12")
    with pytest.raises(UsageError, match="does not fit into a Containerfile"):
        run("--cpu", "--base", 'debian"\nRUN true')


def test_the_gpu_here_is_what_extensions_are_compiled_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nprintf '12.0\\n9.0\\n12.0\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert image.archs_here() == "9.0;12.0"
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'; exit 9\n")
    assert image.archs_here() == ""


def test_what_was_built_comes_with_the_channel_that_it_needs(tmp_path: Path) -> None:
    beside = make_channel(tmp_path / "beside")
    where = channel(tmp_path, beside)
    text = image.built(where, packages=(), python="3.12", base=None)
    found = arguments(text)
    assert (found["CONFIG"], found["CUDA"]) == (NAME, "13.2")
    assert (found["PACKAGES"], found["BESIDE"]) == ("pytorch_scatter python=3.12", "/opt/beside")
    assert f"--build-context built={where} --build-context beside={beside}" in text.splitlines()[3]
    assert ("COPY", "--from=beside . /opt/beside/") in instructions(text)
    assert (found["SLIM"], found["ARCHS"]) == ("", "")


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs the system's Python")
@pytest.mark.parametrize(("name", "needs"), [("wheel", "python3-dev"), ("built", "python3-venv")])
def test_the_systems_python_gets_what_debian_splits_off(name: str, needs: str, tmp_path: Path) -> None:
    text = (files("megabuild.using") / f"{name}.Containerfile").read_text()
    line = next(argument for word, argument in instructions(text) if word == "RUN")

    def run() -> str:
        environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        return subprocess.run(
            ["sh", "-c", line], env=environ, capture_output=True, text=True, check=True
        ).stdout

    (tmp_path / "apt-get").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "apt-get").chmod(0o755)
    assert needs in run()
    (tmp_path / "python3").symlink_to("/usr/bin/python3")  # as an image's own Python
    assert needs not in run()


@pytest.mark.parametrize("name", ["wheel", "built"])
def test_slimming_is_for_the_gpus_of_an_arch_list_and_takes_no_options_of_its_own(
    name: str, tmp_path: Path
) -> None:
    """The template's line, run by a shell as in an image, with a program that notes its arguments."""
    text = (files("megabuild.using") / f"{name}.Containerfile").read_text()
    (line,) = [argument for word, argument in instructions(text) if word == "RUN" and " slim " in argument]
    noted = tmp_path / "python3"
    noted.write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    noted.chmod(0o755)

    def run(**values: str) -> list[str]:
        environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CUDA": "13.2", "ARCHS": "", **values}
        done = subprocess.run(["sh", "-c", line], env=environ, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[1:]

    assert run(SLIM="") == []
    usual = ["slim", "/opt/env", "--apply", "--forget", "--keep", "byte-code"]
    assert run(SLIM="--keep byte-code", ARCHS="9.0a;12.0+PTX") == [*usual, "--gpu", "9.0;12.0"]
    assert run(SLIM="--keep byte-code", ARCHS="", CUDA="") == usual


def test_a_channel_on_the_network_is_named_and_not_copied(tmp_path: Path) -> None:
    text = image.built(channel(tmp_path, "https://example.org/c"), packages=("x",), python=None, base="b")
    found = arguments(text)
    assert (found["BESIDE"], found["PACKAGES"], found["BASE"]) == ("https://example.org/c", "x", "b")
    assert "=beside" not in text


def test_a_folder_s_name_stays_in_the_comment_that_names_it(tmp_path: Path) -> None:
    beside = make_channel(tmp_path / "two words")
    where = channel(tmp_path / "it's", beside)
    text = image.built(where, packages=(), python=None, base=None)
    words = shlex.split(text.splitlines()[3])
    assert [words[at + 1] for at, word in enumerate(words) if word == "--build-context"] == [
        f"built={where}",
        f"beside={beside}",
    ]
    for mark in ("\n", "\r"):
        where = channel(tmp_path / f"one{mark}RUN true", "https://example.org/c")
        with pytest.raises(UsageError, match="does not fit into a line") as raised:
            image.built(where, packages=(), python=None, base=None)
        assert raised.value.remedy


def test_without_that_channel_it_says_so(tmp_path: Path) -> None:
    where = channel(tmp_path, tmp_path / "gone")
    with pytest.raises(PreflightError, match="need besides is gone"):
        image.built(where, packages=(), python=None, base=None)


@pytest.mark.parametrize(
    ("name", "version"),
    [("linux_64_cuda132_wheel", "13.2"), ("linux_64_cuda129-2.13.0", "12.9"), ("linux_64_cpu_debian", None)],
)
def test_a_name_tells_the_cuda_version(name: str, version: str | None) -> None:
    assert image.cuda_of(name) == version


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_without_nvidia_smi_the_driver_is_asked(tmp_path: Path) -> None:
    source = tmp_path / "driver.c"
    source.write_text(
        "int cuInit(unsigned f) { return 0; }\n"
        "int cuDeviceGetCount(int *n) { *n = 2; return 0; }\n"
        "int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 8 + d : 6 * (1 - d); return 0; }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", source], check=True)
    code = "from megabuild.using.image import archs_here; print(archs_here())"
    environ = {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), "PATH": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "8.6;9.0\n"
