"""Asking all sources at once: whatever becomes of one, the others' answers are there, in bounded time."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from audit_site import request, services
from import_path import packages_path

from groundwork.errors import AuditError
from pin_audit import run_sources
from pin_audit.facts import SourceOutcome
from pin_audit.request import AuditRequest
from pin_audit.run_sources import READERS, gather

_FIRST_CONVERSION = """
import sys, threading
sys.setswitchinterval(1e-6)
import msgspec
from pin_audit.snapshots import Snapshot
start = threading.Event()

def convert():
    start.wait()
    msgspec.convert({"package": "a", "version": "1", "made": "", "sources": []}, Snapshot)

threads = [threading.Thread(target=convert) for _ in range(8)]
for thread in threads:
    thread.start()
start.set()
for thread in threads:
    thread.join()
"""


def ask(folder: Path, seconds: float = 30.0) -> AuditRequest:
    return request(services(folder, seconds=seconds))


def fine(request: AuditRequest) -> SourceOutcome:
    return SourceOutcome(source="fine")


def test_a_source_that_raises_is_an_outcome_and_the_rest_stands(tmp_path: Path) -> None:
    def refused(request: AuditRequest) -> SourceOutcome:
        raise AuditError("no answer")

    def broken(request: AuditRequest) -> SourceOutcome:
        raise ZeroDivisionError("oh")

    (found,) = gather([ask(tmp_path)], {"fine": fine, "refused": refused, "broken": broken})
    troubles = [(one.source, one.trouble.removeprefix("unexpected ")) for one in found]
    assert troubles == [("fine", ""), ("refused", "no answer"), ("broken", "ZeroDivisionError: oh")]


def test_a_source_that_never_ends_does_not_hold_up_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_sources, "_GRACE", 0.1)
    forever = threading.Event()

    def hangs(request: AuditRequest) -> SourceOutcome:
        forever.wait()
        return SourceOutcome(source="hangs")

    began = time.monotonic()
    (found,) = gather([ask(tmp_path, seconds=0.2)], {"hangs": hangs, "fine": fine})
    assert time.monotonic() - began < 10
    late, other = found
    assert ("--timeout" in late.trouble, other.trouble) == (True, "")
    forever.set()


def test_every_source_of_the_list_has_a_module() -> None:
    folder = Path(__file__).parents[2] / "src" / "pin_audit" / "sources"
    modules = {read.__module__.rpartition(".")[2] for read in READERS.values()}
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == modules
    assert len(set(READERS.values())) == len(READERS)


def test_first_conversion_in_many_threads(repository: Path) -> None:
    """Without types that were resolved before, half of these processes die of a segmentation fault."""
    environ = {"PYTHONPATH": packages_path(repository)}
    command = [sys.executable, "-c", _FIRST_CONVERSION]
    codes = [subprocess.run(command, env=environ, check=False).returncode for _ in range(4)]
    assert codes == [0] * 4
