"""Whether this machine runs another processor's programs, from the kernel's own list."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_files import write

from groundwork.errors import IsolationError
from megabuild.configs import config as configs
from megabuild.configs.config import Config, load
from megabuild.isolation import base, emulation
from megabuild.isolation.base import Host
from megabuild.plan.choose_isolation import why_untested

#: As binfmt_misc shows an entry.
ENTRY = """\
enabled
interpreter /usr/bin/qemu-aarch64-static
flags: OCF
offset 0
magic 7f454c460201010000000000000000000200b700
mask ffffffffffffff00fffffffffffffffffeffffff
"""


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        (ENTRY, True),
        (ENTRY.replace("enabled", "disabled"), False),
        (ENTRY.replace("OCF", "OC"), False),
        (ENTRY.replace("b700", "f300"), False),
        (ENTRY.replace("magic 7f454c46", "magic 7f454c"), False),
        ("enabled\n", False),
        ("enabled\ninterpreter /usr/bin/jar\nflags: F\nextension .jar\n", False),
    ],
)
def test_an_enabled_emulator_that_is_open_already_runs_programs(
    text: str, runs: bool, tmp_path: Path
) -> None:
    write(tmp_path / "status", "enabled\n")
    write(tmp_path / "qemu", text)
    assert emulation.is_registered("linux-aarch64", folder=tmp_path) == runs


def test_without_binfmt_misc_or_for_an_unknown_processor_no_program_runs(tmp_path: Path) -> None:
    assert not emulation.is_registered("linux-aarch64", folder=tmp_path / "none")
    write(tmp_path / "qemu", ENTRY)
    assert not emulation.is_registered("osx-arm64", folder=tmp_path)


@pytest.fixture
def arm(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setattr(configs, "machine_platform", lambda: "linux-64")
    monkeypatch.setattr(base, "machine_platform", lambda: "linux-64")
    return load(repository, "linux_aarch64_cpu")


def test_tests_are_left_out_only_if_their_programs_cannot_run(
    arm: Config, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulation, "is_registered", lambda platform: False)
    reason = why_untested(arm, Host())
    assert reason.startswith("programs for linux-aarch64 do not run on this machine")
    assert "qemu-user-static" in reason
    assert why_untested(arm, IsolationError("x", "y")) == ""
    assert why_untested(load(repository, "linux_64_cpu"), Host()) == ""
    monkeypatch.setattr(emulation, "is_registered", lambda platform: platform == "linux-aarch64")
    assert why_untested(arm, Host()) == ""
