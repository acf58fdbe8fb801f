"""The page of where the time went: a small one kept whole, and pages of large, hostile and incomplete runs."""

from __future__ import annotations

import html
import os
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from calling import call
from small_files import write
from timeline_world import TEN, InventedRun, Made, log_of, megabuild, notes_of, record_of

from command_line.run_command import Invocation
from megabuild.engine.compile_notes import NOTES
from megabuild.status import history as history_file
from megabuild.status import record as state_file
from megabuild.status.history import History, Span
from megabuild.status.reading import RunState, Standing, read_run_state
from megabuild.status.record import Activity, RunStatus
from megabuild.timeline.kept_files import keep_steps
from megabuild.timeline.ninja_log import LOG
from megabuild.timeline.page import make_page
from megabuild.timeline.run_facts import StepKind, read_run_facts

#: A page that is kept whole; `scripts/test tests/unit/test_timeline_page.py --renew-options` writes it again.
GOLDEN = Path(__file__).resolve().parent.parent / "data" / "timeline" / "page.html"
HOSTILE = "</title></style><script>alert(1)</script><img src=x onerror=alert(1)>'\"&\u202e\x1b[31m{{ 7*7 }}"


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def page_of(*runs: InventedRun, output: Path, now: float = TEN + 7200) -> str:
    return make_page([read_run_state(run.write(output)) for run in runs], now)


def small_run() -> InventedRun:
    """A run of two minutes with one object of the cache, one tail, and a test next to a build."""
    run = InventedRun("linux_64_cpu", TEN)
    run.phase("libtorch: configure", 10, 1.0)
    steps = [
        Made(output="c10/a.cpp.o", began=TEN + 10, ended=TEN + 30),
        Made(output="c10/b.cpp.o", began=TEN + 10, ended=TEN + 11, compiled=False),
        Made(output="aten/Sorting.cpp.o", began=TEN + 11, ended=TEN + 60),
        Made(output="lib/libc10.so", began=TEN + 60, ended=TEN + 62),
    ]
    run.steps += steps
    run.busy += [(step.began, step.ended, 1.0) for step in steps]
    run.spans.append(Span(task="pytorch", what="libtorch: compile", began=TEN + 10, ended=TEN + 62))
    run.now = TEN + 62
    run.spans.append(Span(task="test", what="testing libtorch 2.13.0", began=TEN + 70, ended=TEN + 90))
    run.phase("pytorch 3.12: Python side", 38, 1.5)
    return run


