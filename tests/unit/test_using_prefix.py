"""Environments of what was built."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from filelock import FileLock
from rattler.index import index_fs
from tiny import make_channel, make_package

from command_line.main import megabuild
from command_line.run_command import Invocation
from groundwork.errors import (
    BusyError,
    ConfigError,
    IntegrityError,
    MegabuildError,
    PreflightError,
    ProviderError,
    UsageError,
)
from groundwork.result import Result
from megabuild.engine import archive
from megabuild.environments import install, prefix
from megabuild.environments.install import MARKER, UNFINISHED
from megabuild.environments.prefix import EnvironmentRequest
from megabuild.plan import published
from megabuild.providers.environment import machine_platform

pytestmark = pytest.mark.skipif(machine_platform() != "linux-64", reason="packages of linux-64")
NAME = "linux_64_cuda132_wheel"
HELLO = '#!/bin/sh\necho "hello from $GREETER"\n'
ACTIVATION = {"etc/conda/activate.d/greet.sh": "export GREETER=me\n"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build's output with packages for a GPU and for none, and channels with Python 3.11 and 3.12 beside it."""
    folder = tmp_path_factory.mktemp("world")
    made = [
        make_package(folder / "made" / "linux-64", name, "1.0", "0", content, depends=depends)
        for name, depends, content in (
            ("greeting", ["python", "tool"], {"bin/hello": HELLO, **ACTIVATION}),
            ("for_gpu", ["__cuda"], {"share/gpu": "x"}),
            ("for_glibc", ["__glibc >=9"], {"share/glibc": "x"}),
        )
    ]
    published.publish(
        folder / "output" / "packages" / NAME,
        [archive.read(path) for path in made],
        platform="linux-64",
        fingerprints={path.name: "f" for path in made},
        seconds={},
    )
    for number, version in ((1, "3.11.7"), (2, "3.12.1")):
        make_channel(folder / f"beside{number}", (("python", version, "0"), ("tool", "1.0", "0")))
    return folder


@pytest.fixture
def output(world: Path, tmp_path: Path) -> Path:
    """That output, in a folder of the test's own: the latest run was for Python 3.12."""
    for name in ("output", "beside1", "beside2"):
        shutil.copytree(world / name, tmp_path / name)
    for number in (1, 2):
        published.note_channels(tmp_path / "output" / "packages" / NAME, (tmp_path / f"beside{number}",))
    return tmp_path / "output"


def wanted(output: Path, *specs: str) -> EnvironmentRequest:
    return EnvironmentRequest(specs=specs, published=prefix.find(output, NAME))


def make(folder: Path, output: Path, *specs: str) -> list[str]:
    wish = wanted(output, *specs)
    told: list[str] = []
    install.create(folder, wish, prefix.solve(wish), cache=output.parent / "cache", report=told.append)
    return told


def test_an_environment_works_as_it_is_and_activated(output: Path, tmp_path: Path) -> None:
    folder = tmp_path / "my env"
    told = make(folder, output, "greeting")
    assert told[-1].startswith("installing 3/3 ")
    assert (folder / "share" / "tool" / "note").is_file()
    hello = folder / "bin" / "hello"
    hello.chmod(0o755)  # rattler-build's packages have modes, these have not
    shown = subprocess.run(
        ["bash", "-euc", f". '{folder}/activate'; hello; echo $CONDA_PREFIX"], capture_output=True, text=True
    )
    assert shown.stdout == f"hello from me\n{folder}\n", shown.stderr


def test_a_python_of_a_former_run_is_had_from_that_runs_channel(output: Path) -> None:
    newest = prefix.solve(wanted(output, "greeting"))
    former = prefix.solve(wanted(output, "greeting", "python 3.11.*"))
    versions = [str(one.version) for solution in (newest, former) for one in solution.records]
    assert [version for version in versions if version.startswith("3.")] == ["3.12.1", "3.11.7"]


def test_what_was_made_so_is_brought_up_to_date(output: Path, tmp_path: Path) -> None:
    folder = tmp_path / "env"
    make(folder, output, "greeting", "python 3.11.*")
    (folder / "mine").write_text("notes")
    make(folder, output, "greeting", "python 3.12.*")
    assert [path.name for path in (folder / "conda-meta").glob("python-*")] == ["python-3.12.1-0.json"]
    assert (folder / "mine").is_file()


