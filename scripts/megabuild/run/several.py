"""Several configs in one run, one after the other: a table of what they will take, and one of what became of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from groundwork.errors import Interrupted
from groundwork.result import Result
from groundwork.text import UNICODE, duration, size, table, wrapped
from megabuild.run.first_error import TOOLS

_HEADS = ("config", "build", "there", "CPU", "time", "disk", "downloads")
_MOST_REASON = 200


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a config will take, by its plan's document."""

    build: int = 0  #: packages
    there: int = 0
    cpu_hours: float = 0.0
    hours: float = 0.0
    disk_bytes: int = 0  #: at the peak
    download_bytes: int = 0
    files: Mapping[str, int] = field(
        default_factory=dict
    )  #: bytes of what is downloaded, by what it is known by

    @classmethod
    def of(cls, plan: Mapping[str, Any]) -> Figures:
        """Read a plan's document."""
        packages = [package["exists"] for package in plan["packages"]]
        for task in plan["extensions"]["tasks"]:
            packages += [task["exists"]] * len(task["file_names"])
        figures, build = plan["estimate"], packages.count(False)
        return cls(
            build=build,
            there=packages.count(True),
            cpu_hours=figures["cpu_hours"] + figures["extensions_cpu_hours"] if build else 0.0,
            hours=figures["hours"] + figures["extensions_hours"] if build else 0.0,
            disk_bytes=figures["disk_bytes"] if build else 0,
            download_bytes=sum(one["size"] for one in plan["downloads"]),
            files={name: octets for one in plan["downloads"] for name, octets in one["files"].items()},
        )

    def __add__(self, other: Figures) -> Figures:
        """Return both together; what both need is downloaded once."""
        numbers = self.numbers()
        twice = sum(min(octets, other.files.get(name, 0)) for name, octets in self.files.items())
        total = {name: value + getattr(other, name) for name, value in numbers.items()}
        total["download_bytes"] -= twice
        return Figures(**total, files={**other.files, **self.files})

    def numbers(self) -> dict[str, Any]:
        """What scripts get."""
        return {name: value for name, value in vars(self).items() if name != "files"}

    def cells(self) -> tuple[str, ...]:
        """Its part of a row."""
        hours = tuple(duration(3600 * value) if value else "" for value in (self.cpu_hours, self.hours))
        sizes = tuple(size(value) if value else "" for value in (self.disk_bytes, self.download_bytes))
        return str(self.build), str(self.there), *hours, *sizes


@dataclass(kw_only=True)
class Attempt:
    """The outcome of one config: each has its own plan, log, result and errors."""

    config: str
    exit_code: int | None = None  #: None: not started
    seconds: float = 0.0
    log: str | None = None  #: of a run that came so far
    result: object = None  #: the document that it would have given alone
    plan: Figures | None = None  #: None: it cannot be planned

    def counts(self) -> dict[str, int]:
        """Return how many packages were built, were there, failed or are missing, and the bytes of those that exist."""
        rows = self._rows()
        states = [row.get("status") for row in rows]
        return {
            "built": states.count("built"),
            "there": states.count("skipped"),
            "failed": states.count("failed") + states.count("missing"),
            "bytes": sum(row.get("size", 0) for row in rows),
        }

    def _rows(self) -> list[dict[str, Any]]:
        document = self.result if isinstance(self.result, dict) else {}
        rows = document.get("packages", [])
        return [row for row in rows if "status" in row]  # those of a plan have none

    @property
    def reason(self) -> str:
        """Why it failed, in a line: file, line and message of the first error, where they are known."""
        document = self.result if isinstance(self.result, dict) else {}
        error = document.get("error")
        told: dict[str, Any] = error if isinstance(error, dict) else {"message": str(error or "")}
        failures: list[dict[str, Any]] = (
            [told["failure"]] if told.get("failure") else document.get("failures", [])
        )
        for failure in failures:
            place = f"{failure['file']}:{failure['line']}" if failure["line"] else failure["file"]
            if failure["kind"] in TOOLS and failure["file"]:
                return ": ".join(filter(None, (place, failure["message"])))[:_MOST_REASON]
        notes = (f"{row['name']}: {row['note']}" for row in self._rows() if row.get("note"))
        return str(told["message"] or next(notes, "")).partition("\n")[0][:_MOST_REASON]

    def to_dict(self) -> dict[str, object]:
        """What scripts get."""
        figures = self.plan.numbers() if self.plan else None
        return {**vars(self), "plan": figures, "packages": self.counts(), "reason": self.reason}

    def cells(self) -> tuple[str, ...]:
        """Its row of the closing table."""
        if self.exit_code is None:
            return self.config, *[""] * 5, "not started"
        found = self.counts()
        state = f"{UNICODE.failed} {self.reason} ({self.exit_code})" if self.exit_code else UNICODE.done
        numbers = (str(found[name]) for name in ("built", "there", "failed"))
        return (
            self.config,
            *numbers,
            size(found["bytes"]) if found["bytes"] else "",
            duration(self.seconds),
            state,
        )


