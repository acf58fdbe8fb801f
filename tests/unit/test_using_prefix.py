"""Environments of built packages."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from calling import call
from tiny import make_channel, make_package, publish

from command_line.run_command import Invocation
from groundwork.channel import Channel
from groundwork.errors import BusyError, ConfigError, PreflightError, ProviderError, UsageError
from groundwork.machine import machine_platform
from groundwork.network.channel_logins import Channels
from megabuild import environments
from megabuild.plan import solving
from megabuild.store import published

pytestmark = pytest.mark.skipif(machine_platform() != "linux-64", reason="packages of linux-64")
NAME = "linux_64_cuda132_wheel"
HELLO = '#!/bin/sh\necho "hello from $GREETER"\n'
ACTIVATION = {"etc/conda/activate.d/greet.sh": "export GREETER=me\n"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build's output with CPU and GPU packages, and channels with Python 3.11 and 3.12."""
    folder = tmp_path_factory.mktemp("world")
    made = [
        make_package(folder / "made" / "linux-64", name, "1.0", "0", content, depends=depends)
        for name, depends, content in (
            ("greeting", ["python", "tool"], {"bin/hello": HELLO, **ACTIVATION}),
            ("for_gpu", ["__cuda"], {"share/gpu": "x"}),
            ("for-glibc", ["__glibc >=9"], {"share/glibc": "x"}),
        )
    ]
    publish(folder / "output" / "packages" / NAME, made)
    for number, version in ((1, "3.11.7"), (2, "3.12.1")):
        make_channel(folder / f"beside{number}", (("python", version, "0"), ("tool", "1.0", "0")))
    return folder


@pytest.fixture
def output(world: Path, tmp_path: Path) -> Path:
    """A copy of that output for one test; its latest run was for Python 3.12."""
    for name in ("output", "beside1", "beside2"):
        shutil.copytree(world / name, tmp_path / name)
    for number in (1, 2):
        published.note_channels(
            tmp_path / "output" / "packages" / NAME, [Channel.of_folder(tmp_path / f"beside{number}")]
        )
    return tmp_path / "output"


def make(folder: Path, output: Path, *specs: str, more: Sequence[Path] = ()) -> list[str]:
    """Make an environment, and return the progress lines."""
    channels = [Channel.of_folder(folder) for folder in more]
    solution = environments.solve(output / "packages" / NAME, specs, more=channels)
    lines: list[object] = []
    environments.create(folder, solution, cache=output.parent / "cache", report=lines.append)
    return [*map(str, lines)]


def test_an_environment_works_with_and_without_activation(output: Path, tmp_path: Path) -> None:
    folder = tmp_path / "my env"
    told = make(folder, output, "greeting")
    assert told[-1] == "installing 3 packages"
    assert (folder / "share" / "tool" / "note").is_file()
    hello = folder / "bin" / "hello"
    hello.chmod(0o755)  # unlike rattler-build's packages, these have no modes
    shown = subprocess.run(
        ["bash", "-euc", f". '{folder}/activate'; hello; echo $CONDA_PREFIX"], capture_output=True, text=True
    )
    assert shown.stdout == f"hello from me\n{folder}\n", shown.stderr


def test_an_earlier_runs_python_comes_from_that_runs_channel(output: Path) -> None:
    channel = output / "packages" / NAME
    newest = environments.solve(channel, ["greeting"])
    former = environments.solve(channel, ["greeting", "python 3.11.*"])
    versions = [str(record.version) for solution in (newest, former) for record in solution.records]
    assert [version for version in versions if version.startswith("3.")] == ["3.12.1", "3.11.7"]


