"""How good the time left is, and what is shipped of it: `python benchmarks/forecast.py COMMAND ...`.

events LOG > EVENTS              a run's log as tests/data/runs keeps it
replay EVENTS [EVENTS2]          what is said of a run: by what is shipped (debian-0, …), or learned from EVENTS
learn EVENTS STATE CACHE.json    what is learned of it, with the .ninja_log and the notes of its state folder
ship KIND KNOWN.json SOURCE      put what was learned (the cache's `forecast` folder has it) into shipped.json
"""

from __future__ import annotations

import datetime
import json
import re
import sys
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests/unit")]

import replaying  # noqa: E402

from groundwork import events, files  # noqa: E402
from groundwork.progress import Phases  # noqa: E402
from megabuild.engine import ninja_log  # noqa: E402
from megabuild.forecast import learning, shipped  # noqa: E402
from megabuild.forecast.known import Known  # noqa: E402
from megabuild.plan import object_memory  # noqa: E402

_LABEL = r"(?P<name>\S+) (?P<version>\S+)(?: py(?P<python>\S+))?"
_SENTENCES = {
    "script": re.compile(rf"{_LABEL}: build script began"),
    "built": re.compile(rf"\S {_LABEL}: built\b"),
    "tested": re.compile(rf"\S {_LABEL}: tested in"),
    "test": re.compile(rf"testing {_LABEL}"),
    "phase": re.compile(r"(?P<name>\S+)(?: (?P<python>[\d.]+t?))?: (?P<what>[a-zA-Z ]+)"),
}
_PHASES = {
    "trying the compiler": "toolchain",
    "environment": "staging",
    "unpacking the source": "sync",
    "Python side": "python",
    "taking the wheel apart": "split",
}


def _ran(log: str) -> dict[tuple[str, int], float]:
    """Return the seconds of every step by its output, and when it ended in thousandths: a step is run several times."""
    rows = (line.split("\t") for line in log.splitlines()[1:])
    return {(row[3], int(row[1])): (int(row[1]) - int(row[0])) / 1000 for row in rows}


def log_events(text: str, ran: dict[tuple[str, int], float]) -> list[str]:
    """Turn a run's log into lines; steps with what they took, where that is known."""
    phases, lines = Phases(), []
    began = at = 0.0
    tests: dict[str, float] = {}
    for line in text.splitlines():
        try:
            at = datetime.datetime.fromisoformat(line[:24].replace("Z", "+00:00")).timestamp()
        except ValueError:
            continue
        source, rest = line[25:41].strip(), line[42:]
        began = began or at
        fields: list[object] = []
        if source == "driver":
            fields = _sentence(rest, at, tests)
        elif not source.startswith("test:"):
            event = phases.feed(rest, "", "")
            if isinstance(event, events.Progress):
                took = ran.get((event.step_name, round(1000 * event.seconds)), "")
                fields = ["step", event.done, event.total, event.seconds, event.step_name, took]
        if fields:
            lines.append("\t".join(map(str, [round(at - began, 3), *fields])))
    return [*lines, f"{at - began:.3f}\tend"]


def _sentence(text: str, at: float, tests: dict[str, float]) -> list[object]:
    for word, pattern in _SENTENCES.items():
        if match := pattern.fullmatch(text) or (pattern.match(text) if word in ("built", "tested") else None):
            found = match.groupdict()
            label = " ".join(
                filter(
                    None, [found["name"], found.get("version"), found["python"] and f"py{found['python']}"]
                )
            )
            build = f"py{found['python'].replace('.', '')}" if found["python"] else ""
            if word == "phase":
                what = _PHASES.get(found["what"], found["what"])
                package = "staging" if found["name"] == "libtorch" else found["name"]
                return [word, what, package, found["python"] or ""]
            if word == "test":
                tests[label] = at
                return [word, label]
            if word == "tested":
                return [word, label, round(at - tests.pop(label), 1), True]
            return [word, found["name"], found["version"], f"x_{build}_0" if build else "x_0"]
    return []


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
    return learning.learned(
        before, played.forecast, compiled=compiled, logged=ninja_log.seconds(content or b"")
    )


def table(known: Known, source: str) -> shipped.Table:
    """Return a table of what was learned: steps of one folder, and of one kind of file, are taken together."""
    steps = {}
    for phase, names in known.order.items():
        groups: dict[str, list[float]] = {}
        for name in names:
            folder, _, file = name.rpartition("/")
            kind = "".join(file.partition(".")[1:])
            single = not name.endswith(".o")
            groups.setdefault(name if single else f"{folder}/*{kind}", []).append(known.steps[name])
        steps[phase] = [
            (group, len(times), round(sum(times) / len(times), 2)) for group, times in groups.items()
        ]
    return shipped.Table(
        source=source, phases={key: round(seconds, 1) for key, seconds in known.phases.items()}, steps=steps
    )


def main() -> None:
    """Do one of them."""
    command, *rest = sys.argv[1:]
    if command == "events":
        state = Path(rest[0])
        ran = (
            _ran((state / "tree/build/.ninja_log").read_text())
            if (state / "tree/build/.ninja_log").exists()
            else {}
        )
        lines = log_events((state / "logs/latest.log").read_text(), ran)
        for row in json.loads((state / "run.json").read_text())["time_left"]:
            lines.append(f"{row[0]}\tshare\t{row[5]}")
        print("\n".join(sorted(lines, key=lambda line: float(line.partition("\t")[0]))))
    elif command == "learn":
        Path(rest[2]).write_bytes(msgspec.json.encode(learn(Path(rest[0]), Path(rest[1]), Known())))
    elif command == "ship":
        known = msgspec.json.decode(Path(rest[1]).read_bytes(), type=Known)
        tables = {
            **(shipped.tables() if shipped.FILE.exists() else {}),
            rest[0]: table(known, rest[2]),
        }
        text = msgspec.json.format(msgspec.json.encode(tables), indent=1).decode() + "\n"
        shipped.FILE.write_text(re.sub(r"\[\s+(\"[^\"]+\"),\s+(\d+),\s+([\d.]+)\s+\]", r"[\1, \2, \3]", text))
    else:
        second = Path(rest[1]) if len(rest) > 1 else Path(rest[0])
        known = shipped.known(rest[0]) if not Path(rest[0]).is_file() else learn(Path(rest[0]), None, Known())
        replay(second, known)


if __name__ == "__main__":
    main()
