"""How each isolation spells a command, without any engine installed."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_files import program, write

from groundwork.errors import IsolationError
from megabuild.isolation import bubblewrap as bubblewrap_module
from megabuild.isolation import container as container_module
from megabuild.isolation import emulation
from megabuild.isolation.base import Host, Isolation, Mount
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.isolation.container import Container
from megabuild.isolation.emulation import Emulator
from megabuild.isolation.engine import Engine

ANVIL = "quay.io/condaforge/linux-anvil-x86_64:alma10"
OWN = f"1007:{os.getgid()}"
MACHINE = Bubblewrap(root=Path("/"))
PODMAN = Container(engine=Engine.PODMAN, image="i")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder with programs: a bwrap, and a docker that answers."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(container_module, "_SELINUX", tmp_path / "no-selinux")
    for name in ("bwrap", "docker"):
        install(folder, name, "echo '28.0.1 [name=seccomp]'")
    return folder


def install(folder: Path, name: str, info: str) -> None:
    """Put a fake program in place that answers when it is asked for information, and has no images."""
    program(folder / name, f'case "$1 $2" in "info "*) {info};; image*) exit 1;; esac')


def run_command(isolation: Isolation, *mounts: Mount, **env: str) -> list[str]:
    return isolation.command(["python3", "worker.py"], mounts=mounts, env=env, cwd="/opt", name="build")


def following(command: Sequence[str], option: str) -> list[str]:
    return [command[place + 1] for place, word in enumerate(command[:-1]) if word == option]


def docker(image: str = "image", **more: Any) -> Container:
    return Container(engine=Engine.DOCKER, image=image, **more)


def test_a_container_has_a_name_an_init_no_terminal_and_no_secret_in_its_arguments(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/caller")
    mounts = [Mount(source=tmp_path, target="/opt/a"), Mount(source=tmp_path, target="/opt/b", writable=True)]
    command = run_command(docker(), *mounts, TOKEN="very-secret", PATH="/inside")
    assert {"--rm", "--init"} <= set(command)
    assert following(command, "--name") == ["build"]
    assert not {"-t", "-it", "-ti", "--tty", "--network", "never"} & set(command)
    assert {"TOKEN", "PATH=/inside"} <= set(following(command, "--env"))
    assert not any("very-secret" in word for word in command)
    assert [word.endswith(",readonly") for word in following(command, "--mount")] == [True, False]
    assert docker().place("/state") == "docker:/state image", "the compilers may be the image's"
    offline = run_command(docker(network=False, made_here="make it"))
    assert (following(offline, "--network"), following(offline, "--pull")) == (["none"], ["never"])
    environment = docker().environment({"TOKEN": "very-secret", "PATH": "/inside", "HOME": "/inside/home"})
    assert environment["TOKEN"] == "very-secret"
    assert (environment["PATH"], environment["HOME"]) == (str(programs), "/home/caller"), "the client's own"


@pytest.mark.parametrize(
    ("name", "info", "image", "user", "keeps", "told"),
    [
        ("docker", "28.0.1 [name=seccomp,profile=default]", "image", OWN, False, None),
        ("docker", "28.0.1 [name=seccomp name=rootless]", "image", "0:0", False, None),
        ("podman", "5.2.0 rootless=true", "image", OWN, True, None),
        ("podman", "5.2.0 rootless=false", "image", OWN, False, None),
        ("docker", "28.0.1 []", ANVIL, "0:0", False, "1007"),
        ("docker", "28.0.1 [name=rootless]", ANVIL, "0:0", False, "0"),
        ("podman", "5.2.0 rootless=true", ANVIL, "0:0", True, "1007"),
    ],
)
def test_files_belong_to_the_caller_with_every_kind_of_engine(
    name: str, info: str, image: str, user: str, keeps: bool, told: str | None, programs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(os, "getuid", lambda: 1007)
    install(programs, name, f"echo '{info}'")
    container = Container(engine=Engine(name), image=image)
    command = run_command(container)
    assert following(command, "--user") == [user]
    assert ("--userns=keep-id" in command) == keeps
    assert container.environment({}).get("HOST_USER_ID") == told


def test_a_container_is_removed_until_it_is_gone(programs: Path, tmp_path: Path) -> None:
    lists_it_once = f'[ "$1" != ps ] || [ -e {tmp_path}/gone ] || {{ : > {tmp_path}/gone; echo 1f2e; }}'
    (programs / "docker").write_text(f'#!/bin/sh\necho "$1 $2" >> {tmp_path}/asked\n{lists_it_once}\n')
    docker().stop("build")
    assert (tmp_path / "asked").read_text().split("\n") == ["rm --force", "ps --all"] * 2 + [""]


def test_a_container_whose_name_begins_like_it_may_stay(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may have a shell in that of a failed build."""
    monkeypatch.setattr(container_module, "_REMOVAL_SECONDS", 0.5)
    program(programs / "docker", 'case "$*" in "ps "*"name=^build$") ;; "ps "*) echo build-enter;; esac')
    docker().stop("build")


