"""``kill -9`` of the driver at ten moments of two rehearsals, each of which a plain run finishes in the end.

Moments are random, one in each tenth of an undisturbed run's duration; MEGABUILD_TEST_SEED gives others. The run that
goes on after a kill is killed as well: two folders share the ten moments, and a run that goes on begins where the one
before it was killed.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from package_files import published
from rehearsing import command
from tiny import wait_for

from megabuild.configs.config import load
from megabuild.engine.supervisor import strays
from megabuild.providers.local.interpreters import find

CONFIG = "linux_64_cpu"
PYTHONS = 2
KILLS = 10
FOLDERS = 2
#: How long after the driver's death its compilers and tests may live on.
MERCY_SECONDS = 10.0

pytestmark = pytest.mark.long  # test_attack_tiny kills as well, in seconds


def test_a_driver_killed_at_any_moment_leaves_nothing_that_a_plain_run_does_not_finish(
    repository: Path, tmp_path: Path
) -> None:
    here = [python for python in load(repository, CONFIG).pythons if python in find(print)]
    if len(here) < PYTHONS:
        pytest.skip(f"needs {PYTHONS} Pythons of the config, found {here}")
    output = tmp_path / "output"  # of all runs: on the host its path is part of what is linked
    state = output / f"{CONFIG}-rehearsal"
    pythons = [word for python in here[-PYTHONS:] for word in ("--python", python)]
    # half the time of each compile
    build = command(CONFIG, output, "--engine", "host", "--optimization", "0", *pythons)

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
        return published(output / "packages" / f"{CONFIG}-rehearsal")

    run()  # fills the caches
    shutil.rmtree(output)
    began = time.monotonic()
    expected = finish()
    duration = time.monotonic() - began
    assert len([name for name in expected if name.endswith(".conda")]) == 2 * (2 + PYTHONS)
    shutil.rmtree(output)

    chance = random.Random(int(os.environ.get("MEGABUILD_TEST_SEED", "20261121")))
    shares = [(number + chance.random()) / KILLS for number in range(KILLS)]
    killed = 0
    for number in range(FOLDERS):
        done = 0.0
        for share in shares[number::FOLDERS]:
            killed += run((share - done) * duration)
            done = share
            assert wait_for(lambda: not strays(state), MERCY_SECONDS), f"killed at {share:.0%}"
        assert finish() == expected, f"killed at {shares[number::FOLDERS]}"
        shutil.rmtree(output)
    assert killed >= KILLS - 2, f"only {killed} runs were still going when they should have been killed"
