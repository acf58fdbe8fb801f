"""What integration tests share: their order, container engines."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import built_libraries
import pytest
from built_libraries import Cuda
from engines import client, make_image
from filelock import FileLock

from groundwork import files
from megabuild.plan.choose_isolation import rehearsal_image

#: Files of more than 15 seconds, the longest first, so that no worker is left with one of them at the end. A worker
#: takes two files at first: the rehearsal comes after the first build, and finds the wheels that the latter has packed.
_LONGEST = (
    "test_first_build", "test_bare_tools", "test_without_checkout", "test_rehearsal", "test_malicious_recipe",
    "test_build_session", "test_backend_packages", "test_checkout", "test_build_extensions", "test_kills", "test_slurm",
    "test_render_pyg", "test_render_table", "test_screens", "test_front_door",
    "test_nvcc_cache", "test_local_channel", "test_attack_tiny", "test_stored_work", "test_environments",
    "test_installed", "test_other_recipes", "test_folded_output", "test_install_pyg_model",
    "test_tree_inputs", "test_kept_environments", "test_whole_run",
)  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare how the names in tests/data are renewed."""
    parser.addoption("--renew-names", action="store_true", help="write tests/data/rendered*.json anew")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files, which workers take one by one: unit tests, which take seconds, fill the workers at the end."""
    order = {name: number for number, name in enumerate(_LONGEST)}
    others = len(order)

    def place(item: pytest.Item) -> int:
        is_unit = item.path.parent.name == "unit"
        return order.get(item.path.stem, others + is_unit)

    items.sort(key=place)


@pytest.fixture(scope="session")
def docker_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """Environment in which a docker client finds a service: this machine's, or one that is started for the session."""
    if shutil.which("docker") and client("docker", {}, "info").returncode == 0:
        yield {}
        return
    if not (shutil.which("docker") and shutil.which("dockerd")) or os.getuid() != 0:
        pytest.skip("no docker service runs here, and none can be started")
    folder = tmp_path_factory.mktemp("docker")
    host = {"DOCKER_HOST": f"unix://{folder}/socket"}
    command = ["dockerd", "--host", host["DOCKER_HOST"], "--pidfile", f"{folder}/pid", "--iptables=false"]
    command += ["--bridge=none", "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec"]
    # a limit that a machine inside a container may set
    command += ["--default-ulimit", "nofile=4096:4096", "--default-ulimit", "nproc=4096:4096"]
    with (folder / "log").open("w") as log:
        service = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            deadline = time.monotonic() + 30
            while client("docker", host, "info").returncode != 0:
                if service.poll() is not None or time.monotonic() > deadline:
                    pytest.skip(f"dockerd does not start here: {(folder / 'log').read_text()[-300:]}")
                time.sleep(0.2)
            yield host
        finally:
            service.terminate()
            service.wait(30)


@pytest.fixture(scope="session")
def podman_storage(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Environment in which podman keeps images and containers in the session's folder."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed")
    base = tmp_path_factory.getbasetemp()  # each worker of a session has a folder of its own in it
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "podman"
    folder.mkdir(exist_ok=True)
    settings, engine = folder / "storage.conf", folder / "containers.conf"
    storage = f'driver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{_run_folder(folder)}"\n'
    # podman raises the numbers of open files and processes, which a container around this machine may forbid
    kinds = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    most = {name: min(resource.getrlimit(kind)[1] % 2**32, 4096) for name, kind in kinds.items()}
    limits = json.dumps([f"{name}={value}:{value}" for name, value in most.items()])
    files.write(settings, f"[storage]\n{storage}")
    files.write(engine, f"[containers]\ndefault_ulimits = {limits}\n")
    return {"CONTAINERS_STORAGE_CONF": str(settings), "CONTAINERS_CONF": str(engine)}


def _run_folder(storage: Path) -> Path:
    """Return a short path for podman's sockets: below a long one, each container took 20 s more."""
    return Path("/tmp") / f"podman-{hashlib.sha256(bytes(storage)).hexdigest()[:8]}"


@pytest.fixture(scope="session")
def podman_image(podman_storage: Mapping[str, str]) -> Mapping[str, str]:
    """Environment of a podman that has the rehearsal's image, made of this system's own packages in half a minute."""
    for program in ("mmdebstrap", "apt-get"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    name = rehearsal_image()
    with FileLock(f"{podman_storage['CONTAINERS_CONF']}.lock"):
        if client("podman", podman_storage, "image", "exists", name).returncode != 0:
            made = make_image("podman", podman_storage, name)
            if made.returncode != 0:
                pytest.skip(f"the image cannot be made: {made.stderr.strip()[-300:]}")
    trial = client("podman", podman_storage, "run", "--rm", "--init", "--network", "none", name, "true")
    if trial.returncode != 0:
        pytest.skip(f"podman starts no container here: {trial.stderr.strip()[-300:]}")
    return podman_storage


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove podman's mounts, which plain removal of the session's folder would leave behind."""
    factory: pytest.TempPathFactory | None = getattr(session.config, "_tmp_path_factory", None)
    if factory is None or "PYTEST_XDIST_WORKER" in os.environ or factory._basetemp is None:
        return
    folder = factory._basetemp / "podman"
    if (folder / "graph").is_dir():
        environment = {"CONTAINERS_STORAGE_CONF": str(folder / "storage.conf")}
        client("podman", environment, "system", "reset", "--force")
        shutil.rmtree(_run_folder(folder), ignore_errors=True)


@pytest.fixture(scope="session")
def cuda() -> Cuda:
    """NVIDIA's compiler, and its cuobjdump."""
    return built_libraries.cuda()


@pytest.fixture(scope="session")
def tiny_image(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Mapping[str, str]], str]:
    """Make an image of a few of this machine's own programs: takes a second, needs no network."""

    def make(engine: str, environment: Mapping[str, str]) -> str:
        archive = _archive(tmp_path_factory.mktemp("image"))
        done = client(engine, environment, "import", str(archive), "megabuild-test:tiny")
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
