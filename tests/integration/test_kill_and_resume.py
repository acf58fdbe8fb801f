"""``kill -9`` of the driver at ten moments of two rehearsals, and at twenty moments of four that cross-compile for ARM.

A plain run finishes each in the end. Moments are random, one in each tenth or twentieth of an undisturbed run's
duration; MEGABUILD_TEST_SEED gives others. The next kill hits the run that resumes after a kill: the folders share
the moments, and each run begins where the former one was killed.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from package_files import published
from rehearsing import command
from tiny import wait_for

from groundwork.errors import ProviderError
from groundwork.machine import machine_platform
from groundwork.user_folders import cache_folder
from megabuild.configs.config import load, python_version
from megabuild.engine.supervisor import strays
from megabuild.plan.options import Options
from megabuild.plan.planning import make_plan

PYTHONS = 2
#: How long after the driver's death its compilers and tests may live on.
MERCY_SECONDS = 10.0

pytestmark = pytest.mark.long  # test_attack_tiny kills as well, in seconds


@dataclass(frozen=True, kw_only=True)
class Sweep:
    config: str
    options: tuple[str, ...]
    kills: int
    folders: int


NATIVE = Sweep(config="linux_64_cpu", options=("--engine", "host"), kills=10, folders=2)
#: In a Debian root, which has ARM's compilers; qemu runs the packages' tests.
CROSS = Sweep(config="linux_aarch64_cpu", options=(), kills=20, folders=4)


def pythons_here(repository: Path, sweep: Sweep, output: Path) -> tuple[str, ...]:
    """Return the last Pythons that a rehearsal of the config would build on this machine."""
    options = Options(
        config=load(repository, sweep.config),
        root=repository,
        output=output,
        cache=cache_folder(os.environ),
        rehearse=True,
    )
    try:
        plan = make_plan(options, print)
    except ProviderError as error:
        pytest.skip(error.message)
    pythons = [python_version(pin) for pin in plan.environment.overrides["python"]]
    if len(pythons) < PYTHONS:
        pytest.skip(f"needs {PYTHONS} Pythons of {sweep.config}, found {pythons}")
    return tuple(pythons[-PYTHONS:])


@pytest.mark.parametrize("sweep", [NATIVE, CROSS], ids=lambda sweep: sweep.config)
def test_a_driver_killed_at_any_moment_leaves_nothing_that_a_plain_run_does_not_finish(
    repository: Path, tmp_path: Path, sweep: Sweep
) -> None:
    if sweep is CROSS and machine_platform() != "linux-64":
        pytest.skip("Debian's cross compilers run on x86-64")
    output = tmp_path / "output"  # of all runs: on the host its path is part of what is linked
    here = pythons_here(repository, sweep, output)
    state = output / f"{sweep.config}-rehearsal"
    pythons = [word for python in here for word in ("--python", python)]
    # half the time of each compile
    build = command(sweep.config, output, *sweep.options, "--optimization", "0", *pythons)

    def run(seconds: float | None = None) -> bool:
        """Run to the end, or kill after some seconds; return whether it still ran."""
        with subprocess.Popen(build, stdin=subprocess.DEVNULL, start_new_session=True) as process:
            try:
                assert process.wait(seconds) == 0
                return False
            except subprocess.TimeoutExpired:
                return True
            finally:
                process.kill()

    def finish() -> Mapping[str, object]:
        run()
        return published(output / "packages" / f"{sweep.config}-rehearsal")

    run()  # fills the caches
    shutil.rmtree(output)
    began = time.monotonic()
    expected = finish()
    duration = time.monotonic() - began
    assert len([name for name in expected if name.endswith(".conda")]) == 2 * (2 + PYTHONS)
    shutil.rmtree(output)

    chance = random.Random(int(os.environ.get("MEGABUILD_TEST_SEED", "20261121")))
    shares = [(number + chance.random()) / sweep.kills for number in range(sweep.kills)]
    killed = 0
    for number in range(sweep.folders):
        done = 0.0
        for share in shares[number :: sweep.folders]:
            killed += run((share - done) * duration)
            done = share
            assert wait_for(lambda: not strays(state), MERCY_SECONDS), f"killed at {share:.0%}"
        assert finish() == expected, f"killed at {shares[number :: sweep.folders]}"
        shutil.rmtree(output)
    assert killed >= sweep.kills * 8 // 10, (
        f"only {killed} runs were still going when they should have been killed"
    )
