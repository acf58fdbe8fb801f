"""What upstream's CI builds and tests with, read from its tree by the rules of ``ci_pins.yaml``."""

from __future__ import annotations

from megabuild.audit import rules
from megabuild.audit.model import Kind, Outcome
from megabuild.audit.request import Request
from megabuild.audit.tree_values import Reading
from megabuild.errors import AuditError

SOURCE = "ci_pins"


def read(request: Request) -> Outcome:
    """Return a finding for every value, and one with trouble for every rule that no longer fits upstream's tree."""
    try:
        known = rules.load()
        reading = Reading(request, known)
        return reading.outcome(SOURCE, Kind.CI_PIN, known.pins)
    except AuditError as error:
        return Outcome(source=SOURCE, trouble=error.message)
