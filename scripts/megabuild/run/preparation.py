"""Before a build: what its plan had left to be downloaded, packed or unpacked, and what that changes in the plan."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from groundwork.notes import Notes
from megabuild.plan.plan import Plan
from megabuild.plan.report import staging_sentence

#: Makes the plan once more, with everything that it needs; takes what is told on the way, from any thread.
Prepare = Callable[[Notes], Plan]
_SECONDS = 1.0
_MOST = 5


@contextlib.contextmanager
def ticking(tick: Callable[[], None], seconds: float = _SECONDS) -> Iterator[None]:
    """Have something called now and then, in a thread, while this one is busy or waits."""
    over = threading.Event()

    def go() -> None:
        while not over.wait(seconds):
            with contextlib.suppress(OSError):  # a full disk ends the run where it stops it
                tick()

    thread = threading.Thread(target=go, name="ticking", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def changes(before: Plan, after: Plan) -> list[str]:
    """Say what of a plan is otherwise than what was shown before the preparation."""
    was, now = ({item.package.file_name: item for item in plan.all_items} for plan in (before, after))
    label = {name: item.package.id.label for name, item in {**was, **now}.items()}
    found = [
        f"{label[name]} is {'there' if item.exists else 'built'}"
        for name, item in now.items()
        if name in was and was[name].exists != item.exists
    ]
    new = {label[name] for name in now.keys() - was.keys()}
    gone = {label[name] for name in was.keys() - now.keys()}
    # the same package under another build string is no news
    found += [f"{name} comes in" for name in sorted(new - gone)]
    found += [f"{name} falls out" for name in sorted(gone - new)]
    found += [
        f"Python {python} is left out: {why}"
        for python, why in after.left_out.items()
        if python not in before.left_out
    ]
    if after.missing and after.stages and after.staging_decision != before.staging_decision:
        found.append(staging_sentence(after))
    found += [note for note in after.notes if note not in before.notes]
    return shortened(found)


def shortened(found: Sequence[str]) -> list[str]:
    """Return a few of many."""
    more = len(found) - _MOST
    return [*found[:_MOST], *([f"and {more} more"] if more > 0 else [])]
