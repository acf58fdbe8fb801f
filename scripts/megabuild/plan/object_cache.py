"""Whether what a run compiles will be found again by the next: in a sentence for the plan."""

from __future__ import annotations

import os
import shutil

from groundwork.errors import IsolationError
from megabuild.plan.plan import Plan

PROGRAM = "ccache"
#: Names another program in its place; one that does not exist switches the cache off.
VARIABLE = "TORCH_CCACHE"


def lacking(plan: Plan) -> str:
    """Return why there is no object cache where something is compiled; empty where there is one, or nobody can know."""
    if not plan.compiles or not plan.options.own or isinstance(plan.isolation, IsolationError):
        return ""
    here, root = plan.isolation.name == "host", plan.environment.root
    named = os.environ.get(VARIABLE, "")
    if named:
        return f"{VARIABLE}={named} switches it off" if here and not shutil.which(named) else ""
    if root is not None:
        made = (root / "usr").is_dir()  # else it will be, with the cache in it
        return (
            f"there is no {PROGRAM} in {root}" if made and not (root / "usr/bin" / PROGRAM).exists() else ""
        )
    if plan.environment.local and here and not shutil.which(PROGRAM):
        return f"{PROGRAM} is not installed"
    return ""
