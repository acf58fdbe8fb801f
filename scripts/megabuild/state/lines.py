"""Where a run stands, as lines of text: what a terminal shows while it runs, a plain log each minute, and `status`.

Times count on from ``RunState.updated`` to ``now``, so the lines move between two events.
"""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Iterator, Sequence

from groundwork.run_state import Going, InFlight, RunState
from groundwork.text import UNICODE, duration, plain, size
from groundwork.wording import counted

_MOST_ROWS = 6
_LEAST_BAR, _MOST_BAR, _SMALL_BAR = 8, 30, 10
_MOST_NAME = 34
#: A range narrower than this share of what is left says nothing more than its middle.
_NARROW = 0.15
_WEEKDAY_AFTER = 20 * 3600.0
#: What CMake puts into the path of an object: ``CMakeFiles/torch_cpu.dir/__/aten/src/ATen/Context.cpp.o``.
_CMAKE = re.compile(r"(?:.*/)?CMakeFiles/[^/]+\.dir/(?:__/)*")
_TEST = "testing "
#: States of a run in which nothing is built yet.
_BEFORE = frozenset({"preparing", "checking"})
_ENDS = {"done": "done", "failed": "failed", "interrupted": "interrupted"}


def state_lines(state: RunState, width: int, now: float) -> list[str]:
    """Return the lines, none wider than ``width``: the whole run, what goes on, and what it takes."""
    if state.ended:
        # "interrupted" twice says no more than once
        rows = [_ended(state), *_sentence(state.error.removeprefix("interrupted"), width, first="  ")]
    else:
        rows = [_overall(state, width, now), *_rows(state, width, now)]
    rows.append(_fitting(_figures(state), width))
    return [_cut(row, width) for row in rows if row]


def heartbeat(state: RunState, now: float) -> str:
    """Return one line for a plain log: how far the run is, what goes on, and since when."""
    share = f"{_percent(state)} done" if state.left else ""
    left, ends = _left(state, now), _ends(state, now)
    parts = [*_going(state, now), ", ".join(filter(None, (share, left, ends)))]
    return "; ".join(part for part in parts if part)


def bar(share: float, width: int) -> str:
    """Return a bar that is full to a share, 0 to 1."""
    full = int(width * min(max(share, 0.0), 1.0))
    return UNICODE.full * full + UNICODE.empty * (width - full)


def _ended(state: RunState) -> str:
    return f"{state.config}: {_ENDS.get(state.status, state.status)} after {duration(state.updated - state.began)}"


def _sentence(text: str, width: int, *, first: str = "") -> list[str]:
    """Break a sentence into lines; of one that is very long, the first ones."""
    return textwrap.wrap(
        plain(text),
        width,
        initial_indent=first,
        subsequent_indent="  ",
        break_on_hyphens=False,
        max_lines=_MOST_ROWS,
        placeholder=UNICODE.cut,
    )


def _overall(state: RunState, width: int, now: float) -> str:
    """Return the line of the whole run: less of it where there is no room, the range first."""
    so_far = duration(now - state.began)
    if state.left is None:
        return f"{state.status if state.status in _BEFORE else 'building'}, {so_far} so far"
    done = _percent(state)
    begun = f"{state.status}, " if state.status in _BEFORE else ""
    choices = (
        (f"{so_far} so far", _left(state, now), _range(state, now), _ends(state, now)),
        (f"{so_far} so far", _left(state, now), _ends(state, now)),
        (_left(state, now), _ends(state, now)),
        (_left(state, now),),
    )
    least = _LEAST_BAR if width < 70 else _LEAST_BAR * 2
    for words_ in choices:
        text = f" {done}  {begun}{', '.join(filter(None, words_))}"
        if len(text) + least <= width:
            break
    return bar(state.left.done, min(_MOST_BAR, max(_LEAST_BAR, width - len(text)))) + text


def _percent(state: RunState) -> str:
    return f"{min(99, int(100 * state.left.done)) if state.left else 0} %"


def _left(state: RunState, now: float) -> str:
    return f"{duration(_passed(state, state.left.likely, now))} left" if state.left else ""


def _passed(state: RunState, seconds: float, now: float) -> float:
    """Return what is left now of seconds that were left when the state was written."""
    return max(0.0, seconds - max(0.0, now - state.updated))


def _wide(state: RunState) -> bool:
    left = state.left
    return left is not None and left.latest - left.earliest > max(60.0, _NARROW * left.likely)


def _range(state: RunState, now: float) -> str:
    """Return between what the time left lies, where that is not nearly the same."""
    if state.left is None or not _wide(state):
        return ""
    earliest, latest = (_passed(state, one, now) for one in (state.left.earliest, state.left.latest))
    return f"{duration(earliest)} to {duration(latest)}"


