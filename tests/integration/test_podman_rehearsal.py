"""A rehearsal in podman: the same packages as on the host, also after a kill of the driver.

The image is made of this system's own packages.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tiny import wait_for

CONFIG = "linux_64_cpu"
PYTHON = "3.12"
#: After the driver's death its container may live on for this time.
MERCY_SECONDS = 5.0


def command(output: Path, *words: str) -> list[str]:
    named = [sys.executable, "-m", "megabuild", "build", CONFIG, "--rehearse", "--python", PYTHON]
    return [*named, "--output", str(output), "--optimization", "0", *words]


def environment(repository: Path, podman: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **podman, "PYTHONPATH": str(repository / "scripts")}


def containers(podman: Mapping[str, str]) -> list[str]:
    """Return the containers of this storage, also those that have ended."""
    listed = subprocess.run(
        ["podman", "ps", "--all", "--quiet"],
        env={**os.environ, **podman},
        capture_output=True,
        text=True,
        check=True,
    )
    return listed.stdout.split()


def test_a_killed_rehearsal_leaves_no_container_and_gives_the_packages_of_the_host(
    repository: Path, tmp_path: Path, podman_image: Mapping[str, str]
) -> None:
    output, environ = tmp_path / "podman", environment(repository, podman_image)
    build = command(output, "--engine", "podman")
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
        command(tmp_path / "host", "--engine", "host", "--plan", "--json"),
        env=environ, capture_output=True, text=True, check=True,
    )  # fmt: skip
    expected = {package["file_name"] for package in json.loads(plan.stdout)["packages"]}
    published = (output / "packages" / f"{CONFIG}-rehearsal").rglob("*.conda")
    assert {path.name for path in published} == expected
