"""The GPU architectures that upstream's wheels are built for, per CUDA version and platform."""

from __future__ import annotations

from megabuild.audit import rules
from megabuild.audit.model import Kind, Outcome
from megabuild.audit.request import Request
from megabuild.audit.tree_values import Reading
from megabuild.errors import AuditError

SOURCE = "upstream_archs"


def read(request: Request) -> Outcome:
    """Return the list of every CUDA version, as in ``TORCH_CUDA_ARCH_LIST``: ``7.5;8.0;12.0+PTX``."""
    try:
        known = rules.load()
        reading = Reading(request, known)
        return reading.outcome(SOURCE, Kind.UPSTREAM_ARCHS, known.arch_lists)
    except AuditError as error:
        return Outcome(source=SOURCE, trouble=error.message)