def test_an_environment_is_solved_with_the_channels_of_each_run_until_one_has_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {name: Channel.parse(f"https://{name}.example/x") for name in ("more", "a", "b", "c")}
    lists = [(named["a"], named["b"]), (named["c"],)]
    asked: list[tuple[Sequence[str], list[str], str, object]] = []

    def solve(specs: Sequence[str], channels: Channels, platform: str, **more: object) -> list[Any]:
        addresses = [channel.address for channel in channels.by_priority]
        asked.append((specs, addresses, platform, more["virtual"]))
        if len(asked) < len(lists):
            raise PreflightError("no such package")
        return []

    record = published.PublishedPackage(path="noarch/a-1-0.conda", size=1, sha256="", fingerprint="")
    monkeypatch.setattr(published, "records", lambda _: {"a-1-0.conda": record})
    monkeypatch.setattr(published, "channels_beside", lambda _: lists)
    monkeypatch.setattr(environments, "solved", solve)
    monkeypatch.setenv("CONDA_CHANNEL_ALIAS", "https://ann:hunter2@mirror.example/conda")
    virtual = {"__glibc": "2.99"}
    solution = environments.solve(
        tmp_path, ["a"], more=[named["more"]], virtual=virtual, platform="linux-aarch64"
    )
    first, last = ([str(tmp_path), named["more"].address, *(each.address for each in one)] for one in lists)
    assert asked == [(["a"], one, "linux-aarch64", virtual) for one in (first, last)]
    assert solution.platform == "linux-aarch64"
    assert [channel.address for channel in solution.channels.by_priority] == last
    assert [(login.address, login.user) for login in solution.channels.logins] == [
        ("https://mirror.example/conda", "ann")
    ]


def test_packages_for_another_platform_are_named_as_such(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "machine_platform", lambda: "linux-aarch64")
    with pytest.raises(
        PreflightError, match="its packages are for linux-64, not for linux-aarch64"
    ) as refused:
        environments.solve(output / "packages" / NAME, ["greeting"])
    assert refused.value.remedy.startswith(
        "create the environment on a linux-64 machine, or build a config for "
    )
    solution = environments.solve(output / "packages" / NAME, ["greeting"], platform="linux-64")
    assert solution.platform == "linux-64", "as wheels are made on another machine"


def test_packages_whose_tests_are_missing_are_named(
    output: Path, tmp_path: Path, invocation: Invocation
) -> None:
    channel = output / "packages" / NAME
    published.await_tests(channel, {"greeting-1.0-0.conda": "pytorch-tests-1.0-0.conda"})
    records = json.loads((channel / published.RECORDS).read_text())
    records["for_gpu-1.0-0.conda"]["is_tested"] = False
    records["greeting-1.0-0.conda"]["is_tested"] = False
    (channel / published.RECORDS).write_text(json.dumps(records))
    made = call(
        invocation, "env", "create", str(tmp_path / "env"), "greeting", "--from", NAME, "-o", str(output)
    )
    assert made.exit_code == 0, made.output
    assert made.stdout.splitlines()[-2:] == [
        "! PyTorch's own tests failed or never ran: pytorch-tests-1.0-0",
        "! never tested: greeting-1.0-0",
    ]


def test_foreign_files_are_not_touched(output: Path, tmp_path: Path) -> None:
    folder = tmp_path / "env"
    folder.mkdir()
    (folder / "mine").write_text("notes")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for target in (folder, folder / "mine", tmp_path / "link"):
        with pytest.raises(UsageError):
            make(target, output, "greeting")
    assert [path.name for path in folder.iterdir()] == ["mine"]


def test_after_a_damaged_package_the_same_command_makes_the_environment(output: Path, tmp_path: Path) -> None:
    folder = tmp_path / "env"
    (package,) = (tmp_path / "beside2").glob("linux-64/tool-*.conda")
    content = package.read_bytes()
    package.write_bytes(content[:200])
    with pytest.raises(ProviderError, match="tool") as raised:
        make(folder, output, "greeting")
    assert "run the same command again" in raised.value.remedy
    package.write_bytes(content)
    time.sleep(1.0)  # rattler's threads may still write other packages; those of a command end with it
    make(folder, output, "greeting")
    assert (folder / "bin" / "hello").read_text() == HELLO


def test_two_processes_do_not_make_one_environment(output: Path, tmp_path: Path) -> None:
    """The second process starts between the first one's check and its first file."""
    folder = tmp_path / "env"
    folder.mkdir()
    solution = environments.solve(output / "packages" / NAME, ["greeting"])
    with ThreadPoolExecutor() as pool:
        futures = [
            pool.submit(environments.create, folder, solution, cache=tmp_path / "cache", report=print)
            for _ in range(4)
        ]
    errors = [future.exception() for future in futures]
    assert errors.count(None) == 1
    assert all(isinstance(error, (BusyError, UsageError)) for error in errors if error)
    assert (folder / "bin" / "hello").read_text() == HELLO


