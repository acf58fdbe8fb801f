"""What a person sees of failed builds: the line that explains the failure, the right headline, the right verdict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from groundwork.text import plain
from megabuild.engine.job import Outcome, OutcomeKind
from megabuild.run.failure import Failure

TABLES = Path(__file__).resolve().parent.parent / "data" / "failures" / "tools"
RESOURCES = ("memory", "disk", "killed")


class Log(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A log, as tests/data/failures/README.md describes."""

    log: str
    decisive: str
    kind: str
    message: str
    file: str = ""
    line: int = 0
    resource: str = ""
    made: str = "run"

    def failure(self, state: Path, *, short: bool) -> Failure:
        return Failure(
            outcome=Outcome(ok=False, kind=OutcomeKind.BUILD, message="Script failed with status 1", returncode=1),
            lines=[plain(line) for line in self.log.rstrip("\n").split("\n")],
            what="build of demo", jobs=2, state=state, short=short,
        )  # fmt: skip

    def is_visible(self, state: Path) -> bool:
        return any(
            self.decisive in line for line in str(self.failure(state, short=False).error()).splitlines()
        )

    def is_right(self, state: Path) -> bool:
        first = self.failure(state, short=False).first
        if first is None or not first.message.startswith(self.message):
            return False
        return (first.kind, first.file, first.line) == (self.kind, self.file, self.line)


def read(table: Path) -> dict[str, Log]:
    return msgspec.toml.decode(table.read_bytes(), type=dict[str, Log])


LOGS = {
    f"{table.stem}: {name}": log
    for table in sorted(TABLES.glob("*.toml"))
    for name, log in read(table).items()
}
#: Of each tool's first ten logs, patterns were tuned with every second one.
UNSEEN = [
    f"{table.stem}: {name}"
    for table in sorted(TABLES.glob("*.toml"))
    if table.stem != "reports"
    for name in list(read(table))[1:10:2]
]
HALVES = {"tuned": [name for name in LOGS if name not in UNSEEN], "unseen": UNSEEN}


@dataclass(frozen=True, kw_only=True)
class Figures:
    visible: float
    right: float
    wrong: list[str]


def figures(names: list[str], state: Path) -> Figures:
    hidden = [name for name in names if not LOGS[name].is_visible(state)]
    wrong = [name for name in names if not LOGS[name].is_right(state)]
    return Figures(
        visible=1 - len(hidden) / len(names),
        right=1 - len(wrong) / len(names),
        wrong=sorted({*hidden, *wrong}),
    )


@pytest.mark.parametrize("half", HALVES)
def test_the_decisive_line_is_shown_and_the_headline_is_right(half: str, tmp_path: Path) -> None:
    found = figures(HALVES[half], tmp_path)
    print(f"{half}: {len(HALVES[half])} logs: decisive line {found.visible:.0%}, headline {found.right:.0%}")
    print("not right:", ", ".join(found.wrong) or "none")
    assert found.visible >= 0.95
    assert found.right >= 0.85


def test_each_tool_has_ten_logs_or_more() -> None:
    counts = {table.stem: len(read(table)) for table in TABLES.glob("*.toml") if table.stem != "reports"}
    assert len(counts) == 12
    assert {tool for tool, count in counts.items() if count < 10} == set()


@pytest.mark.parametrize("short", [True, False])
def test_no_words_in_a_log_make_a_failure_one_of_memory_disk_or_a_signal(short: bool, tmp_path: Path) -> None:
    for name, log in LOGS.items():
        failure = log.failure(tmp_path, short=short).error().failure
        assert failure is not None
        kind = failure.kind.value
        expected = "memory" if log.resource == "killed" and short else log.resource
        assert (kind if kind in RESOURCES else "") == expected, name
