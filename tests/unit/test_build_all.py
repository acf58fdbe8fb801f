"""scripts/build-all.sh with a fake build-locally.py."""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import time
import zipfile
from pathlib import Path

import pytest

# What the real front door would do is written, per config, into a file that this one reads.
FAKE_BUILD_LOCALLY = """
import os, pathlib, signal, sys, time
here = pathlib.Path(__file__).parent
config, options = sys.argv[1], sys.argv[2:]
with (here / "calls").open("a") as calls:
    print(config, os.environ.get("CPU_COUNT", "by-itself"), *options, file=calls)
print("fake build of", config, flush=True)
behaviour = here / "behaviour" / config
words = behaviour.read_text().split() if behaviour.exists() else ["0"]
if words[0] == "wait":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: (print("ended by", number, flush=True), sys.exit(int(words[1]))))
    (here / "waiting").touch()
    time.sleep(60)
    sys.exit(99)
sys.exit(int(words[0]))
"""


class Checkout:
    """A fake checkout with the real script in it."""

    def __init__(self, root: Path, script: Path) -> None:
        self.root = root
        for folder in ("scripts", ".ci_support", "behaviour"):
            (root / folder).mkdir(parents=True)
        shutil.copy(script, root / "scripts" / "build-all.sh")
        (root / "build-locally.py").write_text(FAKE_BUILD_LOCALLY)
        (root / ".gitignore").write_text("output\n")
        for name in ("linux_64_cpu", "linux_64_cuda130", "linux_aarch64_cpu", "osx_arm64_cpu"):
            self.config(name)
        self.git("init", "--quiet")
        self.commit()

    def config(self, name: str, text: str = "a: [1]\n") -> None:
        (self.root / ".ci_support" / f"{name}.yaml").write_text(text)

    def commit(self) -> None:
        self.git("add", "scripts", ".ci_support", ".gitignore", "build-locally.py")
        self.git("-c", "user.name=Test", "-c", "user.email=test@example.org", "commit", "--quiet", "-m", "x")

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", "-C", str(self.root), *arguments], check=True)

    def behave(self, config: str, behaviour: str) -> None:
        (self.root / "behaviour" / config).write_text(behaviour)

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        environment = {key: value for key, value in os.environ.items() if key != "CPU_COUNT"}
        return subprocess.Popen(
            [str(self.root / "scripts" / "build-all.sh"), *arguments],
            # a shell cannot trap what it finds ignored, as under a background job
            preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
            env={**environment, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, **env: str) -> tuple[int, str]:
        return finish(self.start(*arguments, **env))

    def calls(self) -> list[str]:
        """Calls of the fake since the last time this was asked."""
        calls = self.root / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        calls.unlink(missing_ok=True)
        return lines

    def zipped(self) -> dict[str, str]:
        """The newest zip's files."""
        newest = max((self.root / "output" / "build-all").glob("*.zip"))
        with zipfile.ZipFile(newest) as archive:
            return {
                Path(name).name: archive.read(name).decode() for name in archive.namelist() if name[-1] != "/"
            }


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=30)
    return process.returncode, output


@pytest.fixture
def checkout(tmp_path: Path, repository: Path) -> Checkout:
    return Checkout(tmp_path / "a checkout", repository / "scripts" / "build-all.sh")


def row(output: str, config: str) -> list[str]:
    """The line of the closing table for a config, in words."""
    table = output[output.rindex("\nconfig ") :]
    return next(line for line in table.splitlines() if line.startswith(config)).split()


def test_every_match_is_built_in_sequence_with_as_many_jobs_as_fit(checkout: Checkout) -> None:
    code, output = checkout.run("linux_64*")
    assert (code, checkout.calls()) == (0, ["linux_64_cpu by-itself", "linux_64_cuda130 by-itself"])
    assert row(output, "linux_64_cpu")[1] == "0"
    assert re.fullmatch(r"0:00:\d\d", row(output, "linux_64_cpu")[2])
    assert checkout.zipped()["linux_64_cpu.log"] == "fake build of linux_64_cpu\n"


def test_several_filters_build_a_config_once(checkout: Checkout) -> None:
    checkout.run("*_cpu", "linux_64_cpu", "linux_64_c*", CPU_COUNT="3")
    assert checkout.calls() == [
        "linux_64_cpu 3",
        "linux_64_cuda130 3",
        "linux_aarch64_cpu 3",
        "osx_arm64_cpu 3",
    ]


