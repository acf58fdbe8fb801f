"""What a command returns is printed in one place."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from command_line.run_command import Invocation, outcome
from groundwork.result import Result

RESULT = Result(format="slim", document={"freed": 3}, lines=["✓ done", "\x07bell"], exit_code=14)


def test_people_read_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert outcome(lambda: RESULT, Invocation(tmp_path)) == 14
    assert capsys.readouterr().out.splitlines() == ["✓ done", "?bell"]


def test_scripts_read_a_document_that_names_its_format(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert outcome(lambda: RESULT, Invocation(tmp_path, json=True)) == 14
    expected = {"format": "megabuild/slim", "format_version": 1, "freed": 3}
    assert json.loads(capsys.readouterr().out) == expected


def test_signs_are_those_that_the_stream_takes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    taken = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(taken, encoding="ascii"))
    outcome(lambda: RESULT, Invocation(tmp_path))
    assert taken.getvalue().startswith(b"+ done\n")
