"""A rehearsal in a real container gives the same packages as one on the host.

Takes two rehearsals, and an image made of this system's own packages.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from engines import client, make_image
from package_files import entries
from rattler import IndexJson
from rehearsing import rehearse

from megabuild.plan.choose_isolation import rehearsal_image

CONFIG = "linux_64_cpu"
pytestmark = pytest.mark.long


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
