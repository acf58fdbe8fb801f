"""Whether this machine runs another processor's programs, from the kernel's own list."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import namedtuple
from pathlib import Path

import pytest
from small_files import program, write

from groundwork.channel import Channel
from groundwork.errors import IsolationError
from megabuild.configs import config as configs
from megabuild.configs.config import Config, load
from megabuild.isolation import base, bubblewrap, emulation
from megabuild.isolation.base import Host
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.isolation.emulation import Emulator
from megabuild.isolation.engine import Engine
from megabuild.plan.choose_isolation import choose_isolation, why_untested
from megabuild.providers.environment import Environment

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
    write(tmp_path / "status", "disabled\n")
    assert not emulation.is_registered("linux-aarch64", folder=tmp_path), "the switch of all emulators"


def test_emulators_of_further_processors_of_linux_are_known(tmp_path: Path) -> None:
    write(tmp_path / "qemu", ENTRY.replace("b700", "1500"))
    assert emulation.is_registered("linux-ppc64le", folder=tmp_path)


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
    made = Environment(channels=(Channel.of_folder(repository),), pythons=())
    reason = why_untested(arm, Host(), made)
    assert reason == "this machine runs no programs for linux-aarch64"
    assert emulation.remedy(arm.platform) == "run: sudo apt-get install qemu-user-static"
    assert emulation.remedy("osx-arm64") == "", "qemu runs programs of Linux only"
    assert why_untested(arm, IsolationError("x", "y"), made) == ""
    assert why_untested(arm, Host(), Environment(channels=(), pythons=())) == "", (
        "not known before it is made"
    )
    assert why_untested(load(repository, "linux_64_cpu"), Host(), made) == ""
    monkeypatch.setattr(emulation, "is_registered", lambda platform: platform == "linux-aarch64")
    assert why_untested(arm, Host(), made) == ""


def test_an_emulator_of_one_build_is_registered_in_its_own_namespace(tmp_path: Path) -> None:
    program = tmp_path / "qemu-aarch64"
    words = Emulator(program=program, platform="linux-aarch64").before
    assert words[:2] == ["unshare", "--user"]
    _, name, kind, _, magic, mask, interpreter, flags = words[-1].split(":")
    assert (name, kind, interpreter, flags) == ("megabuild", "M", str(program), "F")
    assert (magic[:16], magic[-8:]) == (r"\x7f\x45\x4c\x46", r"\xb7\x00")
    assert magic.count("\\") == mask.count("\\") == 20


def test_a_path_with_the_separator_of_registrations_registers_the_emulator(tmp_path: Path) -> None:
    """The emulator is echo here: it prints the program that Linux has it run."""
    if not emulation.can_register() or subprocess.run(["unshare", "--user", "--mount", "true"]).returncode:
        pytest.skip("this machine lets no user register an emulator")
    folder = tmp_path / "a:b"
    folder.mkdir()
    emulator = folder / "emulator"
    shutil.copy("/bin/echo", emulator)
    foreign = tmp_path / "program"
    foreign.write_bytes(bytes.fromhex("7f454c46020101") + bytes(9) + b"\2\0\xb7\0" + bytes(60))
    foreign.chmod(0o755)
    before = Emulator(program=emulator, platform="linux-aarch64").before
    done = subprocess.run([*before, foreign, "hello"], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{foreign} hello\n", "")


def test_an_emulator_that_does_not_answer_in_time_is_not_used(
    arm: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "unshare", "exec sleep 60")
    program(tmp_path / "bwrap", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(bubblewrap, "_DEFAULT_PATH", os.environ["PATH"])
    monkeypatch.setattr(bubblewrap, "_EMULATED", 0.2)
    monkeypatch.setattr(emulation, "can_register", lambda: True)
    monkeypatch.setattr(emulation, "is_registered", lambda platform: False)
    root = write(tmp_path / "root" / "etc" / "hosts", "").parents[1]
    made = Environment(
        channels=(), pythons=(), root=root, emulator=tmp_path / "qemu", overrides={"torch_source": ("model",)}
    )
    isolation = choose_isolation(None, arm, made)
    assert isinstance(isolation, Bubblewrap)
    assert isolation.emulator is None
    assert not isolation.runs(arm.platform), "its packages are published untested"


@pytest.mark.parametrize("failing", ["", "mount", "register"])
def test_no_program_runs_if_its_emulator_cannot_be_registered(failing: str, tmp_path: Path) -> None:
    words = Emulator(program=tmp_path / "qemu-aarch64", platform="linux-aarch64").before
    shell = words[words.index("sh") :]
    shell = [word.replace(str(emulation._FOLDER), str(tmp_path / "binfmt")) for word in shell]
    program(tmp_path / "bin/mount", "exit 32" if failing == "mount" else "")
    if failing != "register":
        (tmp_path / "binfmt").mkdir()
    environ = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    done = subprocess.run([*shell, "echo", "ran"], env=environ, capture_output=True, text=True)
    assert (done.returncode == 0, done.stdout) == ((False, "") if failing else (True, "ran\n"))


@pytest.mark.parametrize(
    ("release", "able"),
    [
        ("6.7.0-1-amd64", True),
        ("6.12.43+deb13-amd64", True),
        ("7.0-x", True),
        ("6.6.9", False),
        ("5.10.0", False),
    ],
)
def test_linux_6_7_has_a_registration_for_each_namespace(
    release: str, able: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = namedtuple("said", "release")
    monkeypatch.setattr(os, "uname", lambda: said(release))
    assert emulation.can_register() == able


def test_the_roots_emulator_is_used_if_it_works_and_the_machine_has_none(
    arm: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Environment(
        channels=(),
        pythons=(),
        root=tmp_path,
        emulator=tmp_path / "qemu",
        overrides={"torch_source": ("model",)},
    )
    working = {"registered": False, "own": True}
    monkeypatch.setattr(emulation, "can_register", lambda: True)
    monkeypatch.setattr(emulation, "is_registered", lambda platform: working["registered"])
    monkeypatch.setattr(
        Bubblewrap, "runs", lambda self, platform: working["own"] if self.emulator else working["registered"]
    )

    def chosen() -> Emulator | None:
        isolation = choose_isolation(None, arm, made)
        assert isinstance(isolation, Bubblewrap)
        assert isolation.root == tmp_path
        return isolation.emulator

    assert chosen() == Emulator(program=tmp_path / "qemu", platform="linux-aarch64")
    working["own"] = False
    assert chosen() is None
    working.update(own=True, registered=True)
    assert chosen() is None
    working["registered"] = False
    monkeypatch.setattr(emulation, "can_register", lambda: False)
    assert chosen() is None


@pytest.mark.parametrize("name", ["linux_aarch64_cpu", "linux_aarch64_cpu_debian"])
@pytest.mark.parametrize("engine", [Engine.HOST, Engine.DOCKER, Engine.PODMAN])
def test_cross_compilers_of_a_debian_root_are_used_in_bubblewrap_only(
    name: str, engine: Engine, arm: Config, repository: Path
) -> None:
    config = load(repository, name)
    overrides = {} if name.endswith("_debian") else {"torch_source": ("model",)}
    not_made_yet = Environment(channels=(), pythons=(), overrides=overrides)
    with pytest.raises(IsolationError, match="which only bubblewrap enters"):
        choose_isolation(engine, config, not_made_yet)
    assert isinstance(choose_isolation(Engine.BUBBLEWRAP, config, not_made_yet), Bubblewrap)