def test_nothing_that_is_not_ours_is_touched(output: Path, tmp_path: Path) -> None:
    folder = tmp_path / "env"
    folder.mkdir()
    (folder / "mine").write_text("notes")
    for place in (folder, folder / "mine"):
        with pytest.raises(UsageError, match=r"is not empty|is not a folder") as raised:
            make(place, output, "greeting")
        assert raised.value.remedy
    assert [path.name for path in folder.iterdir()] == ["mine"]


@pytest.mark.parametrize("existed", [False, True])
def test_nothing_half_made_is_left(output: Path, tmp_path: Path, existed: bool) -> None:
    folder = tmp_path / "env"
    if existed:
        folder.mkdir()
    (damaged,) = (tmp_path / "beside2").glob("linux-64/tool-*.conda")
    damaged.write_bytes(damaged.read_bytes()[:200])
    with pytest.raises(ProviderError, match="tool"):
        make(folder, output, "greeting")
    assert folder.is_dir() == existed
    assert not existed or not list(folder.iterdir())


#: Makes an environment and kills itself while its last package is installed.
KILLED = """
import os, signal, sys
from pathlib import Path
from megabuild.environments import install, prefix
folder, output, name, cache = map(Path, sys.argv[1:])
wish = prefix.EnvironmentRequest(specs=("greeting",), published=prefix.find(output, str(name)))
def report(line):
    if line.startswith("installing 3/3"):
        os.kill(os.getpid(), signal.SIGKILL)
install.create(folder, wish, prefix.solve(wish), cache=cache, report=report)
"""


def test_what_a_killed_run_left_is_made_anew(output: Path, tmp_path: Path) -> None:
    folder = tmp_path / "env"
    command = [sys.executable, "-c", KILLED, str(folder), str(output), NAME, str(tmp_path / "cache")]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(command, env=environ, timeout=120, check=False).returncode == -signal.SIGKILL
    assert [path.name for path in folder.iterdir()] == [UNFINISHED]
    make(folder, output, "greeting")
    assert (folder / "bin" / "hello").read_text() == HELLO
    assert not (folder / UNFINISHED).exists()


def test_what_another_process_makes_is_left_alone(output: Path, tmp_path: Path) -> None:
    folder = tmp_path / "env"
    (folder / UNFINISHED).mkdir(parents=True)
    with FileLock(folder / UNFINISHED / "lock"), pytest.raises(BusyError):
        make(folder, output, "greeting")
    make(folder, output, "greeting")


#: Makes an environment in a process of its own, as `env create` does.
MADE = """
import os, sys
from pathlib import Path
from groundwork.errors import MegabuildError
from megabuild.environments import install, prefix
folder, output, name, cache, *specs = sys.argv[1:]
wish = prefix.EnvironmentRequest(specs=tuple(specs), published=prefix.find(Path(output), name))
try:
    install.create(Path(folder), wish, prefix.solve(wish), cache=Path(cache), report=lambda line: None)
except MegabuildError as error:
    os._exit(error.exit_code)
os._exit(0)  # threads of rattler's outlive an interpreter
"""


