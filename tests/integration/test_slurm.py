"""contrib/slurm/build.sh on a real Slurm of three nodes; a stub stands in for the builds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from slurm_cluster import cluster
from tiny import wait_for

_SECONDS = 90.0


@pytest.fixture(scope="module")
def slurm() -> Iterator[Mapping[str, str]]:
    with cluster() as environment:
        yield environment


@dataclass
class Submission:
    """A checkout whose builds a test controls."""

    checkout: Path
    slurm: Mapping[str, str]

    def end(self, name: str, *codes: int) -> None:
        """Say how a build ends, turn by turn."""
        (self.checkout / "codes" / name).write_text(" ".join(map(str, codes)))

    def submit(self, **settings: str) -> None:
        """Run the script."""
        asked = {"CONFIG": "config", "PYTHONS": "3.13 3.11 3.12", "OPTIONS": "--rehearse", "MINUTES": "2",
                 "CPUS": "1", "MEMORY": "100M", "REQUEUES": "1", **settings}  # fmt: skip
        script = Path(__file__).parents[2] / "contrib" / "slurm" / "build.sh"
        environ = {**os.environ, **self.slurm, **asked}
        subprocess.run(["bash", script], cwd=self.checkout, env=environ, check=True)

    def wait(self, *, for_calls: int | None = None) -> None:
        """Wait until all jobs have left the queue, or for so many builds to begin."""
        asked = (lambda: not self.queue()) if for_calls is None else (lambda: len(self.calls()) == for_calls)
        assert wait_for(asked, _SECONDS), self.queue()

    def queue(self) -> str:
        environ = {**os.environ, **self.slurm}
        return subprocess.run(
            ["squeue", "--noheader"], env=environ, capture_output=True, text=True, check=True
        ).stdout

    def calls(self) -> list[dict[str, object]]:
        """Return how builds were called, in order."""
        noted = self.checkout / "calls"
        return [json.loads(line) for line in noted.read_text().splitlines()] if noted.exists() else []


@pytest.fixture
def submission(
    slurm: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Submission]:
    for name in ("MEGABUILD_STORE", "MEGABUILD_STORE_WRITES", "CPU_COUNT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "codes").mkdir()
    shutil.copy(Path(__file__).with_name("stub_build.py"), tmp_path / "build-locally.py")
    yield Submission(tmp_path, slurm)
    subprocess.run(["scancel", "--user=root"], env={**os.environ, **slurm}, check=True)


def test_each_build_begins_after_those_that_it_needs_and_a_deadline_is_continued(
    submission: Submission,
) -> None:
    submission.end("py3.13", 28, 0)
    waits = submission.checkout / "codes" / "py3.12.wait"
    waits.touch()
    submission.submit()
    submission.wait(for_calls=4)
    time.sleep(2)
    assert len(submission.calls()) == 4, "the last job waits for every Python"
    waits.unlink()
    submission.wait()
    calls = submission.calls()
    names = [call["name"] for call in calls]
    assert names[:2] == ["py3.13", "py3.13"]
    assert sorted(map(str, names[2:4])) == ["py3.11", "py3.12"]
    assert names[4:] == ["output"]
    output = submission.checkout / "output"
    for call in calls:
        assert call["environment"] == {
            "CPU_COUNT": "1", "MEGABUILD_STORE": f"{output}/store", "MEGABUILD_STORE_WRITES": "1",
        }  # fmt: skip
    libtorch = f"config -p 3.13 --pyg none --remove-trees --output {output}/slurm/py3.13".split()
    assert calls[0]["words"] == [*libtorch, "--rehearse", "--deadline", "108s"]
    assert calls[-1]["words"] == ["config", "--output", str(output), "--rehearse", "--deadline", "108s"]
    (log,) = output.glob("slurm/config-libtorch-*.log")
    assert "ended with 28" in log.read_text()
    assert log.read_text().rstrip().endswith("ended with 0")


@pytest.mark.parametrize(("codes", "begun"), [((28, 28, 0), 2), ((8,), 1)])
def test_without_libtorch_no_other_job_begins(
    submission: Submission, codes: tuple[int, ...], begun: int
) -> None:
    submission.end("py3.13", *codes)
    submission.submit()
    submission.wait()
    assert [call["name"] for call in submission.calls()] == ["py3.13"] * begun
