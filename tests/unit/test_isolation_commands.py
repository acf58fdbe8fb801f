"""How each isolation spells a command, without any engine installed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from groundwork.errors import IsolationError
from megabuild.isolation import bubblewrap as bubblewrap_module
from megabuild.isolation import container as container_module
from megabuild.isolation.base import Host, Isolation, Mount
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.isolation.container import Container

ANVIL = "quay.io/condaforge/linux-anvil-x86_64:alma10"


class FakeEngine:
    """A folder with fake docker and podman programs, which answer from files and note what they are asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, name: str, *, version: str = "", info: str = "", bridge: str = "abc") -> None:
        """Put a fake engine in place; without info its daemon is not running."""
        answer = f'echo "{info}"' if info else 'echo "Cannot connect to the daemon" >&2; exit 1'
        program = self.folder / name
        program.write_text(
            "#!/bin/sh\n"
            f'echo "$*" >> {self.folder}/{name}.asked\n'
            'case "$1 $2" in\n'
            f'"--version "*) echo "{version or name}";;\n'
            f'"info "*) {answer};;\n'
            f'"network ls") echo "{bridge}";;\n'
            f'"image inspect") [ -e {self.folder}/{name}.image ];;\n'
            "esac\n"
        )
        program.chmod(0o755)

    def asked(self, name: str) -> str:
        """What the fake engine was asked so far."""
        return (self.folder / f"{name}.asked").read_text()


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(container_module, "_SELINUX", tmp_path / "no-selinux")
    return FakeEngine(folder)


def run_command(isolation: Isolation, *mounts: Mount, **env: str) -> list[str]:
    return isolation.command(["python3", "worker.py"], mounts=mounts, env=env, cwd="/opt", name="build")


def following(command: Sequence[str], option: str) -> list[str]:
    return [command[place + 1] for place, word in enumerate(command[:-1]) if word == option]


def docker(image: str = "image", *, network: bool = True) -> Container:
    return Container(name="docker", image=image, network=network)


def test_host_runs_the_command_in_its_folder_with_the_callers_environment(tmp_path: Path) -> None:
    host = Host()
    script = ["sh", "-c", "pwd; echo $ANSWER $HOME"]
    command = host.command(script, mounts=[], env={}, cwd=str(tmp_path), name="x")
    done = subprocess.run(command, env=host.environment({"ANSWER": "42"}), stdout=subprocess.PIPE, text=True)
    assert done.stdout == f"{tmp_path}\n42 {os.environ['HOME']}\n"
    assert host.path("/opt/megabuild/recipe", tmp_path) == str(tmp_path)


def test_the_commands_own_exit_codes_are_left_alone() -> None:
    for isolation in (Host(), docker(), Bubblewrap(root=Path("/"))):
        assert isolation.failure(1, output="error: no such file") is None
        assert isolation.failure(0, output="") is None
        assert isolation.failure(137, output="") is None  # whoever killed it, the isolation did not


def test_container_has_an_init_and_a_name_and_no_terminal(engine: FakeEngine) -> None:
    engine.install("docker", info="28.0.1 [name=seccomp]")
    command = run_command(docker())
    assert {"--rm", "--init"} <= set(command)
    assert following(command, "--name") == ["build"]
    assert following(command, "--workdir") == ["/opt"]
    assert not {"-t", "-it", "-ti", "--tty"} & set(command)
    assert command[-3:] == ["image", "python3", "worker.py"]


def test_values_never_stand_in_the_containers_command_line(engine: FakeEngine) -> None:
    engine.install("docker", info="28.0.1 []")
    command = run_command(docker(), TOKEN="very-secret", PATH="/inside")
    assert "TOKEN" in following(command, "--env")
    assert not any("very-secret" in word for word in command)
    environment = docker().environment({"TOKEN": "very-secret", "PATH": "/inside"})
    assert environment["TOKEN"] == "very-secret"


