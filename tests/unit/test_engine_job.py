"""How a worker's end is read from a folder to which builds write, too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from groundwork.errors import IntegrityError
from megabuild.engine.job import Outcome
from megabuild.engine.worker import write_outcome


def test_an_outcome_is_what_the_worker_wrote(tmp_path: Path) -> None:
    write_outcome(
        tmp_path / "outcome.json",
        {"ok": True, "kind": "", "message": "", "passed": ["a.conda"], "paths": {"work_dir": "/w"}},
    )
    outcome = Outcome.read(tmp_path / "outcome.json", 0)
    assert (outcome.ok, outcome.passed) == (True, ("a.conda",))
    assert Outcome.read(tmp_path / "absent.json", -9).kind == "killed"


@pytest.mark.parametrize(
    "kind", ["link", "pipe", "[]", "{}", "no JSON", '{"ok": 1, "kind": 1, "message": 1, "passed": 1}']
)
def test_what_no_worker_writes_is_not_believed(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "outcome.json"
    if kind == "link":
        path.symlink_to(tmp_path / "private")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_text(kind)
    with pytest.raises(IntegrityError):
        Outcome.read(path, 0)