@pytest.mark.parametrize("enforces", ["1\n", "0\n"])
def test_selinux_lets_a_container_read_the_user_s_files(
    enforces: str, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_module, "_SELINUX", write(tmp_path / "enforce", enforces))
    assert following(run_command(docker()), "--security-opt") == ["label=disable"] * (enforces == "1\n")


def test_a_container_that_cannot_be_asked_for_is_not_gone(programs: Path, tmp_path: Path) -> None:
    """It may write on; its engine may answer the next time."""
    fails_once = f'[ "$1" != ps ] || [ -e {tmp_path}/failed ] || {{ : > {tmp_path}/failed; exit 1; }}'
    (programs / "docker").write_text(f'#!/bin/sh\necho "$1 $2" >> {tmp_path}/asked\n{fails_once}\n')
    docker().stop("build")
    assert (tmp_path / "asked").read_text().split("\n") == ["rm --force", "ps --all"] * 2 + [""]


def test_a_container_that_stays_is_an_error(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_module, "_REMOVAL_SECONDS", 0.1)
    for end in ("echo 1f2e", "exit 1"):
        (programs / "docker").write_text(f'#!/bin/sh\n[ "$1" != ps ] || {end}\n')
        with pytest.raises(IsolationError, match="build cannot be removed"):
            docker().stop("build")


def test_a_mount_that_cannot_work_is_named_before_anything_starts(programs: Path, tmp_path: Path) -> None:
    odd = tmp_path / "a,readonly=false"
    odd.mkdir()
    with pytest.raises(IsolationError, match="comma"):
        run_command(docker(), Mount(source=odd, target="/opt/a"))


@pytest.mark.parametrize(
    ("isolation", "code", "output", "words"),
    [
        (docker(), 125, "docker: pull access denied.\nSee 'docker run --help'.\n", "access denied"),
        (docker(), 126, "", "could not be executed"),
        (docker(), 127, 'exec: "python3": not found in $PATH', "was not found"),
        (MACHINE, 1, "bwrap: No permissions to create new namespace\n", "namespace"),
        (MACHINE, 1, "bwrap: Can't find source path /a: No such file or directory\n", "source path /a"),
        (
            docker(),
            125,
            "docker: invalid mount config: bind source path does not exist: /a.\n",
            "does not exist: /a",
        ),
        (
            PODMAN,
            126,
            "Error: OCI runtime error: crun: setrlimit `RLIMIT_NOFILE`: Operation not permitted",
            "start the",
        ),
        (PODMAN, 126, "Error: runc: runc create failed: cgroup not mounted: OCI runtime error", "start the"),
        (
            PODMAN,
            126,
            'Error: runc: start container process: exec: "/x": permission denied: OCI',
            "be executed inside",
        ),
        (
            PODMAN,
            127,
            'Error: runc: exec: "bash": executable file not found: OCI runtime',
            "not found inside",
        ),
        (PODMAN, 126, "sh: 1: ./build.sh: Permission denied", "could not be executed inside"),
        (
            PODMAN,
            1,
            "ERROR (catatonit:2): failed to exec pid1: No such file or directory",
            "not found inside",
        ),
        (docker(), 137, "", None),
        (docker(), 1, "error: no such file", None),
        (MACHINE, 1, "error: no such file", None),
        (Host(), 127, "", None),
    ],
)
def test_the_isolation_s_own_failures_are_told_from_the_command_s(
    isolation: Isolation, code: int, output: str, words: str | None
) -> None:
    error = isolation.failure(code, output=f"staging\n{output}" if output else "")
    assert (error is None) == (words is None)
    assert error is None or (isinstance(error, IsolationError) and str(words) in error.message)