def test_a_small_page_is_as_it_was(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    page = page_of(small_run(), output=tmp_path).replace(str(tmp_path), "output")
    if request.config.getoption("--renew-options"):
        write(GOLDEN, page)
    assert page == GOLDEN.read_text(encoding="utf-8")


def text_of(page: str) -> str:
    """Return the page as one reads it."""
    body = page.partition("<body>")[2]
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", body)))


def test_idle_cores_the_longest_step_and_the_cache_are_named(tmp_path: Path) -> None:
    text = text_of(page_of(small_run(), output=tmp_path))
    assert "of 16 cores idled:" in text
    assert "Longest step: Sorting.cpp.o, 49 s." in text
    assert "2 compiled, 1:09 min" in text
    assert "1 from the object cache, 1 s" in text
    assert "1 links and others, 2 s" in text
    assert re.search(r"libtorch: configure \d+ s \d\.\d of 16", text)
    assert re.search(r"longest step in it took tail idle jobs aten/Sorting.cpp.o 49 s 32 s", text)


def test_eight_configs_of_2000_steps_share_a_page_of_less_than_2_megabytes(tmp_path: Path) -> None:
    runs: list[InventedRun] = []
    began = TEN
    for number in range(8):
        run = megabuild(
            f"linux_64_cuda{number}", began, compiles=1600, cached=0.5 * (number % 2), seed=number
        )
        runs.append(run)
        began = run.now + 5
    assert sum(len(run.steps) for run in runs) > 8 * 2000
    page = page_of(*runs, output=tmp_path, now=began + 60)
    assert len(page) < 1_000_000
    assert page.count('aria-label="used and idle cores"') == 1, "one picture"
    for run in runs:
        assert f"<h2>{run.name} " in page


def test_even_the_most_steps_are_a_page_of_less_than_2_megabytes(tmp_path: Path) -> None:
    run = InventedRun("linux_64_cpu", TEN)
    for number in range(60_000):
        lane = number % 128
        began = TEN + (number // 128) * 10 + lane * 0.07
        run.steps.append(Made(output=f"{'x' * 200}/{number}.cpp.o", began=began, ended=began + 9))
    run.now = TEN + 10_000
    assert len(page_of(run, output=tmp_path, now=TEN + 20_000)) < 2_000_000


class Tags(HTMLParser):
    """Collects the names of elements and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.update([tag, *(f"@{name}" for name, _ in attrs)])


def tags_of(page: str) -> set[str]:
    parser = Tags()
    parser.feed(page)
    return parser.seen


def test_names_that_a_build_chooses_are_text(tmp_path: Path) -> None:
    run = small_run()
    known = tags_of(page_of(small_run(), output=tmp_path / "harmless"))
    name = HOSTILE.replace("/", "\u2215")
    run.name = name.replace("\x1b[31m", "")
    run.steps = [
        Made(output=f"{name}{step.output}", began=step.began, ended=step.ended) for step in run.steps
    ]
    run.spans = [
        Span(task=HOSTILE, what=HOSTILE + span.what, began=span.began, ended=span.ended) for span in run.spans
    ]
    activity = Activity(task=HOSTILE, what=HOSTILE, since=TEN)
    page = page_of(
        run,
        output=tmp_path,
        now=TEN + 200,
    ).replace(str(tmp_path), "")
    died = page_of_died(tmp_path / "died", activity)
    for each in (page, died):
        assert tags_of(each) == known
        assert "<script" not in each
        assert "\u202e" not in each
        assert "\x1b" not in each
        assert "{{ 7*7 }}" in html.unescape(each), "no template"


def page_of_died(output: Path, activity: Activity) -> str:
    run = small_run()
    folder = run.write(
        output, status=RunStatus.FAILED, error=HOSTILE, exit_code=1, host=HOSTILE, activities=[activity]
    )
    return make_page([read_run_state(folder)], TEN + 300)


def test_only_this_run_s_steps_are_shown(tmp_path: Path) -> None:
    run = small_run()
    folder = run.write(tmp_path)
    former = [Made(output="former.cpp.o", began=TEN - 500, ended=TEN - 400)]
    log = log_of(former, TEN - 500) + log_of(run.steps, TEN).partition("\n")[2]
    write(folder / LOG, log)
    facts = read_run_facts(read_run_state(folder), TEN + 300)
    assert facts is not None
    assert {step.name for step in facts.steps} == {step.output for step in run.steps}


def test_a_run_in_progress_ends_now_and_has_unfinished_compiles(tmp_path: Path) -> None:
    run = small_run()
    folder = run.write(tmp_path)
    began = time.time() - 100
    shift = began - TEN
    moved = [
        Made(output=step.output, began=step.began + shift, ended=step.ended + shift) for step in run.steps
    ]
    running = Made(output="aten/Long.cpp.o", began=began + 65, ended=began + 65)
    repeated = Made(output="aten/Long.cpp.o", began=began + 12, ended=began + 12)
    tested = Made(output="CMakeFiles/cmTC_12345.dir/a.c.o", began=began + 1, ended=began + 2)
    former = Made(output="aten/Former.cpp.o", began=began - 50, ended=began - 40)
    write(folder / LOG, log_of(moved, began))
    write(folder / NOTES, notes_of([*moved, repeated, running, tested, former], began))
    compiling = Activity(task="pytorch", what="libtorch: compile", since=began + 10, done=4, total=9)
    record = record_of(
        run.name, began, began + 99, status=RunStatus.BUILDING, activities=[compiling], pid=os.getpid(),
        process_began=0.0, exit_code=None,
    )  # fmt: skip
    state_file.write(folder, record)
    now = began + 100
    facts = read_run_facts(RunState(folder=folder, standing=Standing.RUNNING, record=record), now)
    assert facts is not None
    assert facts.ended == now
    unfinished = [step for step in facts.steps if step.kind is StepKind.UNFINISHED]
    assert [(step.name, step.ended) for step in unfinished] == [("aten/Long.cpp.o", now)]
    assert unfinished[0].began == int(began + 65), "ninja started it again"
    assert [(span.what, span.ended) for span in facts.spans] == [("libtorch: compile", now)]
    page = make_page([RunState(folder=folder, standing=Standing.RUNNING, record=record)], now)
    assert "1 unfinished, 3" in text_of(page)
    assert "no samples and no former phases" in text_of(page), "the history is of another run"


@pytest.mark.parametrize("status", [RunStatus.DONE, RunStatus.FAILED, RunStatus.INTERRUPTED])
def test_a_run_that_succeeded_has_no_unfinished_compile(status: RunStatus, tmp_path: Path) -> None:
    """Another program than ninja may compile, too."""
    folder = small_run().write(tmp_path, status=status)
    with (folder / NOTES).open("a") as notes:
        notes.write(f"{int(TEN) + 90} build/temp/stub.o\n")
    facts = read_run_facts(read_run_state(folder), TEN + 300)
    assert facts is not None
    unfinished = [step.name for step in facts.steps if step.kind is StepKind.UNFINISHED]
    assert unfinished == ([] if status is RunStatus.DONE else ["build/temp/stub.o"])


def test_phases_beyond_the_limit_are_named_as_missing(tmp_path: Path) -> None:
    folder = small_run().write(tmp_path)
    history = history_file.read(folder, TEN)
    assert history is not None
    history.spans_left_out = 3
    history_file.write(folder, history)
    assert "3 further phases were not recorded" in text_of(make_page([read_run_state(folder)], TEN + 300))


def test_without_samples_ninja_s_steps_count_as_cores(tmp_path: Path) -> None:
    run = small_run()
    folder = run.write(tmp_path)
    (folder / history_file.NAME).unlink()
    (folder / NOTES).unlink()
    text = text_of(make_page([read_run_state(folder)], TEN + 300))
    assert "ninja's finished steps, 0 to 2 in parallel: the CPU was not sampled" in text
    assert "3 compiled or from the cache" in text
    assert "for some objects, no note says whether they are from the object cache" in text


def test_a_removed_tree_leaves_its_steps(tmp_path: Path) -> None:
    folder = small_run().write(tmp_path)
    keep_steps(folder)
    for name in (LOG, NOTES):
        (folder / name).unlink()
    text = text_of(make_page([read_run_state(folder)], TEN + 300))
    assert "2 compiled, 1:09 min" in text
    assert "1 from the object cache" in text


def test_without_a_tree_the_page_says_so(tmp_path: Path) -> None:
    folder = small_run().write(tmp_path)
    (folder / LOG).unlink()
    text = text_of(make_page([read_run_state(folder)], TEN + 300))
    assert "no steps: the config has no compiled tree, or it was removed" in text
    assert "of 16 cores idled:" in text


def test_runs_far_apart_have_pictures_of_their_own(tmp_path: Path) -> None:
    later = InventedRun("linux_64_cuda130", TEN + 86400)
    later.phase("libtorch: configure", 10, 1.0)
    page = page_of(small_run(), later, output=tmp_path, now=TEN + 90000)
    assert page.count('aria-label="used and idle cores"') == 2


@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_a_run_that_failed_at_once_is_a_page(tmp_path: Path, seconds: float) -> None:
    run = InventedRun("linux_64_cpu", TEN)
    run.now += seconds
    assert "<h2>linux_64_cpu " in page_of(run, output=tmp_path)
    folder = tmp_path / "linux_64_cpu"
    history_file.write(folder, History(began=TEN, cores=2, memory=0))
    (folder / LOG).unlink()
    assert "<h2>linux_64_cpu " in make_page([read_run_state(folder)], TEN + 1)


@pytest.mark.parametrize("change", ["-1", "1e300", "1e999", '"x"', "null"])
@pytest.mark.parametrize("name", ["at", "seconds", "cores", "began", "ended"])
def test_numbers_that_make_no_sense_are_a_damaged_history(tmp_path: Path, name: str, change: str) -> None:
    folder = small_run().write(tmp_path)
    history = folder / history_file.NAME
    history.write_text(re.sub(rf'"{name}":[0-9.]+', f'"{name}":{change}', history.read_text()))
    text = text_of(make_page([read_run_state(folder)], TEN + 300))
    assert "no samples and no former phases" in text


def test_an_unreadable_record_is_named_next_to_the_others(tmp_path: Path) -> None:
    write(tmp_path / "broken" / state_file.NAME, "<b>")
    runs = [read_run_state(tmp_path / "broken"), read_run_state(small_run().write(tmp_path))]
    page = make_page(runs, TEN + 300)
    assert "damaged, or of another version" in text_of(page)
    assert "<h2>linux_64_cpu " in page
    assert "no run in this folder" in make_page([], TEN)


def test_the_page_needs_no_network_runs_no_script_and_knows_dark_mode(tmp_path: Path) -> None:
    page = page_of(small_run(), output=tmp_path)
    assert "http://" not in page
    assert "https://" not in page
    assert not {"script", "link", "img", "iframe", "@onload", "@src", "@href"} & tags_of(page)
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    small_run().write(tmp_path / "output")
    page = tmp_path / "time.html"
    result = call(
        Invocation(log_folder=tmp_path / "logs"),
        "status",
        "--output",
        str(tmp_path / "output"),
        "--page",
        str(page),
    )
    assert result.exit_code == 0
    assert f"page: {page}" in result.output
    assert "<h2>linux_64_cpu " in page.read_text(encoding="utf-8")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    small_run().write(tmp_path / "output")
    target = write(tmp_path / "file") / "time.html"
    result = call(
        Invocation(log_folder=tmp_path / "logs"),
        "status",
        "--output",
        str(tmp_path / "output"),
        "--page",
        str(target),
    )
    assert result.exit_code
    assert str(tmp_path / "file") in result.output


@pytest.mark.parametrize("page", ["", ".", "/", "folder"])
def test_a_page_that_is_no_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    result = call(Invocation(log_folder=tmp_path / "logs"), "status", "--page", page)
    assert result.exit_code == 2
    assert f"--page {page}: not a file" in result.output
