"""contrib/slurm/build.sh submits jobs for the Pythons of the config."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from small_files import program

from megabuild.configs.config import load


@pytest.mark.parametrize("config", ["linux_64_cuda130", "linux_64_cpu_debian", "linux_64_cuda132_wheel"])
def test_every_python_of_the_config_has_a_job(config: str, repository: Path, tmp_path: Path) -> None:
    program(tmp_path / "bin" / "sbatch", f'echo "$PART: $PYTHONS: $*" >>{tmp_path}/jobs; echo 1')
    environ = {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "CONFIG": config,
        "OUTPUT": str(tmp_path / "output"),
    }
    script = repository / "contrib" / "slurm" / "build.sh"
    subprocess.run(["bash", script], cwd=repository, env=environ, check=True, stdout=subprocess.DEVNULL)
    pythons = load(repository, config).pythons
    ordered = ["3.12", *(python for python in pythons if python != "3.12")]
    first, second, _ = (tmp_path / "jobs").read_text().splitlines()
    assert first.startswith(f"libtorch: {' '.join(ordered)}: ")
    assert f"--array=1-{len(pythons) - 1} " in second


@pytest.mark.parametrize("code", [0, 1])
def test_a_job_waits_for_the_one_before_in_any_cluster(code: int, repository: Path, tmp_path: Path) -> None:
    """With --clusters, sbatch names the cluster after the job."""
    program(tmp_path / "bin/sbatch", f'echo "$*" >>{tmp_path}/jobs; echo "7;first"; exit {code}')
    environ = {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "CONFIG": "linux_64_cpu_debian",
        "OUTPUT": str(tmp_path / "output"),
    }
    script = repository / "contrib" / "slurm" / "build.sh"
    done = subprocess.run(
        ["bash", script, "--clusters=first"],
        cwd=repository, env=environ, check=False, capture_output=True, text=True,
    )  # fmt: skip
    jobs = (tmp_path / "jobs").read_text().splitlines()
    if code:
        assert (done.returncode, done.stdout, len(jobs)) == (1, "", 1)
    else:
        assert "the last job is 7. Logs" in done.stdout
        assert ["--dependency=afterok:7 --clusters=first " in job for job in jobs] == [False, True, True]


def test_pythons_that_cannot_be_told_submit_no_job(repository: Path, tmp_path: Path) -> None:
    program(tmp_path / "bin/sbatch", f"echo >{tmp_path}/submitted")
    program(tmp_path / "bin/grep", "cat >/dev/null; exit 2")
    environ = {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "CONFIG": "linux_64_cpu",
        "OUTPUT": str(tmp_path),
    }
    script = repository / "contrib" / "slurm" / "build.sh"
    assert subprocess.run(["bash", script], cwd=repository, env=environ).returncode != 0
    assert not (tmp_path / "submitted").exists()
