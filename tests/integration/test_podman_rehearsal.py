"""A rehearsal in podman: the same packages as on the host, also after a kill of the driver.

The image is made of this system's own packages.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from engines import client
from rehearsing import command
from tiny import wait_for

CONFIG = "linux_64_cpu"
#: After the driver's death its container may live on for this time.
MERCY_SECONDS = 5.0


def containers(podman: Mapping[str, str]) -> str:
    """Return the containers of this storage, also those that have ended."""
    listed = client("podman", podman, "ps", "--all", "--quiet")
    assert listed.returncode == 0, listed.stderr
    return listed.stdout


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
    published = (output / "packages" / f"{CONFIG}-rehearsal").rglob("*.conda")
    assert {path.name for path in published} == expected