@pytest.mark.parametrize(
    ("version", "code", "words"),
    [("0.11.0", 0, None), ("0.3.0", 0, "too old"), ("0.11.0", 1, "no permission")],
)
def test_bubblewrap_is_tried_before_a_build(
    version: str, code: int, words: str | None, programs: Path
) -> None:
    answer = f'[ "$1" != --version ] || exec echo bubblewrap {version}\necho no permission >&2; exit {code}'
    (programs / "bwrap").write_text(f"#!/bin/sh\n{answer}\n")
    with pytest.raises(IsolationError, match=words) if words else nullcontext():
        MACHINE.check()


def test_bubblewrap_writes_to_writable_mounts_only_and_has_no_variables_of_the_caller(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another root than the machine's, nothing is hidden."""
    monkeypatch.setenv("A_TOKEN", "very-secret")
    monkeypatch.setattr(bubblewrap_module, "_hidden", lambda: pytest.fail("not this machine's files"))
    (tmp_path / "root/usr").mkdir(parents=True)
    mounts = [Mount(source=tmp_path, target="/opt/a"), Mount(source=tmp_path, target="/opt/b", writable=True)]
    isolation = Bubblewrap(root=tmp_path / "root")
    command = run_command(isolation, *mounts)
    assert [command[command.index(target) - 2] for target in ("/opt/a", "/opt/b")] == ["--ro-bind", "--bind"]
    kernel = following(command, "--ro-bind-try")
    assert {"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"} <= {*kernel}
    assert set(isolation.environment({"B": "1"})) == {"PATH", "HOME", "B"}


@pytest.mark.parametrize(
    ("end", "runs"), [(0, True), (1, False), (IsolationError("no answer"), False)], ids=str
)
def test_programs_of_another_processor_run_if_the_emulator_answers(
    end: int | IsolationError, runs: bool, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build keeps the caller's id: the emulator is registered as the root user of a namespace."""
    asked: list[Sequence[str]] = []

    def run(command: Sequence[str], **_: object) -> Any:
        asked.append(command)
        if isinstance(end, IsolationError):
            raise end
        return SimpleNamespace(returncode=end)

    monkeypatch.setattr(os, "getuid", lambda: 1007)
    monkeypatch.setattr(bubblewrap_module, "no_user_namespaces", lambda _: ())
    monkeypatch.setattr(bubblewrap_module, "_run", run)
    monkeypatch.setattr(emulation, "is_registered", lambda platform: platform == "linux-riscv64")
    (tmp_path / "root/usr").mkdir(parents=True)
    emulator = Emulator(program=tmp_path / "qemu", platform="linux-aarch64")
    isolation = Bubblewrap(root=tmp_path / "root", emulator=emulator)
    assert isolation.runs("linux-aarch64") is runs
    (command,) = asked
    assert following(command, "--uid") == ["1007"]
    assert isolation.runs("linux-riscv64"), "registered on this machine"
    assert not isolation.runs("linux-ppc64le")
    assert len(asked) == 1, "its emulator is for one platform"
    assert isolation.place("/state") == "bubblewrap:/state"


def test_bubblewrap_makes_room_for_mounts_that_its_root_lacks(programs: Path, tmp_path: Path) -> None:
    root, state = tmp_path / "root", tmp_path / "state"
    for folder in (root / "usr/lib", root / "opt/tools", root / "tmp", state):
        folder.mkdir(parents=True)
    targets = ("/opt/megabuild/state", "/opt/megabuild", "/usr/lib")
    mounts = [Mount(source=state, target=target) for target in targets]
    command = run_command(Bubblewrap(root=root, network=False), *mounts)
    assert command.index("/opt/megabuild") < command.index("/opt/megabuild/state"), "it would hide the other"
    assert {str(root / "usr"), str(root / "opt" / "tools")} <= set(following(command, "--ro-bind"))
    assert not {str(root / "opt"), str(root / "tmp")} & set(following(command, "--ro-bind"))
    assert "--unshare-net" in command


def test_bubblewrap_shows_of_the_machine_its_system_alone(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/usr/share/somebody")
    monkeypatch.setattr(bubblewrap_module, "_ETC", tmp_path / "etc")
    (tmp_path / "etc" / "private").mkdir(parents=True)
    (tmp_path / "etc" / "private").chmod(0o710)
    (tmp_path / "etc" / "passwd").touch(mode=0o644)
    (tmp_path / "etc" / "shadow").touch(mode=0o640)
    command = run_command(MACHINE)
    binds = [command[place + 1 : place + 3] for place, word in enumerate(command) if word == "--ro-bind"]
    shown = {Path(target).parts[1] for source, target in binds if source != "/dev/null"}
    assert {"usr", "etc"} <= shown
    assert not {"home", "root", "var", "srv", "mnt", "media", "boot"} & shown
    assert [target for source, target in binds if source == "/dev/null"] == [f"{tmp_path}/etc/shadow"]
    assert {"/usr/share/somebody", f"{tmp_path}/etc/private"} <= set(following(command, "--tmpfs"))


def refusing(function: Callable[..., Any], path: Path, error: type[OSError]) -> Callable[..., Any]:
    """Return what fails for one path, also for root."""

    def refuse(asked: Any, *more: Any, **options: Any) -> Any:
        if str(asked) == str(path):
            number = errno.EACCES if error is PermissionError else errno.ENOENT
            raise OSError(number, os.strerror(number), str(path))
        return function(asked, *more, **options)

    return refuse


@pytest.mark.parametrize("closed", ["", "opt"])
def test_an_unreadable_root_is_named_with_a_way_out(
    closed: str, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    (root / "opt/tools").mkdir(parents=True)
    path = root / closed
    mount = Mount(source=tmp_path, target="/opt/megabuild")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", refusing(Path.iterdir, path, PermissionError))
        with pytest.raises(IsolationError) as refused:
            run_command(Bubblewrap(root=root), mount)
    assert refused.value.message == f"{path}: cannot be read: Permission denied"
    assert refused.value.remedy == f"delete {root}: the next build recreates this root folder as this user"
    assert refused.value.exit_code == 4


def test_a_machine_whose_root_cannot_be_read_is_never_to_be_deleted(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", refusing(Path.iterdir, Path("/"), PermissionError))
        with pytest.raises(IsolationError) as refused:
            run_command(MACHINE)
    assert refused.value.message == "/: cannot be read: Permission denied"
    assert refused.value.remedy == "make it readable, or choose another engine with --engine"


@pytest.mark.parametrize(("error", "hidden"), [(PermissionError, True), (FileNotFoundError, False)])
def test_a_folder_of_etc_that_cannot_be_listed_ends_no_build(
    error: type[OSError], hidden: bool, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed by an access list, or removed meanwhile by a package that is being upgraded."""
    odd = tmp_path / "etc/odd"
    odd.mkdir(parents=True)
    (tmp_path / "etc/shadow").touch(mode=0o640)
    with monkeypatch.context() as patch:
        patch.setattr(bubblewrap_module, "_ETC", tmp_path / "etc")
        patch.setattr(os, "scandir", refusing(os.scandir, odd, error))
        command = run_command(MACHINE)
    assert (str(odd) in following(command, "--tmpfs")) == hidden
    assert f"{tmp_path}/etc/shadow" in command


def test_a_file_of_etc_that_vanishes_ends_no_build(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a new version's file that has just been renamed."""
    (tmp_path / "etc").mkdir()
    for name in ("passwd", "passwd.new", "shadow"):
        (tmp_path / "etc" / name).touch(mode=0o600)

    def scan(folder: Any) -> list[os.DirEntry[str]]:
        entries = list(os_scandir(folder))
        (tmp_path / "etc/passwd.new").unlink()
        return entries

    os_scandir = os.scandir
    with monkeypatch.context() as patch:
        patch.setattr(bubblewrap_module, "_ETC", tmp_path / "etc")
        patch.setattr(os, "scandir", scan)
        command = run_command(MACHINE)
    assert [f"{tmp_path}/etc/{name}" in command for name in ("passwd", "passwd.new", "shadow")] == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("name", "info", "words"),
    [
        ("podman", "", "not installed"),
        ("docker", "echo Cannot connect >&2; exit 1", "cannot be reached: Cannot connect"),
        ("docker", "echo '19.03.5 []'", "too old"),
        ("podman", "echo 2.2.1 rootless=false", "too old"),
        ("docker", "exec /bin/sleep 60", "no answer within"),
        ("docker", "echo '28.0.1 []'", "image image not found"),
    ],
)
def test_check_names_what_is_wrong(
    name: str, info: str, words: str, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_module, "_ANSWER_SECONDS", 0.3 if "sleep" in info else 30)
    if info:
        install(programs, name, info)
    with pytest.raises(IsolationError, match=words) as refused:
        Container(engine=Engine(name), image="image", made_here="make it").check()
    assert refused.value.remedy


def test_a_container_for_a_user_has_a_terminal_of_its_own(programs: Path) -> None:
    (line,) = docker().interactive(["bash", "-c", "a b"], mounts=(), cwd="/opt", name="enter")
    assert line.startswith("exec docker run ")
    assert {"--tty", "--interactive"} <= {*shlex.split(line)}
    assert line.endswith(" image bash -c 'a b'")


def test_bubblewrap_for_a_user_has_a_terminal_of_script_or_none(programs: Path) -> None:
    with_script, without = MACHINE.interactive(["bash", "-c", "a b"], mounts=(), cwd="/opt", name="enter")
    assert with_script.startswith("if [ -t 0 ] && command -v script >/dev/null; then exec script -qec ")
    assert "--new-session" not in with_script
    assert without.startswith(f"exec {programs}/bwrap ")
    assert "--new-session" in shlex.split(without)
    assert without.endswith(" --chdir /opt -- bash -c 'a b'")


def test_the_host_for_a_user_has_the_users_terminal() -> None:
    (line,) = Host().interactive(["bash", "-c", "a b"], mounts=(), cwd="/opt", name="enter")
    assert shlex.split(line)[-4:] == ["/opt", "bash", "-c", "a b"]


@pytest.mark.parametrize("made_here", ["", "run make-image.sh"])
@pytest.mark.parametrize("is_there", [True, False])
def test_an_image_of_this_machine_must_exist_and_others_are_pulled(made_here: str, is_there: bool) -> None:
    container = Container(engine=Engine.DOCKER, image="i", made_here=made_here)
    answer = SimpleNamespace(returncode=0 if is_there else 1)
    vars(container).update(_rootless=False, _ask=lambda *_: answer)
    is_missing = bool(made_here) and not is_there
    with pytest.raises(IsolationError, match="image i not found") if is_missing else nullcontext():
        container.check()


@pytest.mark.parametrize("knows", [True, False])
def test_an_old_bubblewrap_gets_no_option_that_it_does_not_know(knows: bool, tmp_path: Path) -> None:
    known = "exit 0"
    if not knows:
        known = 'case "$*" in *disable-userns*) exit 1 ;; esac'
    bwrap = program(tmp_path / "bwrap", known)
    assert bool(bubblewrap_module.no_user_namespaces(str(bwrap))) == knows