@pytest.mark.parametrize("existed", [False, True])
def test_processes_at_work_on_one_environment_leave_it_whole(
    existed: bool, output: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "env"
    if existed:
        make(folder, output, "greeting")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", MADE, str(folder), str(output), NAME, str(tmp_path / "cache")]
    running = [
        subprocess.Popen([*command, *specs], env=environ)
        for specs in [
            ("greeting", "python 3.11.*"),
            ("tool",),
            ("greeting",),
            ("python", "tool"),
            ("greeting",),
        ]
        * 2
    ]
    codes = [process.wait(timeout=120) for process in running]
    assert set(codes) <= {0, BusyError.exit_code}
    assert 0 in codes
    assert not (folder / UNFINISHED).exists()
    records = [json.loads(path.read_text()) for path in folder.glob("conda-meta/*.json")]
    assert {record["name"] for record in records} >= {"tool"}
    for record in records:
        assert [name for name in record["files"] if not (folder / name).is_file()] == []
    make(folder, output, "greeting", "python 3.12.*")


def test_what_was_cut_short_while_it_was_moved_up_is_named(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rename = tmp_path / "env", os.rename

    def cut_short(source: Path, target: Path) -> None:
        if MARKER.parts[0] in str(source):
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "rename", cut_short)
    with pytest.raises(KeyboardInterrupt):
        make(folder, output, "greeting")
    monkeypatch.undo()
    with pytest.raises(UsageError, match="no finished environment") as refused:
        make(folder, output, "greeting")
    assert "delete" in refused.value.remedy


@pytest.mark.parametrize("content", ["", "{", "[]", '{"unfinished": 1}', None])
def test_what_cannot_be_read_is_not_taken_for_unfinished(
    output: Path, tmp_path: Path, content: str | None
) -> None:
    folder = tmp_path / "env"
    make(folder, output, "greeting", "python 3.11.*")
    (folder / "project").mkdir()
    (folder / "project" / "main.py").write_text("mine")
    (folder / MARKER).unlink()
    if content is None:
        (folder / MARKER).mkdir()
    else:
        (folder / MARKER).write_text(content)
    with pytest.raises(IntegrityError, match="conda-meta/megabuild cannot be read") as raised:
        make(folder, output, "greeting")
    assert (folder / "project" / "main.py").read_text() == "mine"
    assert (folder / "bin" / "hello").is_file()
    if content is not None:
        found = re.search(r"write (\{.*\}) into that file", raised.value.remedy)
        assert found
        (folder / MARKER).write_text(found[1])
        make(folder, output, "greeting", "python 3.12.*")
        assert (folder / "project" / "main.py").read_text() == "mine"


@pytest.mark.parametrize("damaged", [False, True])
def test_what_comes_into_the_folder_meanwhile_stays(output: Path, tmp_path: Path, damaged: bool) -> None:
    folder = tmp_path / "env"
    if damaged:
        (package,) = (tmp_path / "beside2").glob("linux-64/tool-*.conda")
        package.write_bytes(package.read_bytes()[:200])
    wish = wanted(output, "greeting")

    def report(line: str) -> None:
        (folder / "bin").mkdir(exist_ok=True)
        (folder / "bin" / "mine").write_text("mine")

    with pytest.raises(ProviderError if damaged else UsageError):
        install.create(folder, wish, prefix.solve(wish), cache=tmp_path / "cache", report=report)
    assert [path.relative_to(folder).as_posix() for path in (folder / "bin").iterdir()] == ["bin/mine"]
    if not damaged:
        (folder / "bin").rename(tmp_path / "mine")
        make(folder, output, "greeting")
        assert (folder / "bin" / "hello").is_file()


def test_an_edit_in_one_environment_reaches_no_other(output: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    make(first, output, "greeting")
    make(second, output, "greeting")
    with (first / "bin" / "hello").open("a") as stream:
        stream.write("exit 1\n")
    assert (second / "bin" / "hello").read_text() == HELLO
    make(tmp_path / "third", output, "greeting")
    assert (tmp_path / "third" / "bin" / "hello").read_text() == HELLO


def test_a_cache_that_was_written_to_is_noticed(output: Path, tmp_path: Path) -> None:
    """As an edit in an environment whose files were linked did."""
    make(tmp_path / "first", output, "greeting")
    (cached,) = (tmp_path / "cache" / "environments").glob("greeting-*/bin/hello")
    cached.write_text(HELLO.replace("hello", "HELLO"))
    make(tmp_path / "second", output, "greeting")
    assert (tmp_path / "second" / "bin" / "hello").read_text() == HELLO


def test_files_name_the_place_where_they_end_up(output: Path, tmp_path: Path) -> None:
    """A package with a prefix in a text, as rattler-build records it, and a link of its own."""
    placeholder = "/placehold" * 20
    content = f"#!{placeholder}/bin/sh\n".encode()
    entry = {
        "_path": "bin/rooted",
        "path_type": "hardlink",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size_in_bytes": len(content),
        "prefix_placeholder": placeholder,
        "file_mode": "text",
    }
    link = {
        "_path": "bin/also",
        "path_type": "softlink",
        "sha256": entry["sha256"],
        "size_in_bytes": len(content),
    }
    index = {
        "name": "rooted",
        "version": "1",
        "build": "0",
        "build_number": 0,
        "depends": [],
        "subdir": "linux-64",
    }
    members = {
        "info/index.json": json.dumps(index).encode(),
        "info/paths.json": json.dumps({"paths": [entry, link], "paths_version": 1}).encode(),
        "bin/rooted": content,
    }
    channel = tmp_path / "more"
    (channel / "linux-64").mkdir(parents=True)
    with tarfile.open(channel / "linux-64" / "rooted-1-0.tar.bz2", "w:bz2") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        member = tarfile.TarInfo("bin/also")
        member.type, member.linkname = tarfile.SYMTYPE, "rooted"
        archive.addfile(member)
    asyncio.run(index_fs(channel, force=True, write_shards=False))
    folder = tmp_path / "env"
    wish = EnvironmentRequest(specs=("rooted",), published=prefix.find(output, NAME), more=(channel,))
    install.create(folder, wish, prefix.solve(wish), cache=tmp_path / "cache", report=print)
    assert (folder / "bin" / "rooted").read_text() == f"#!{folder}/bin/sh\n"
    assert os.readlink(folder / "bin" / "also") == "rooted"
    assert not [
        path for path in folder.rglob("*") if path.is_file() and UNFINISHED.encode() in path.read_bytes()
    ]


@pytest.mark.parametrize(
    ("spec", "reason", "remedy"),
    [
        ("elsewhere", "elsewhere", "has for_glibc, for_gpu, greeting"),
        ("for_gpu", "__cuda", "CONDA_OVERRIDE_CUDA=13.2"),
        ("for_glibc", "__glibc", "CONDA_OVERRIDE_GLIBC=9 "),
    ],
)
def test_what_cannot_be_had_says_why(
    output: Path, spec: str, reason: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "")  # as without a driver
    with pytest.raises(PreflightError, match=reason) as raised:
        prefix.solve(wanted(output, spec))
    assert remedy in raised.value.remedy


def test_what_was_not_built_or_lost_its_channel_says_so(output: Path) -> None:
    with pytest.raises(ConfigError, match="no packages of linux_64_cpu") as raised:
        prefix.find(output, "linux_64_cpu")
    assert NAME in raised.value.remedy
    for number in (1, 2):
        (output.parent / f"beside{number}").rename(output.parent / f"gone{number}")
    with pytest.raises(PreflightError, match="need besides is gone"):
        prefix.solve(wanted(output, "greeting"))


def test_the_command_plans_and_makes(output: Path, tmp_path: Path, invocation: Invocation) -> None:
    folder = tmp_path / "env"
    arguments = ["env", "create", str(folder), "greeting", "--from", NAME, "-o", str(output), "-p", "3.11"]
    variables = {"MEGABUILD_CACHE": str(tmp_path / "cache")}

    def run(*more: str) -> Result:
        runner = CliRunner(env=variables)
        done = runner.invoke(megabuild, [*arguments, *more], obj=invocation, standalone_mode=False)
        assert not isinstance(done.exception, MegabuildError), done.exception
        assert isinstance(done.return_value, Result), done.output
        return done.return_value

    planned = run("--plan")
    assert "python    3.11.7" in "\n".join(planned.lines)
    assert not folder.exists()
    assert f". {folder}/activate" in "\n".join(run().lines)
    document = run("--json").to_json()
    assert document == planned.to_json(), "in step with what was planned"
    assert document["format"] == "megabuild/environment"
    assert document["environment"] == str(folder)
    assert isinstance(document["packages"], list)
    assert {package["name"] for package in document["packages"]} == {"greeting", "python", "tool"}


@pytest.mark.parametrize(
    ("name", "version"),
    [("linux_64_cuda132_wheel", "13.2"), ("linux_64_cuda129-2.13.0", "12.9"), ("linux_64_cpu_debian", None)],
)
def test_a_name_tells_the_cuda_version(name: str, version: str | None) -> None:
    assert prefix.cuda_of(name) == version