def test_without_a_filter_this_machines_platform_is_built(checkout: Checkout, tmp_path: Path) -> None:
    fake = tmp_path / "uname"
    fake.write_text('#!/bin/sh\n[ "$1" = -m ] && echo aarch64 || echo Linux\n')
    fake.chmod(0o755)
    checkout.run(PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert checkout.calls() == ["linux_aarch64_cpu by-itself"]


def test_options_after_two_dashes_reach_the_driver(checkout: Checkout) -> None:
    checkout.run("linux_64_cpu", "--", "--rehearse", "--python", "3.12")
    assert checkout.calls() == ["linux_64_cpu by-itself --rehearse --python 3.12"]


def test_a_failure_in_the_middle_is_kept_and_does_not_stop_the_others(checkout: Checkout) -> None:
    checkout.behave("linux_64_cuda130", "8")
    checkout.behave("linux_aarch64_cpu", "5")
    code, output = checkout.run("*")
    assert code == 8
    assert row(output, "linux_64_cpu")[1] == "0"
    assert row(output, "linux_64_cuda130")[1] == "8"
    assert row(output, "linux_aarch64_cpu")[1] == "5"
    assert len(checkout.calls()) == 4
    assert "linux_64_cuda130" in checkout.zipped()["summary.txt"]


def test_a_second_run_skips_what_succeeded_and_only_that(checkout: Checkout) -> None:
    checkout.behave("linux_64_cuda130", "8")
    checkout.run("linux_64_*")
    checkout.calls()
    checkout.behave("linux_64_cuda130", "0")
    code, output = checkout.run("linux_64_*")
    assert (code, checkout.calls()) == (0, ["linux_64_cuda130 by-itself"])
    assert row(output, "linux_64_cpu")[1:3] == ["done", "already"]
    checkout.run("linux_64_*")
    assert checkout.calls() == []


def test_other_options_are_another_build(checkout: Checkout) -> None:
    checkout.run("linux_64_cpu", "--", "--rehearse")
    checkout.calls()
    checkout.run("linux_64_cpu")
    assert checkout.calls() == ["linux_64_cpu by-itself"]


def test_a_changed_config_commit_or_checkout_builds_again(checkout: Checkout) -> None:
    checkout.run("linux_64_cpu")
    checkout.calls()
    checkout.config("linux_64_cpu", "a: [2]\n")
    checkout.run("linux_64_cpu")
    assert len(checkout.calls()) == 1, "an edited checkout is not what its commit says"
    checkout.run("linux_64_cpu")
    assert len(checkout.calls()) == 1, "and leaves no marker either"
    checkout.commit()
    checkout.run("linux_64_cpu")
    assert len(checkout.calls()) == 1
    checkout.run("linux_64_cpu")
    assert checkout.calls() == []


def test_without_a_repository_nothing_is_skipped(checkout: Checkout) -> None:
    shutil.rmtree(checkout.root / ".git")
    for _ in range(2):
        assert checkout.run("linux_64_cpu")[0] == 0
        assert checkout.calls() == ["linux_64_cpu by-itself"]


def wait_for_build(checkout: Checkout) -> None:
    deadline = time.monotonic() + 20
    while not (checkout.root / "waiting").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_in_the_middle_ends_with_table_and_zip(
    checkout: Checkout, number: signal.Signals, expected: int
) -> None:
    checkout.behave("linux_64_cuda130", "wait 77")
    process = checkout.start("linux_*")
    wait_for_build(checkout)
    begun = time.monotonic()
    process.send_signal(number)
    code, output = finish(process)
    assert code == expected
    assert time.monotonic() - begun < 20
    assert row(output, "linux_64_cpu")[1] == "0"
    assert row(output, "linux_64_cuda130")[1] == "77", "the driver's own exit code, not the signal's"
    assert row(output, "linux_aarch64_cpu")[1:3] == ["not", "started"]
    assert f"ended by {number}" in checkout.zipped()["linux_64_cuda130.log"]
    checkout.calls()
    checkout.behave("linux_64_cuda130", "0")
    checkout.run("linux_*")
    assert checkout.calls() == ["linux_64_cuda130 by-itself", "linux_aarch64_cpu by-itself"]


def test_ctrl_c_on_a_terminal_reaches_the_driver_once(checkout: Checkout) -> None:
    """A terminal signals its whole foreground group; the driver is in a group of its own."""
    checkout.behave("linux_64_cpu", "wait 130")
    process = checkout.start("linux_64_*")
    wait_for_build(checkout)
    os.killpg(process.pid, signal.SIGINT)
    code, _ = finish(process)
    assert code == 130
    assert checkout.zipped()["linux_64_cpu.log"].count("ended by") == 1


def test_names_with_pattern_characters_are_names_first(checkout: Checkout) -> None:
    for name in ("odd[1]", "odd1", "with space", "star*"):
        checkout.config(name)
    checkout.run("odd[1]", "with space", "star*")
    assert checkout.calls() == [
        "odd1 by-itself",
        "odd[1] by-itself",
        "star* by-itself",
        "with space by-itself",
    ]
    checkout.commit()
    checkout.run("star*", "odd[[]1]")
    checkout.run("star*", "odd[[]1]")
    assert checkout.calls() == ["odd[1] by-itself", "star* by-itself"]


def test_a_filter_without_a_match_lists_the_configs(checkout: Checkout) -> None:
    code, output = checkout.run("windows_*")
    assert code == 2
    assert "no config matches windows_*" in output
    assert "linux_aarch64_cpu" in output


def test_two_runs_at_once_keep_their_logs_apart(checkout: Checkout) -> None:
    first, second = checkout.start("linux_64_cpu"), checkout.start("linux_64_cuda130")
    assert (finish(first)[0], finish(second)[0]) == (0, 0)
    archives = list((checkout.root / "output" / "build-all").glob("*.zip"))
    assert len(archives) == 2


def test_help_and_wrong_usage(checkout: Checkout) -> None:
    code, output = checkout.run("--help")
    assert code == 0
    assert "usage: scripts/build-all.sh" in output
    code, output = checkout.run("--keep-going")
    assert code == 2
    assert "after --" in output


def test_logs_go_where_they_are_wanted(checkout: Checkout, tmp_path: Path) -> None:
    assert checkout.run("-o", str(tmp_path / "else where"), "linux_64_cpu")[0] == 0
    assert list((tmp_path / "else where").glob("*.zip"))
    assert not (checkout.root / "output").exists()
