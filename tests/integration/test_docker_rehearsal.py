"""A rehearsal in a real container gives the same packages as one on the host.

Takes two rehearsals, and an image made of this system's own packages.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from package_files import entries
from rattler import IndexJson
from rehearsing import rehearse

from megabuild.plan.choose_isolation import rehearsal_image

CONFIG = "linux_64_cpu"
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def image(docker_service: Mapping[str, str], repository: Path) -> str:
    """The rehearsal's image, made unless it is there already."""
    name = rehearsal_image()
    if docker(docker_service, "image", "ls", "--quiet", name) == "":
        script = repository / "rehearsal" / "image" / "make-image.sh"
        made = subprocess.run(
            [str(script), "docker", name],
            env={**os.environ, **docker_service},
            capture_output=True,
            text=True,
        )
        assert made.returncode == 0, made.stderr
    return name


def docker(service: Mapping[str, str], *arguments: str) -> str:
    command = ["docker", *arguments]
    return subprocess.run(
        command, env={**os.environ, **service}, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


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


def test_docker_and_host_make_the_same_packages(
    tmp_path: Path, docker_service: Mapping[str, str], image: str
) -> None:
    for engine, environ in (("host", {}), ("docker", docker_service)):
        done = rehearse(CONFIG, tmp_path / engine, "--engine", engine, **environ)
        assert done.returncode == 0, done.stdout[-5000:]
    on_host, in_docker = contents(tmp_path / "host"), contents(tmp_path / "docker")
    assert len(on_host) >= 6, "libtorch, pytorch-cpu and pytorch for four Pythons"
    assert list(in_docker) == list(on_host)
    assert in_docker == on_host
    assert all(path.lstat().st_uid == os.getuid() for path in (tmp_path / "docker").rglob("*"))
    assert docker(docker_service, "ps", "--all", "--quiet") == "", "a container was left behind"
