"""What `megabuild clean` says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from groundwork.result import Result
from groundwork.text import duration, size, table, wrapped
from groundwork.wording import counted, plain
from megabuild.cleaning.clean import Cleaned
from megabuild.cleaning.kinds import KINDS
from megabuild.cleaning.survey import Item, freed

_DAY = 86400.0
_MOST_OWNER = 34
#: A plan shows each of so many reasons why something stays.
_MOST_REASONS = 8


def plan_result(items: Sequence[Item], chosen: Sequence[Item], command: str) -> Result:
    """Return what there is, what would go, and what that costs."""
    lines = [*_table(items, chosen), "", f"removing all of it would free {size(freed(items))}"]
    if not items:
        lines = ["nothing is left here by builds"]
    elif not chosen:
        lines += ["nothing of it has expired; --kind and --older choose"]
    else:
        lines += [f"{counted(len(chosen), 'thing')} would go, which frees {size(freed(chosen))}"]
        lines += _costs(chosen)
        lines += ["", "to remove it:", f"  {command}"]
    return _result(items, chosen, None, lines)


def clean_result(items: Sequence[Item], chosen: Sequence[Item], done: Cleaned) -> Result:
    """Return what was removed, and what stays although it was chosen."""
    lines = [f"removed {counted(len(done.removed), 'thing')}, which frees {size(freed(done.removed))}"]
    reasons = [f"{path}: {why}" for path, why in done.kept.items()]
    lines += [f"kept {plain(one)}" for one in reasons[:_MOST_REASONS]]
    if reasons[_MOST_REASONS:]:
        lines.append(f"and {len(reasons) - _MOST_REASONS} more")
    return _result(items, chosen, done, lines)


def _table(items: Sequence[Item], chosen: Sequence[Item]) -> list[str]:
    """Return a row for everything of one kind and owner, the largest kinds first."""
    places = list(KINDS)
    ordered = sorted(items, key=lambda one: (places.index(one.kind.name), _owner(one)))
    goes = {one.path for one in chosen}
    rows = []
    for (kind, owner), found in groupby(ordered, lambda one: (one.kind.name, _owner(one))):
        group = list(found)
        going = sum(one.path in goes for one in group)
        used = min(one.age for one in group), max(one.age for one in group)
        rows.append(
            (
                kind,
                plain(owner if len(owner) <= _MOST_OWNER else f"{owner[: _MOST_OWNER - 1]}…"),
                size(sum(one.measure.size for one in group)),
                _days(*used),
                "" if not going else "goes" if going == len(group) else f"{going} go",
            )
        )
    return table(("kind", "of", "size", "unused for", ""), rows, right=frozenset({2, 3}))


def _owner(item: Item) -> str:
    """Return the run that something belongs to, where kinds belong to runs; the rest is told together."""
    return (
        item.owner if item.lock == "run" or item.kind.name in ("objects", "engine-packages", "debian") else ""
    )


def _days(least: float, most: float) -> str:
    low, high = int(least // _DAY), int(most // _DAY)
    return f"{low} d" if low == high else f"{low} to {high} d"


def _costs(chosen: Sequence[Item]) -> list[str]:
    """Return by kind what the next run pays."""
    lines = []
    for kind in KINDS.values():
        of_kind = [item for item in chosen if item.kind is kind]
        if not of_kind:
            continue
        took = max(item.seconds for item in of_kind)
        took_said = f" (the last compile took {duration(took)})" if took else ""
        needed = sorted({run for item in of_kind for run in item.needed_by})
        by = f"; needed by what was built of {', '.join(needed)}" if needed else ""
        lines += wrapped(plain(f"{kind.name}: {kind.costs}{took_said}{by}"), first="  ", rest="    ")
    return lines


def _result(
    items: Sequence[Item], chosen: Sequence[Item], done: Cleaned | None, lines: Sequence[str]
) -> Result:
    goes = {item.path for item in chosen}
    gone = {item.path for item in done.removed} if done else set[Path]()
    kept = done.kept if done else {}
    return Result(
        format="clean",
        document={
            "applied": done is not None,
            "items": [
                {
                    "kind": item.kind.name,
                    "path": str(item.path),
                    "owner": item.owner,
                    "bytes": item.measure.size,
                    "age_seconds": round(item.age),
                    "expired": item.expired,
                    "chosen": item.path in goes,
                    "removed": item.path in gone,
                    "kept_because": kept.get(item.path, "") or item.measure.trouble,
                    "needed_by": list(item.needed_by),
                    "costs": item.kind.costs,
                    "costs_seconds": item.seconds or None,
                }
                for item in items
            ],
            "freed_bytes": freed(done.removed if done else chosen),
        },
        lines=lines,
    )