def test_an_edit_in_one_environment_or_in_the_cache_changes_no_other(output: Path, tmp_path: Path) -> None:
    """An edit in an environment with linked files changed the cache once."""
    first, second, third = (tmp_path / name / "bin" / "hello" for name in ("first", "second", "third"))
    for hello in (first, second):
        make(hello.parents[1], output, "greeting")
    with first.open("a") as stream:
        stream.write("exit 1\n")
    assert second.read_text() == HELLO
    (cached,) = (tmp_path / "cache" / "environments").glob("greeting-*/bin/hello")
    assert cached.read_text() == HELLO
    cached.write_text(HELLO.replace("hello", "HELLO"))
    make(third.parents[1], output, "greeting")
    assert third.read_text() == HELLO


@pytest.mark.parametrize(
    ("spec", "reason", "remedy"),
    [
        ("elsewhere", "elsewhere", "for-glibc, for_gpu, greeting"),
        ("for_gpu", "__cuda", "CONDA_OVERRIDE_CUDA=13.2"),
        ("for-glibc", "__glibc", "CONDA_OVERRIDE_GLIBC=9"),
    ],
)
def test_an_unavailable_package_has_a_reason(
    output: Path, spec: str, reason: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", "")  # like a machine without a driver
    with pytest.raises(PreflightError, match=reason) as raised:
        environments.solve(output / "packages" / NAME, [spec])
    assert remedy in raised.value.remedy


def test_a_missing_build_or_channel_is_named(output: Path) -> None:
    with pytest.raises(ConfigError, match=r"^linux_64_cpu: ") as raised:
        environments.find_channel(output, "linux_64_cpu")
    assert NAME in raised.value.remedy
    for number in (1, 2):
        (output.parent / f"beside{number}").rename(output.parent / f"gone{number}")
    with pytest.raises(PreflightError, match="was removed"):
        environments.solve(output / "packages" / NAME, ["greeting"])


def test_the_command_prints_how_to_activate(
    output: Path, tmp_path: Path, invocation: Invocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "env"
    words = ["env", "create", str(folder), "greeting", "--from", NAME, "-o", str(output), "-p", "3.11"]
    done = call(invocation, *words)
    assert (done.exit_code, f". {folder}/activate" in done.stdout) == (0, True), done.output
    assert (f"{folder}/bin/python" in done.stdout) == (folder / "bin" / "python").exists()
    assert list(folder.glob("conda-meta/python-3.11.7-*.json"))
    again = call(invocation, *words)
    assert (again.exit_code, "delete" in again.stderr) == (UsageError.exit_code, True)


@pytest.mark.parametrize(("python", "spec"), [("3.12", "python 3.12.*"), ("3.14t", "python 3.14.* *_cp314t")])
def test_the_command_asks_for_the_python_and_the_further_channels_that_are_named(
    python: str,
    spec: str,
    output: Path,
    tmp_path: Path,
    invocation: Invocation,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[Sequence[str], list[str]]] = []

    def solve(_: Path, specs: Sequence[str], *, more: Sequence[Channel]) -> None:
        asked.append((specs, [channel.address for channel in more]))
        raise PreflightError("enough")

    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(environments, "solve", solve)
    monkeypatch.setenv("CONDA_CHANNEL_ALIAS", "https://mirror.example")
    words = ["env", "create", "env", "greeting", "--from", NAME, "-o", str(output), "-p", python]
    assert call(invocation, *words, "-c", "own", "-c", "https://x.example/c", "-c", "forge").exit_code == 4
    channels = [str(tmp_path / "own"), "https://x.example/c", "https://mirror.example/forge"]
    assert asked == [(["greeting", spec], channels)]


def test_an_error_of_the_system_is_no_fault_of_a_package(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "read-only")

    monkeypatch.setattr(environments, "install_records", fail)
    with pytest.raises(OSError, match="read-only"):
        make(tmp_path / "env", output, "greeting")


def test_a_requirement_that_cannot_be_parsed_is_a_wrong_use() -> None:
    channels = Channels(by_priority=())
    with pytest.raises(UsageError, match=r"^y: .*") as raised:
        solving.solved(["x >>3"], channels, "linux-64", virtual={}, what="y", remedy="")
    assert raised.value.remedy == "correct the requirements: x >>3"
