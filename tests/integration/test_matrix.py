"""Several configs in one command: the same packages as alone, and after a kill nothing is compiled twice.

Rehearsals of the scaled model in bubblewrap, with the real ccache. What PyTorch's own graph shares is measured in
test_shared_objects.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from package_files import published
from tiny import wait_for

CONFIGS = ("linux_64_cpu", "linux_64_cpu_generic", "linux_64_cuda130")
PYTHON = "3.12"
JOBS = 2
#: Objects of the third config, at which the run is killed.
KILL_AT = 25
_SECONDS = 900.0
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for program in ("ccache", "bwrap", "g++"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    return tmp_path_factory.mktemp("cache")


def start(repository: Path, cache: Path, output: Path, *configs: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "build-locally.py", *configs, "--rehearse", "-p", PYTHON, "-o", str(output)]
    # one compiler makes all rehearsals' objects, so that configs side by side would compile some at the same time
    command += ["--engine", "bubblewrap", "-j", str(JOBS), "--one-by-one"]
    environment = {**os.environ, "MEGABUILD_CACHE": str(cache)}
    with (cache / f"{output.name}.log").open("ab") as log:
        return subprocess.Popen(
            command, cwd=repository, env=environment, stdout=log, stderr=log, start_new_session=True
        )


def build(repository: Path, cache: Path, output: Path, *configs: str) -> None:
    ended = start(repository, cache, output, *configs).wait(_SECONDS)
    assert ended == 0, (cache / f"{output.name}.log").read_text()[-3000:]


def compiled(cache: Path) -> int:
    """Return how many objects ccache has compiled since it was emptied."""
    command = ["ccache", "--dir", str(cache / "objects" / "own-rehearsal"), "--print-stats"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return int(dict(line.split("\t") for line in lines)["cache_miss"])


def packages(output: Path, config: str) -> Mapping[str, object]:
    return published(output / "packages" / f"{config}-rehearsal")


def test_a_sequence_makes_the_packages_that_each_config_makes_alone(
    repository: Path, cache: Path, tmp_path: Path
) -> None:
    alone = {}
    for config in CONFIGS:
        shutil.rmtree(cache / "objects", ignore_errors=True)
        build(repository, cache, tmp_path / "alone", config)
        alone[config] = (packages(tmp_path / "alone", config), compiled(cache))
    shutil.rmtree(cache / "objects")
    build(repository, cache, tmp_path / "sequence", *CONFIGS)
    for config, (expected, _) in alone.items():
        assert any(name.startswith("libtorch-") for name in expected)
        assert packages(tmp_path / "sequence", config) == expected, config
    assert compiled(cache) < 0.6 * sum(count for _, count in alone.values())


def test_a_sequence_killed_in_its_third_config_compiles_nothing_twice(
    repository: Path, cache: Path, tmp_path: Path
) -> None:
    shutil.rmtree(cache / "objects", ignore_errors=True)
    build(repository, cache, tmp_path / "undisturbed", *CONFIGS)
    undisturbed = compiled(cache)
    shutil.rmtree(cache / "objects")
    process = start(repository, cache, tmp_path / "killed", *CONFIGS)
    log = tmp_path / "killed" / f"{CONFIGS[-1]}-rehearsal" / "tree" / "build" / ".ninja_log"

    def compiled_some() -> bool:
        return log.exists() and log.read_text().count(".o\t") >= KILL_AT

    assert wait_for(lambda: compiled_some() or process.poll() is not None, _SECONDS)
    assert process.poll() is None, "the run ended before it was killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    build(repository, cache, tmp_path / "killed", *CONFIGS)
    assert undisturbed <= compiled(cache) <= undisturbed + JOBS
    assert packages(tmp_path / "killed", CONFIGS[-1]) == packages(tmp_path / "undisturbed", CONFIGS[-1])
