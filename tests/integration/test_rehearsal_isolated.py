"""Rehearsals in podman, docker, bubblewrap and on the host give the same packages, also after a kill of the driver.

The tests make images of this system's own packages. Two builds give the same bytes if they see the same path. In
bubblewrap they see the same one from any folder. On the host, build IDs and byte code contain the path: there the test
uses one output folder twice, empties it in between, and has no object cache.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from engines import client, make_image
from package_files import entries, published
from rattler import IndexJson
from rehearsing import command, rehearse
from tiny import wait_for

from megabuild.plan.choose_isolation import rehearsal_image

CONFIG = "linux_64_cpu"
#: After the driver's death its container may live on for this time.
MERCY_SECONDS = 5.0


def containers(podman: Mapping[str, str]) -> str:
    """Return the containers of this storage, also those that have ended."""
    listed = client("podman", podman, "ps", "--all", "--quiet")
    assert listed.returncode == 0, listed.stderr
    return listed.stdout


@pytest.mark.long  # podman's image takes a minute; test_isolation_real.py kills podman's clients
def test_a_killed_rehearsal_leaves_no_container_and_gives_the_packages_of_the_host(
    tmp_path: Path, podman_image: Mapping[str, str]
) -> None:
    output, environ = tmp_path / "podman", {**os.environ, **podman_image}
    options = ("--python", "3.12", "--optimization", "0", "--engine")
    build = command(CONFIG, output, *options, "podman")
    with subprocess.Popen(build, env=environ, stdin=subprocess.DEVNULL, start_new_session=True) as driver:
        assert wait_for(lambda: containers(podman_image) or driver.poll() is not None, 300)
        assert driver.poll() is None, "the rehearsal ended without a container"
        driver.send_signal(signal.SIGKILL)
    assert wait_for(lambda: not containers(podman_image), MERCY_SECONDS), (
        "a container runs without its driver"
    )

    assert subprocess.run(build, env=environ, stdin=subprocess.DEVNULL).returncode == 0
    assert not containers(podman_image)
    assert all(path.lstat().st_uid == os.getuid() for path in output.rglob("*"))
    plan = subprocess.run(
        command(CONFIG, tmp_path / "host", *options, "host", "--plan", "--json"),
        env=environ, capture_output=True, text=True, check=True,
    )  # fmt: skip
    expected = {package["file_name"] for package in json.loads(plan.stdout)["packages"]}
    made = (output / "packages" / f"{CONFIG}-rehearsal").rglob("*.conda")
    assert {path.name for path in made} == expected


@pytest.fixture(scope="module")
def service(docker_service: Mapping[str, str]) -> Mapping[str, str]:
    """Environment of a docker that has the rehearsal's image."""
    name = rehearsal_image()
    if docker(docker_service, "image", "ls", "--quiet", name) == "":
        made = make_image("docker", docker_service, name)
        assert made.returncode == 0, made.stderr
    return docker_service


def docker(service: Mapping[str, str], *arguments: str) -> str:
    done = client("docker", service, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def contents(output: Path) -> dict[str, tuple[list[str], dict[str, tuple[str, str]]]]:
    """Every published package (name, version and build string are its file name): what it requires and holds.

    Without its files' content: compiled on the host, it names the host's folders.
    """
    packages = output / "packages" / f"{CONFIG}-rehearsal"
    return {
        str(archive.relative_to(packages)): (
            sorted(IndexJson.from_package_archive(archive).depends),
            {name: (entry.mode, entry.link) for name, entry in entries(archive).items()},
        )
        for archive in sorted(packages.rglob("*.conda"))
    }


@pytest.mark.long
def test_docker_and_host_make_the_same_packages(tmp_path: Path, service: Mapping[str, str]) -> None:
    for engine, environ in (("host", {}), ("docker", service)):
        done = rehearse(CONFIG, tmp_path / engine, "--engine", engine, **environ)
        assert done.returncode == 0, done.stdout[-5000:]
    on_host, in_docker = contents(tmp_path / "host"), contents(tmp_path / "docker")
    assert len(on_host) >= 6, "libtorch, pytorch-cpu and pytorch for four Pythons"
    assert list(in_docker) == list(on_host)
    assert in_docker == on_host
    assert all(path.lstat().st_uid == os.getuid() for path in (tmp_path / "docker").rglob("*"))
    assert docker(service, "ps", "--all", "--quiet") == "", "a container was left behind"


@pytest.mark.long
@pytest.mark.parametrize("engine", ["bubblewrap", "host"])
def test_two_builds_give_the_same_bytes(tmp_path: Path, engine: str) -> None:
    def build(output: Path) -> dict[str, object]:
        config = f"{CONFIG}_debian" if engine == "bubblewrap" else CONFIG
        options = ("--engine", engine, "--python", "3.12")
        done = rehearse(config, output, *options, TORCH_CCACHE="no-object-cache")
        if done.returncode in (4, 5):  # no mirror, or no bubblewrap
            pytest.skip(done.stdout.splitlines()[-1])
        assert done.returncode == 0, done.stdout[-5000:]
        return dict(published(output / "packages"))

    first = build(tmp_path / "a")
    assert len(first) == 2 * 3
    if engine == "host":
        shutil.rmtree(tmp_path / "a")
    assert build(tmp_path / ("a" if engine == "host" else "another/longer")) == first
