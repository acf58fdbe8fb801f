"""The GPU architectures that upstream's wheels are built for, per CUDA version and platform."""

from __future__ import annotations

import re

from megabuild.audit.archs import split
from megabuild.audit.ci_rules import ARCH_LISTS
from megabuild.audit.facts import Outcome, UpstreamArchs
from megabuild.audit.request import Request
from megabuild.audit.sources.ci_pins import no_rule, said


def read(request: Request) -> Outcome:
    """Return the list of every CUDA version; a sentence where upstream has none of its own."""
    facts = []
    for value, known in said(request, ARCH_LISTS):
        # as in TORCH_CUDA_ARCH_LIST: 120+PTX is 12.0+PTX
        dotted = (re.sub(r"^(\d+)(\d)(?=\+|$)", r"\1.\2", number) for number in value.split(", "))
        archs = split(", ".join(dotted))
        facts.append(UpstreamArchs(archs=archs, value="" if archs else value, **known))
    trouble = no_rule(request, ARCH_LISTS)
    return Outcome(source="upstream_archs", facts=tuple(facts), trouble=trouble, applies=not trouble)