def _ends(state: RunState, now: float) -> str:
    """Return when it will be done by the clock: two times, where these are not nearly the same."""
    left = state.left
    if left is None:
        return ""
    seconds = (left.earliest, left.latest) if _wide(state) else (left.likely,)
    far = max(seconds) > _WEEKDAY_AFTER
    points = (time.localtime(max(now, state.updated + one)) for one in seconds)
    shown = list(dict.fromkeys(time.strftime("%a %H:%M" if far else "%H:%M", one) for one in points))
    return f"ends {' to '.join(shown)}"


def _going(state: RunState, now: float) -> Iterator[str]:
    """Give what goes on in full, for a log."""
    for one in state.going:
        yield f"{_heading(one, now)}{': ' + _objects(one.objects, 200, now) if one.objects else ''}"
    if not state.going:
        yield "waiting" if state.status == "building" else state.status


def _rows(state: RunState, width: int, now: float) -> list[str]:
    """Return the lines of what goes on; tests share one."""
    tests = [one for one in state.going if one.what.startswith(_TEST)]
    works = [one for one in state.going if one not in tests]
    most = _MOST_ROWS - bool(tests)
    rows = [_row(one, width, now) for one in works[:most]]
    if works[most:]:
        rows.append(f"and {', '.join(plain(one.task) for one in works[most:])}")
    if tests:
        names = (
            f"{plain(one.what.removeprefix(_TEST))}: {duration(max(0.0, now - one.since))}" for one in tests
        )
        rows.append(f"{_TEST}{', '.join(names)}")
    return rows


def _row(one: Going, width: int, now: float) -> str:
    heading = _heading(one, now, brief=bool(one.objects))
    if one.objects:
        return f"{heading}: {_objects(one.objects, width - len(heading) - 2, now)}"
    if one.total and len(heading) + _SMALL_BAR + 1 <= width:
        return f"{bar(one.done / one.total, _SMALL_BAR)} {heading}"
    return heading


def _heading(one: Going, now: float, *, brief: bool = False) -> str:
    """Return what goes on, how far, and for how long; ``brief`` where its objects say that."""
    what, went = plain(one.what), max(0.0, now - one.since)
    took = f"{', ' if ':' in what or one.total else ': '}{duration(went)}"
    if not one.total:
        return f"{what}{'' if brief else took}"
    octets = one.unit == "bytes"
    counts = f"{size(one.done)} of {size(one.total)}" if octets else f"{one.done}/{one.total}"
    if 0 < one.done < one.total and went > 1:
        took += f", {duration(went * (one.total - one.done) / one.done)} left"
    return f"{what} {counts}{'' if brief else took}"


def _objects(objects: Sequence[InFlight], room: int, now: float) -> str:
    """Return objects with the time that each has taken, as many as there is room for."""
    said: list[str] = []
    for number, one in enumerate(objects):
        took = duration(max(0.0, now - one.since))
        text = f"{_short(one.name, min(_MOST_NAME, room - len(took) - 5))} {took}"
        after = len(objects) - number - 1
        if said and len(", ".join([*said, text])) + (4 if after else 0) > room:
            return f"{', '.join(said)} +{len(objects) - number}"
        said.append(text)
    return ", ".join(said)


def _short(name: str, room: int) -> str:
    """Return an object as the source file that it is made from, with as many of its folders as fit."""
    room = max(room, 8)
    path = _CMAKE.sub("", plain(name)).removesuffix(".o")
    folders, _, shown = path.rpartition("/")
    for folder in reversed(folders.split("/")):
        if not folder or len(folder) + 1 + len(shown) > room:
            break
        shown = f"{folder}/{shown}"
    return shown if len(shown) <= room else UNICODE.cut + shown[1 - room :]


def _figures(state: RunState) -> list[str]:
    """Return what the run has and takes, the most telling first."""
    found = []
    if state.packages:
        there = sum(status in ("there", "published") for status in state.packages.values())
        found.append(f"{there} of {counted(len(state.packages), 'package')} published")
    if state.memory:
        most = f" of {size(state.memory_most)}" if state.memory_most else ""
        found.append(f"memory {size(state.memory)}{most}")
    if state.disk_free:
        found.append(f"disk {size(state.disk_free)} free")
    if asked := state.cache_hits + state.cache_misses:
        found.append(f"cache {state.cache_hits} of {asked}")
    if state.left is not None and state.cores and 0 < state.left.share < 0.9:
        found.append(f"{100 * state.left.share:.0f} % of {state.cores} cores are ours")
    return found


def _fitting(parts: Sequence[str], width: int) -> str:
    """Join parts, leaving the last ones out where they do not fit."""
    text = ""
    for part in parts:
        longer = f"{text}, {part}" if text else part
        if text and len(longer) > width:
            break
        text = longer
    return text


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + UNICODE.cut
