"""How a worker's end is read from a folder to which builds write, too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from groundwork.errors import IntegrityError
from megabuild.engine.job import Outcome


@pytest.mark.parametrize(
    "kind", ["link", "pipe", "[]", "{}", "no JSON", '{"ok": 1, "kind": 1, "message": 1, "passed": 1}']
)
def test_what_no_worker_writes_is_not_believed(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "outcome.json"
    assert Outcome.read(path, -9).kind == "killed", "without a file"
    if kind == "link":
        path.symlink_to(tmp_path / "private")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_text(kind)
    with pytest.raises(IntegrityError):
        Outcome.read(path, 0)