def plan_table(attempts: Sequence[Attempt]) -> list[str]:
    """Return what all of them will take, and in all."""
    rows = [
        (one.config, *(one.plan.cells() if one.plan else (f"{UNICODE.failed} no plan", *[""] * 5)))
        for one in attempts
    ]
    total = total_of(attempts)
    return table(_HEADS, [*rows, ("together", *total.cells())], right=frozenset(range(1, 7)))


def total_of(attempts: Sequence[Attempt]) -> Figures:
    """Return the sum of all plans; of the disk, what all of them take if nothing is removed in between.

    What several of them would download counts once.
    """
    total = Figures()
    for one in attempts:
        total += one.plan or Figures()
    return total


def room_lines(attempts: Sequence[Attempt], free: int) -> list[str]:
    """Return what to say before the first of them, where they do not fit on the disk one beside the other."""
    needed = 0
    for one in attempts:
        needed += one.plan.disk_bytes if one.plan else 0
        if needed > free:
            return wrapped(
                f"{UNICODE.warning} with {one.config} they may take {size(needed)} together, {size(free)} are free: "
                "--remove-trees removes what each was compiled in once it is done; packages, logs and the object cache "
                "stay"
            )
    return []


def each(
    attempts: Sequence[Attempt], show: Callable[[Sequence[str]], None], attempt: Callable[[Attempt], int]
) -> int:
    """Try all configs; one that fails does not stop the others, Ctrl-C does.

    ``show`` takes a heading before each; ``attempt`` fills in log and result, and returns an exit code. Returns that of
    the first one that failed.
    """
    code = 0
    try:
        for number, one in enumerate(attempts, 1):
            if one.exit_code is not None:
                continue  # it cannot be planned, and has been told of
            show([*([""] if number > 1 else []), f"[{number}/{len(attempts)}] {one.config}"])
            began = time.monotonic()
            one.exit_code = attempt(one)
            one.seconds = round(time.monotonic() - began, 1)
            if one.exit_code == Interrupted.exit_code:
                break
    except KeyboardInterrupt:  # between two of them
        code = Interrupted.exit_code
    return next((one.exit_code for one in attempts if one.exit_code), code)


def closing(attempts: Sequence[Attempt], exit_code: int, *, planned: bool) -> Result:
    """Return what is said in the end: of plans alone what they would take, else what was made, and what went wrong."""
    heads = ("config", "built", "there", "failed", "size", "time", "")
    if planned:
        failed = [
            f"{UNICODE.failed} {one.config}: {one.reason}" for one in attempts if one.exit_code and one.reason
        ]
        lines = [*plan_table(attempts), *failed]
    else:
        lines = table(heads, [one.cells() for one in attempts], right=frozenset(range(1, 6)))
        total = sum(one.seconds for one in attempts)
        lines.append(
            f"{sum(one.exit_code == 0 for one in attempts)} of {len(attempts)} done in {duration(total)}"
        )
    logs = [f"  {one.log}" for one in attempts if one.log]
    return Result(
        format="runs",
        document={
            "configs": [one.to_dict() for one in attempts],
            "total": total_of(attempts).numbers(),
            "exit_code": exit_code,
        },
        lines=["", *lines, *(["", "logs:", *logs] if logs else [])],
        exit_code=exit_code,
    )
