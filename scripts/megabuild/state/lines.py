"""Where a run stands, as lines of text."""

from __future__ import annotations

from groundwork.run_state import RunState
from groundwork.text import duration, size
from groundwork.wording import plain


def state_lines(state: RunState, width: int, now: float) -> list[str]:
    """Return the lines, none wider than ``width``: the whole run, what goes on, and what it takes."""
    if state.ended:
        lines = [f"{state.config}: {state.status} after {duration(state.updated - state.began)}", state.error]
    else:
        lines = [
            f"{state.status}, {duration(now - state.began)} so far{': ' if state.note else ''}{state.note}"
        ]
        for one in state.going:
            count = f" {one.done}/{one.total}" if one.total else ""
            lines.append(f"{one.what}{count}, {duration(max(0.0, now - one.since))}")
            lines += [f"  {each.name} {duration(max(0.0, now - each.since))}" for each in one.objects[:4]]
    lines.append(f"memory {size(state.memory)}, disk {size(state.disk_free)} free")
    return [plain(line)[:width] for line in lines if line]
