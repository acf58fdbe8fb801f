"""Asking all sources at once: whatever becomes of one, the others' answers are there, in bounded time."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

from audit_samples import target

from groundwork.errors import AuditError
from pin_audit.facts import SourceOutcome
from pin_audit.repositories import Repository
from pin_audit.request import AuditRequest
from pin_audit.run_sources import SOURCES, gather, sources
from pin_audit.services import Services


def no_tree() -> Repository:
    raise AuditError("no tree here")


def ask(folder: Path, package: str = "pytorch", seconds: float = 30.0) -> AuditRequest:
    services = Services(folder, seconds=seconds)
    return AuditRequest(
        target=target(package), services=services, repository=no_tree, configs=(), root=folder
    )


def fine(request: AuditRequest) -> SourceOutcome:
    return SourceOutcome(source="fine")


def test_a_source_that_raises_is_an_outcome_and_the_rest_stands(tmp_path: Path) -> None:
    def refused(request: AuditRequest) -> SourceOutcome:
        raise AuditError("the server refuses")

    def broken(request: AuditRequest) -> SourceOutcome:
        raise ZeroDivisionError("oh")

    found = gather([ask(tmp_path)], {"fine": fine, "refused": refused, "broken": broken})
    assert [(one.source, one.trouble) for one in found["pytorch"]] == [
        ("fine", ""),
        ("refused", "the server refuses"),
        ("broken", "unexpected ZeroDivisionError: oh"),
    ]


def test_a_source_that_never_ends_does_not_hold_up_the_others(tmp_path: Path) -> None:
    forever = threading.Event()

    def hangs(request: AuditRequest) -> SourceOutcome:
        forever.wait()
        return SourceOutcome(source="hangs")

    began = time.monotonic()
    found = gather([ask(tmp_path, seconds=0.2)], {"hangs": hangs, "fine": fine})
    assert time.monotonic() - began < 10
    assert [one.trouble for one in found["pytorch"]] == ["not finished within the time limit (--timeout)", ""]
    forever.set()


def test_sources_are_asked_at_the_same_time(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=20)

    def meets(request: AuditRequest) -> SourceOutcome:
        both.wait()
        return SourceOutcome(source="meets")

    found = gather([ask(tmp_path, "pytorch"), ask(tmp_path, "pyg-lib")], {"meets": meets})
    assert [one.trouble for outcomes in found.values() for one in outcomes] == ["", ""]


def test_what_begins_is_reported(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    services = Services(tmp_path, report=lambda source, text: told.append((source, text)))
    gather([replace(ask(tmp_path), services=services)], {"fine": fine})
    assert told == [("fine", "pytorch: fine")]


def test_every_source_of_the_list_has_a_module() -> None:
    assert set(sources()) == set(SOURCES)
    folder = Path(__file__).parents[2] / "scripts" / "pin_audit" / "sources"
    modules = {read.__module__.rpartition(".")[2] for read in sources().values()}
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == modules
    assert len(set(sources().values())) == len(SOURCES)
