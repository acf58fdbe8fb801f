"""The isolations with the real docker, podman and bubblewrap of this machine."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from engines import working
from tiny import wait_for

from groundwork.errors import IsolationError
from megabuild.isolation.base import Isolation, Mount
from megabuild.isolation.bubblewrap import Bubblewrap, no_user_namespaces
from megabuild.isolation.container import Container
from megabuild.isolation.engine import Engine

STATE = "/opt/megabuild/state"
RECIPE = "/opt/megabuild/recipe"
SECRET = "not-for-ps"
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(
    scope="module", params=[pytest.param("docker", marks=pytest.mark.long), "podman", "bubblewrap"]
)
def isolation(
    request: pytest.FixtureRequest, tiny_image: Callable[[str, Mapping[str, str]], str]
) -> Iterator[Isolation]:
    if request.param == "bubblewrap":
        yield working(Bubblewrap(root=Path("/")))
        return
    service = "docker_service" if request.param == "docker" else "podman_storage"
    environment: Mapping[str, str] = request.getfixturevalue(service)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        image = tiny_image(request.param, environment)
        yield working(
            Container(engine=Engine(request.param), image=image, made_here="make it", network=False)
        )


def test_root_inside_is_no_root_outside(isolation: Isolation, mounts: Sequence[Mount]) -> None:
    if isolation.name != "bubblewrap":
        pytest.skip("what a container may do is the engine's own affair")
    attack = f"grep CapEff /proc/self/status; mknod /tmp/disk b 7 0; mount -o remount,rw,bind {RECIPE}; unshare -m true"
    command = isolation.command(
        ["sh", "-c", f"{attack}; touch {RECIPE}/written"],
        mounts=mounts,
        env={},
        cwd="/",
        name="megabuild-test",
    )
    done = run(command, isolation.environment({}))
    assert "CapEff:\t0000000000000000" in done.stdout
    assert os.strerror(errno.EROFS) in done.stdout.splitlines()[-1]
    assert sum("ermi" in line for line in done.stdout.splitlines()) == 3, done.stdout
    if no_user_namespaces("bwrap"):
        command[command.index("--") + 1 :] = ["unshare", "--user", "true"]
        assert run(command, isolation.environment({})).returncode != 0


def run(command: Sequence[str], env: Mapping[str, str], given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=env, input=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
    )


@pytest.fixture
def mounts(tmp_path: Path) -> tuple[Mount, ...]:
    for name in ("state", "recipe"):
        (tmp_path / name).mkdir()
    (tmp_path / "recipe" / "recipe.yaml").write_text("the recipe")
    return (
        Mount(source=tmp_path / "state", target=STATE, writable=True),
        Mount(source=tmp_path / "recipe", target=RECIPE),
    )


@pytest.fixture
def start(isolation: Isolation, mounts: Sequence[Mount]) -> Iterator[Start]:
    """Start a shell script in the isolation, without a terminal."""

    started: list[subprocess.Popen[str]] = []

    def start_script(script: str, **env: str) -> subprocess.Popen[str]:
        argv = ["sh", "-c", script]
        command = isolation.command(argv, mounts=mounts, env=env, cwd=STATE, name="megabuild-test")
        process = subprocess.Popen(
            command,
            env=isolation.environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start_script
    isolation.stop("megabuild-test")
    for process in started:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def test_only_writable_mounts_are_written_and_files_belong_to_the_caller(
    isolation: Isolation, start: Start, mounts: Sequence[Mount]
) -> None:
    code, output = finish(
        start(f"echo built > result; cat {RECIPE}/recipe.yaml; echo changed > {RECIPE}/recipe.yaml")
    )
    assert code != 0
    assert "the recipe" in output
    assert "Read-only" in output
    if isolation.name == "bubblewrap":  # a container's own files may be written: they go when it ends
        code, output = finish(start("echo x > /usr/megabuild-test; echo x > /megabuild-test"))
        assert (code != 0, output.count("Read-only")) == (True, 2)
    assert (mounts[1].source / "recipe.yaml").read_text() == "the recipe"
    result = mounts[0].source / "result"
    assert result.read_text() == "built\n"
    assert (result.stat().st_uid, result.stat().st_gid) == (os.getuid(), os.getgid())


@pytest.mark.parametrize(
    ("script", "codes"), [("exit 0", {0}), ("exit 1", {1}), ("exit 42", {42}), ("kill -9 $$", {-9, 137})]
)
def test_the_commands_exit_code_passes_through(
    isolation: Isolation, start: Start, script: str, codes: set[int]
) -> None:
    code, output = finish(start(script))
    assert code in codes
    assert isolation.failure(code, output=output) is None


def test_a_missing_tool_is_reported_and_standard_input_reaches_the_command(
    isolation: Isolation, mounts: Sequence[Mount]
) -> None:
    for program in ("no-such-tool", "cat"):
        command = isolation.command([program], mounts=mounts, env={}, cwd=STATE, name="megabuild-test")
        done = run(command, isolation.environment({}), given="until the end")
        if program == "cat":
            assert done.stdout == "until the end"
            return
        error = isolation.failure(done.returncode, output=done.stdout)
        assert isinstance(error, IsolationError)
        assert "not found" in error.message


def test_the_command_finds_its_environment_and_folder_and_secrets_are_in_no_command_line(
    start: Start, mounts: Sequence[Mount], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGABUILD_OUTSIDE", "leak")
    script = 'pwd; echo $TOKEN; echo $PATH$MEGABUILD_OUTSIDE; [ -n "$HOME" ] && echo > running; sleep 5'
    process = start(script, TOKEN=SECRET, PATH="/bin:/usr/bin:/inside")
    assert wait_for((mounts[0].source / "running").exists, 30)
    listing = run(["ps", "-eww", "-o", "args"], os.environ)
    assert "sleep 5" in listing.stdout
    assert SECRET not in listing.stdout
    code, output = finish(process)
    assert code == 0
    assert output.splitlines() == [STATE, SECRET, "/bin:/usr/bin:/inside"]


def test_a_killed_client_leaves_nothing_after_stop(
    isolation: Isolation, start: Start, mounts: Sequence[Mount]
) -> None:
    tick = mounts[0].source / "tick"
    process = start("while :; do echo >> tick; sleep 0.1; done")
    assert wait_for(tick.exists, 30)
    os.killpg(process.pid, signal.SIGKILL)
    finish(process)
    isolation.stop("megabuild-test")
    size = tick.stat().st_size
    time.sleep(0.5)
    assert tick.stat().st_size == size
    if isinstance(isolation, Container):
        listing = subprocess.run([isolation.name, "ps", "-aq"], stdout=subprocess.PIPE, text=True, check=True)
        assert listing.stdout == ""
    assert finish(start("exit 0")) == (0, ""), "the name is free again"


def test_sigterm_to_the_client_ends_the_command(start: Start, mounts: Sequence[Mount]) -> None:
    state = mounts[0].source
    process = start("trap 'echo > asked; exit 3' TERM; echo > running; sleep 60 & wait; echo > not-asked")
    assert wait_for((state / "running").exists, 30)
    os.killpg(process.pid, signal.SIGTERM)
    finish(process)  # whatever its code: podman's is 0 when the container is removed before it could look
    assert not (state / "not-asked").exists()
