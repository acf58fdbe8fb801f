"""Container engines for tests: a docker service in a temporary folder, podman with storage of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

_READY_SECONDS = 20.0
_SOCKET = "docker.sock"
#: The bare root has caches of its own. One rehearsal fills the cache of packed wheels, for which others would wait
#: unless unit tests came in between; then the longest, so that no worker is left with one of them at the end.
_FIRST = ("test_bare_root", "test_rehearsal")
_THEN = ("test_malicious_recipe", "test_backend_packages", "test_build_session", "test_build_extensions")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare how the names in tests/data are renewed."""
    parser.addoption("--renew-names", action="store_true", help="write tests/data/rendered*.json anew")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files, which workers take one by one."""
    order = {name: number for number, name in enumerate((*_FIRST, "unit", *_THEN))}
    last = len(order)
    items.sort(
        key=lambda item: order.get("unit" if item.path.parent.name == "unit" else item.path.stem, last)
    )


@pytest.fixture(scope="session")
def docker_service() -> Iterator[Mapping[str, str]]:
    """Environment in which a docker client finds a service: this machine's, or one that leaves nothing behind."""
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed (Debian: docker.io)")
    if _answers({}):
        yield {}
        return
    if shutil.which("dockerd") is None:
        pytest.skip("no docker service runs here and dockerd is not installed (Debian: docker.io)")
    if os.geteuid() != 0:
        pytest.skip("no docker service runs here, and only root can start one")
    # Not pytest's own temporary folder: a socket's path has room for about a hundred characters.
    with tempfile.TemporaryDirectory(prefix="megabuild-docker-", ignore_cleanup_errors=True) as name:
        yield from _own_service(Path(name))


@pytest.fixture(scope="session")
def podman_storage() -> Iterator[Mapping[str, str]]:
    """Environment in which podman keeps images and containers in a temporary folder."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    with tempfile.TemporaryDirectory(prefix="megabuild-podman-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        settings = folder / "storage.conf"
        settings.write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
        )
        yield {"CONTAINERS_STORAGE_CONF": str(settings)}
        # Plain removal leaves mounts and locks of the containers behind.
        _client("podman", {"CONTAINERS_STORAGE_CONF": str(settings)}, "system", "reset", "--force")


@pytest.fixture(scope="session")
def tiny_image(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Mapping[str, str]], str]:
    """Make an image of a few of this machine's own programs: takes a second, needs no network."""

    def make(engine: str, environment: Mapping[str, str]) -> str:
        archive = _archive(tmp_path_factory.mktemp("image"))
        done = _client(engine, environment, "import", str(archive), "megabuild-test:tiny")
        if done.returncode != 0:
            pytest.skip(f"{engine} takes no image: {done.stderr.strip()}")
        return "megabuild-test:tiny"

    return make


def _archive(folder: Path) -> Path:
    programs = [Path(str(shutil.which(name))) for name in ("sh", "cat", "env", "id", "sleep", "stat", "tail")]
    libraries: set[str] = set()
    for program in programs:
        listing = subprocess.run(["ldd", str(program)], stdout=subprocess.PIPE, text=True, check=True).stdout
        libraries |= {word for word in listing.split() if word.startswith("/")}
    root = folder / "root"
    for place in ("bin", "tmp", "work", "dev", "proc", "sys", "etc"):
        (root / place).mkdir(parents=True)
    for program in programs:
        shutil.copy(program, root / "bin" / program.name)
    for library in libraries:
        (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, root / library[1:])
    archive = folder / "root.tar"
    subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
    return archive


def _own_service(folder: Path) -> Iterator[Mapping[str, str]]:
    environment = {"DOCKER_HOST": f"unix://{folder / _SOCKET}"}
    command = ["dockerd", "--host", environment["DOCKER_HOST"], "--iptables=false", "--bridge=none"]
    command += ["--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")]
    command += ["--pidfile", str(folder / "pid")]
    log = folder / "log"
    with log.open("w") as output:
        service = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            deadline = time.monotonic() + _READY_SECONDS
            while not _answers(environment):
                if service.poll() is not None or time.monotonic() > deadline:
                    pytest.skip(f"dockerd does not start here: {log.read_text()[-300:]}")
                time.sleep(0.1)
            yield environment
        finally:
            service.terminate()
            try:
                service.wait(_READY_SECONDS)
            except subprocess.TimeoutExpired:
                service.kill()
                service.wait()


def _answers(environment: Mapping[str, str]) -> bool:
    return _client("docker", environment, "info").returncode == 0


def _client(engine: str, environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [engine, *arguments],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
