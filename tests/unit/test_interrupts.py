"""Deadlines: their notation and their effect."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psutil
import pytest
from calling import call

from command_line.run_command import Invocation
from groundwork.errors import UsageError
from groundwork.interrupts import parse_deadline


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5h30m", 19_800), ("5m", 300), ("90m", 5_400), ("90min", 5_400), ("3600s", 3_600), ("1.5h", 5_400),
     ("1h0m10s", 3_610), (" 2H ", 7_200)],
)  # fmt: skip
def test_a_duration_counts_from_the_start_of_the_process(
    text: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: time.time() - 10)
    assert parse_deadline(text).left == pytest.approx(seconds - min(60, seconds / 10) - 10, abs=1.0)


@pytest.mark.parametrize(
    "text", ["", "h", "5 hours", "-5m", "5h30", "1e9", "30m5h", "nan", "0m", "99999999h", "1" * 400 + "s"]
)
def test_a_malformed_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a duration"):
        parse_deadline(text)


def test_all_configs_share_the_deadline(
    invocation: Invocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: time.time() - 3600)
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    words = ["build", "linux_64_cpu", "linux_64_cuda130", "--deadline", "30m", "-o", str(tmp_path), "--json"]
    done = call(invocation, *words)
    configs = json.loads(done.stdout)["configs"]
    assert [one["exit_code"] for one in configs] == [28, 28]
    message = configs[0]["result"]["error"]["message"]
    assert ("before preparing" in message, message.endswith(" linux_64_cpu")) == (True, True)