def test_the_client_keeps_its_own_path_and_home(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.install("docker", info="28.0.1 []")
    monkeypatch.setenv("HOME", "/home/caller")
    assert "PATH=/inside" in following(run_command(docker(), PATH="/inside"), "--env")
    environment = docker().environment({"PATH": "/inside", "HOME": "/inside/home"})
    assert (environment["PATH"], environment["HOME"]) == (str(engine.folder), "/home/caller")


def test_files_belong_to_the_caller_with_every_kind_of_engine(engine: FakeEngine) -> None:
    own = f"{os.getuid()}:{os.getgid()}"
    engine.install("docker", info="28.0.1 [name=seccomp,profile=default]")
    assert following(run_command(docker()), "--user") == [own]
    engine.install("docker", info="28.0.1 [name=seccomp name=rootless]")
    assert following(run_command(docker()), "--user") == ["0:0"]
    engine.install("podman", info="5.2.0 rootless=true")
    podman = Container(name="podman", image="image")
    command = run_command(podman)
    assert "--userns=keep-id" in command
    assert following(command, "--user") == [own]
    engine.install("podman", info="5.2.0 rootless=false")
    assert "--userns=keep-id" not in run_command(Container(name="podman", image="image"))


def test_conda_forges_image_starts_as_root_and_is_told_the_callers_number(engine: FakeEngine) -> None:
    engine.install("docker", info="28.0.1 []")
    command = run_command(docker(ANVIL))
    assert following(command, "--user") == ["0:0"]
    assert "HOST_USER_ID" in following(command, "--env")
    assert docker(ANVIL).environment({})["HOST_USER_ID"] == str(os.getuid())
    engine.install("podman", info="5.2.0 rootless=true")
    command = run_command(Container(name="podman", image=ANVIL))
    assert "--userns=keep-id" in command
    assert following(command, "--user") == ["0:0"]


def test_rootless_docker_shows_the_caller_as_root_to_conda_forges_image(engine: FakeEngine) -> None:
    engine.install("docker", info="28.0.1 [name=rootless]")
    assert docker(ANVIL).environment({})["HOST_USER_ID"] == "0"


def test_network_is_none_offline_and_the_hosts_without_a_bridge(engine: FakeEngine) -> None:
    engine.install("docker", info="28.0.1 []")
    assert following(run_command(docker()), "--network") == []
    assert following(run_command(docker(network=False)), "--network") == ["none"]
    engine.install("docker", info="28.0.1 []", bridge="")
    assert following(run_command(docker()), "--network") == ["host"]


def test_labels_are_switched_off_where_selinux_enforces(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.install("docker", info="28.0.1 []")
    enforce = tmp_path / "enforce"
    monkeypatch.setattr(container_module, "_SELINUX", enforce)
    assert following(run_command(docker()), "--security-opt") == []
    enforce.write_text("0")
    assert following(run_command(docker()), "--security-opt") == []
    enforce.write_text("1\n")
    assert following(run_command(docker()), "--security-opt") == ["label=disable"]


def test_mounts_are_read_only_unless_writable(engine: FakeEngine, tmp_path: Path) -> None:
    engine.install("docker", info="28.0.1 []")
    mounts = [Mount(source=tmp_path, target="/opt/a"), Mount(source=tmp_path, target="/opt/b", writable=True)]
    assert following(run_command(docker(), *mounts), "--mount") == [
        f"type=bind,source={tmp_path},target=/opt/a,readonly",
        f"type=bind,source={tmp_path},target=/opt/b",
    ]


def test_a_missing_source_is_named_before_anything_starts(engine: FakeEngine, tmp_path: Path) -> None:
    engine.install("docker", info="28.0.1 []")
    (engine.folder / "bwrap").write_text("#!/bin/sh\n")
    (engine.folder / "bwrap").chmod(0o755)
    for isolation in (Host(), docker(), Bubblewrap(root=tmp_path)):
        with pytest.raises(IsolationError, match="nowhere does not exist"):
            run_command(isolation, Mount(source=tmp_path / "nowhere", target="/opt/a"))


def test_a_path_that_no_mount_option_can_spell_is_refused(engine: FakeEngine, tmp_path: Path) -> None:
    engine.install("docker", info="28.0.1 []")
    odd = tmp_path / "a,readonly=false"
    odd.mkdir()
    with pytest.raises(IsolationError, match="comma"):
        run_command(docker(), Mount(source=odd, target="/opt/a"))


def test_the_engines_own_message_is_reported() -> None:
    output = (
        "Unable to find image 'nowhere:1' locally\n"
        "docker: Error response from daemon: pull access denied for nowhere.\n"
        "See 'docker run --help'.\n"
    )
    error = docker().failure(125, output=output)
    assert isinstance(error, IsolationError)
    assert "pull access denied for nowhere" in error.message


@pytest.mark.parametrize(("code", "words"), [(126, "could not be executed"), (127, "was not found")])
def test_a_tool_missing_in_the_image_is_said_to_be_missing(code: int, words: str) -> None:
    error = docker().failure(code, output='exec: "python3": not found in $PATH')
    assert isinstance(error, IsolationError)
    assert words in error.message
    assert "python3" in error.message


def test_bubblewrap_shows_its_root_and_makes_room_for_mounts_that_it_lacks(
    engine: FakeEngine, tmp_path: Path
) -> None:
    (engine.folder / "bwrap").write_text("#!/bin/sh\n")
    (engine.folder / "bwrap").chmod(0o755)
    root = tmp_path / "root"
    for folder in ("usr/lib", "etc", "opt/tools", "tmp", "proc", "dev"):
        (root / folder).mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    state = tmp_path / "state"
    state.mkdir()
    command = run_command(
        Bubblewrap(root=root, network=False),
        Mount(source=state, target="/opt/megabuild/state", writable=True),
        Mount(source=state, target="/opt/megabuild"),
        Mount(source=state, target="/usr/lib"),
    )
    assert command.index("/opt/megabuild") < command.index("/opt/megabuild/state"), "it would hide the other"
    binds = [command[place + 1 : place + 3] for place, word in enumerate(command) if word == "--ro-bind"]
    assert [str(root / "usr"), "/usr"] in binds  # has the mount point already, so it stays whole
    assert [str(root / "opt" / "tools"), "/opt/tools"] in binds
    assert [str(root / "opt"), "/opt"] not in binds
    assert not {"/tmp", "/proc", "/dev"} & {target for _, target in binds}
    assert "--unshare-net" in command
    assert following(command, "--symlink") == ["usr/bin"]
    assert command[command.index("--bind") + 1 :][:2] == [str(state), "/opt/megabuild/state"]
    assert command[-2:] == ["python3", "worker.py"]


def test_bubblewrap_shows_of_the_machine_its_system_alone(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (engine.folder / "bwrap").write_text("#!/bin/sh\n")
    (engine.folder / "bwrap").chmod(0o755)
    monkeypatch.setenv("HOME", "/usr/share/somebody")
    monkeypatch.setattr(bubblewrap_module, "_ETC", tmp_path)
    (tmp_path / "ssl" / "private").mkdir(parents=True)
    (tmp_path / "ssl" / "private").chmod(0o710)
    (tmp_path / "passwd").touch(mode=0o644)
    (tmp_path / "shadow").touch(mode=0o640)
    command = run_command(Bubblewrap(root=Path("/")))
    binds = [command[place + 1 : place + 3] for place, word in enumerate(command) if word == "--ro-bind"]
    shown = {Path(target).parts[1] for source, target in binds if source != "/dev/null"}
    assert {"usr", "etc"} <= shown
    assert not {"home", "root", "var", "srv", "mnt", "media", "boot"} & shown
    assert [target for source, target in binds if source == "/dev/null"] == [f"{tmp_path}/shadow"]
    assert {"/usr/share/somebody", f"{tmp_path}/ssl/private"} <= set(following(command, "--tmpfs"))


def test_bubblewrap_passes_nothing_of_the_callers_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CFLAGS", "-O0")
    environment = Bubblewrap(root=tmp_path).environment({"TOKEN": "secret"})
    assert set(environment) == {"PATH", "HOME", "TOKEN"}


def test_bubblewraps_own_error_is_not_taken_for_the_commands() -> None:
    isolation = Bubblewrap(root=Path("/"))
    output = "bwrap: No permissions to create new namespace\n"
    assert isinstance(isolation.failure(1, output=output), IsolationError)


def test_check_names_what_is_missing_and_what_to_do(engine: FakeEngine) -> None:
    with pytest.raises(IsolationError, match="docker is not installed") as missing:
        docker().check()
    assert "install docker" in missing.value.remedy
    with pytest.raises(IsolationError, match="bwrap"):
        Bubblewrap(root=Path("/")).check()


def test_check_tells_a_silent_daemon_from_a_missing_program(engine: FakeEngine) -> None:
    engine.install("docker")
    with pytest.raises(IsolationError, match=r"does not answer: Cannot connect") as silent:
        docker().check()
    assert "systemctl" in silent.value.remedy


def test_check_does_not_wait_for_a_daemon_that_hangs(
    engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = engine.folder / "docker"
    program.write_text('#!/bin/sh\ncase "$1" in --version) echo Docker;; *) exec /bin/sleep 60;; esac\n')
    program.chmod(0o755)
    monkeypatch.setattr(container_module, "_ANSWER_SECONDS", 0.3)
    with pytest.raises(IsolationError, match="did not answer within"):
        docker().check()


@pytest.mark.parametrize(("name", "info"), [("docker", "19.03.5 []"), ("podman", "2.2.1 rootless=false")])
def test_check_refuses_an_old_engine(engine: FakeEngine, name: str, info: str) -> None:
    engine.install(name, info=info)
    with pytest.raises(IsolationError, match="too old"):
        Container(name=name, image="image").check()


def test_check_sees_through_podmans_stand_in_for_docker(engine: FakeEngine) -> None:
    engine.install("docker", version="podman version 5.2.0", info="5.2.0 []")
    with pytest.raises(IsolationError, match="stand-in") as disguised:
        docker().check()
    assert "--engine podman" in disguised.value.remedy


def test_an_image_made_here_is_never_pulled(engine: FakeEngine) -> None:
    engine.install("docker", info="28.0.1 []")
    isolation = Container(name="docker", image="own", made_here="make it so")
    assert following(run_command(isolation), "--pull") == ["never"]
    with pytest.raises(IsolationError, match="no image own") as missing:
        isolation.check()
    assert missing.value.remedy == "make it so"
    (engine.folder / "docker.image").touch()
    isolation.check()


def test_stop_removes_by_name_until_it_is_gone(engine: FakeEngine) -> None:
    engine.install("docker", info="28.0.1 []")
    docker().stop("build")
    assert "rm --force build" in engine.asked("docker")
    assert "name=^build$" in engine.asked("docker")
