"""How good the time left is, and what is shipped of it: `python benchmarks/forecast.py COMMAND ...`.

events LOG > EVENTS              a run's log as tests/data/runs keeps it
replay EVENTS [EVENTS2]          what is said of a run: by what is shipped (debian-0, …), or learned from EVENTS
learn EVENTS STATE CACHE.json    what is learned of it, with the .ninja_log and the notes of its state folder
ship KIND KNOWN.json SOURCE      put what was learned (the cache's `forecast` folder has it) into shipped.json
"""

from __future__ import annotations

import datetime
import re
import sys
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests/unit")]

import replaying  # noqa: E402

from groundwork import events, files  # noqa: E402
from groundwork.progress import Phases  # noqa: E402
from megabuild.forecast import learning, ninja_log, shipped  # noqa: E402
from megabuild.forecast.known import Known  # noqa: E402
from megabuild.plan import object_memory  # noqa: E402

_PACKAGE = re.compile(r"name='([^']*)', version='([^']*)', build_string='([^']*)'")
_WORDS = {"PackageStarted": "script", "PackageBuilt": "built"}


def log_events(text: str) -> list[str]:
    """Turn a run's log into lines."""
    phases, lines, began = Phases(), [], 0.0
    for line in text.splitlines():
        when, source, rest = line[:24], line[25:41].strip(), line[42:]
        try:
            at = datetime.datetime.fromisoformat(when.replace("Z", "+00:00")).timestamp()
        except ValueError:
            continue
        began = began or at
        fields: list[object] = []
        if source == "driver":
            name = rest.partition("(")[0]
            values = dict(re.findall(r"(\w+)='([^']*)'", rest))
            if name == "PhaseStarted" and values.get("phase") != "normalise":
                fields = ["phase", values["phase"], values["package"], values["python"]]
            elif name in _WORDS and (package := _PACKAGE.search(rest)):
                fields = [_WORDS[name], *package.groups()]
            elif name == "TestRun":
                fields = ["test", values["name"]]
            elif name == "TestEnded":
                seconds = re.search(r"seconds=([\d.]+)", rest)
                fields = ["tested", values["name"], seconds[1] if seconds else 0, "passed=True" in rest]
        elif not source.startswith("test:"):
            event = phases.feed(rest, "", "")
            if isinstance(event, events.Progress):
                fields = ["step", event.done, event.total, event.seconds, event.step_name]
        if fields:
            lines.append("\t".join(map(str, [round(at - began, 3), *fields])))
    lines.append(f"{at - began:.3f}\tend")
    return lines


def replay(path: Path, known: Known, jobs: int = 2, cores: int = 2) -> None:
    """Print what is said at every tenth."""
    happened = replaying.read(path)
    played = replaying.play(happened, replaying.outline(happened, jobs=jobs, cores=cores), known)
    print("done  said (earliest to latest)  true  said/true")
    for share in (0.01, *(tenth / 10 for tenth in range(1, 10)), 0.25, 0.75):
        try:
            true, said = played.at(share)
        except StopIteration:
            continue
        inside = "" if said.earliest <= true <= said.latest else "  outside"
        print(
            f"{share:4.0%} {said.likely:7.0f} s ({said.earliest:6.0f} to {said.latest:6.0f}) {true:7.0f} s"
            f" {said.likely / true:6.2f}{inside}"
        )


def learn(path: Path, state: Path | None, before: Known) -> Known:
    """Return what a run teaches."""
    happened = replaying.read(path)
    played = replaying.play(happened, replaying.outline(happened), before)
    compiled = (
        {one.name: one.cpu_seconds for one in object_memory.noted(state) if one.cpu_seconds} if state else {}
    )
    content = files.read_untrusted(state / "tree/build/.ninja_log") if state else None
    return learning.learned(before, played.forecast, compiled=compiled, logged=ninja_log.read(content or b""))


def main() -> None:
    """Do one of them."""
    command, *rest = sys.argv[1:]
    if command == "events":
        print("\n".join(log_events(Path(rest[0]).read_text())))
    elif command == "learn":
        Path(rest[2]).write_bytes(msgspec.json.encode(learn(Path(rest[0]), Path(rest[1]), Known())))
    elif command == "ship":
        known = msgspec.json.decode(Path(rest[1]).read_bytes(), type=Known)
        tables = {
            **(shipped.tables() if shipped.FILE.exists() else {}),
            rest[0]: shipped.table(known, rest[2]),
        }
        text = msgspec.json.format(msgspec.json.encode(tables), indent=1).decode() + "\n"
        shipped.FILE.write_text(re.sub(r"\[\s+(\"[^\"]+\"),\s+(\d+),\s+([\d.]+)\s+\]", r"[\1, \2, \3]", text))
    else:
        second = Path(rest[1]) if len(rest) > 1 else Path(rest[0])
        known = shipped.known(rest[0]) if not Path(rest[0]).exists() else learn(Path(rest[0]), None, Known())
        replay(second, known)


if __name__ == "__main__":
    main()
