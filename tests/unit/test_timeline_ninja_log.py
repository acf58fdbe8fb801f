"""ninja's log as points in time: each version, several ninjas in one log, and logs that a build has damaged."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from small_files import write
from timeline_world import TEN, Made, log_of

from groundwork import files
from megabuild.timeline import kept_files, ninja_log
from megabuild.timeline.ninja_log import LOG, NinjaStep, read_ninja_log

STEPS = [
    Made(output="a.cpp.o", began=TEN, ended=TEN + 4),
    Made(output="b.cpp.o", began=TEN + 1, ended=TEN + 9.5),
    Made(output="lib/liba.so", began=TEN + 10, ended=TEN + 12),
]


def read(state: Path, content: str | bytes) -> list[NinjaStep] | None:
    write(state / LOG, content)
    return read_ninja_log(state)


def times(steps: list[NinjaStep] | None) -> dict[str, tuple[float, float]]:
    """Return beginnings and ends in seconds since ten o'clock."""
    assert steps is not None
    return {step.output: (round(step.began - TEN, 2), round(step.ended - TEN, 2)) for step in steps}


EXPECTED = {"a.cpp.o": (0, 4), "b.cpp.o": (1, 9.5), "lib/liba.so": (10, 12)}


@pytest.mark.parametrize("version", [5, 6, 7])
def test_each_version_s_dates_place_the_steps(tmp_path: Path, version: int) -> None:
    assert times(read(tmp_path, log_of(STEPS, TEN, version=version))) == EXPECTED


def test_of_too_many_steps_the_last_ones_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ninja_log, "_MOST_STEPS", 2)
    assert [*times(read(tmp_path, log_of(STEPS, TEN, version=7)))] == ["b.cpp.o", "lib/liba.so"]


def test_a_line_of_another_program_hides_no_later_step(tmp_path: Path) -> None:
    head, _, steps = log_of(STEPS, TEN, version=7).partition("\n")
    assert times(read(tmp_path, f"{head}\nnot a step\n{steps}")) == EXPECTED


def test_a_log_that_was_kept_is_read_until_there_is_a_new_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk, it is lost: the tree is removed to free the disk."""
    log = write(tmp_path / LOG, "a log")

    def write_nothing(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(files, "write", write_nothing)
        kept_files.keep_steps(tmp_path)
    assert kept_files.steps_folder(tmp_path) == tmp_path
    kept_files.keep_steps(tmp_path)
    assert kept_files.steps_folder(tmp_path) == tmp_path, "its own tree is newer"
    log.unlink()
    kept = kept_files.steps_folder(tmp_path)
    assert (kept / LOG).read_text() == "a log"


@pytest.mark.parametrize("version", [5, 7])
def test_several_ninjas_append_to_one_log(tmp_path: Path, version: int) -> None:
    first = log_of(STEPS, TEN - 5, version=version)
    # the first step of the second ninja ends later, by its own clock, than the last one of the first
    again = [
        Made(output="c.cpp.o", began=TEN + 101, ended=TEN + 160),
        Made(output="d.cpp.o", began=TEN + 160, ended=TEN + 161),
    ]
    second = log_of(again, TEN + 100, version=version).partition("\n")[2]
    expected = EXPECTED | {"c.cpp.o": (101, 160), "d.cpp.o": (160, 161)}
    assert times(read(tmp_path, first + second)) == expected


def test_a_log_that_ninja_rewrote_has_any_order(tmp_path: Path) -> None:
    head, *lines = log_of(STEPS, TEN, version=7).splitlines(keepends=True)
    assert times(read(tmp_path, head + "".join(reversed(lines)))) == EXPECTED


@pytest.mark.parametrize("version", [5, 7])
def test_an_output_that_kept_its_old_date_is_placed_by_its_neighbours(tmp_path: Path, version: int) -> None:
    steps = log_of(STEPS, TEN, version=version).splitlines(keepends=True)
    unchanged = f"5000\t9600\t{int((TEN - 86400) * 1e9)}\tgenerated.h\tabc\n"
    content = "".join([*steps[:3], unchanged, *steps[3:]])
    assert times(read(tmp_path, content)) == EXPECTED | {"generated.h": (5, 9.6)}


@pytest.mark.parametrize("version", [5, 7])
def test_a_last_output_that_kept_its_old_date_is_placed_by_its_ninja(tmp_path: Path, version: int) -> None:
    unchanged = f"12000\t13000\t{int((TEN - 86400) * 1e9)}\tgenerated.h\tabc\n"
    content = log_of(STEPS, TEN, version=version) + unchanged
    assert times(read(tmp_path, content)) == EXPECTED | {"generated.h": (12, 13)}


def test_a_last_ninja_of_one_step_is_placed_by_its_date(tmp_path: Path) -> None:
    installed = f"0\t20000\t{int((TEN + 50) * 1e9)}\tCMakeFiles/install.util\tabc\n"
    content = log_of(STEPS, TEN) + installed
    assert times(read(tmp_path, content)) == EXPECTED | {"CMakeFiles/install.util": (50, 70)}


def test_a_step_with_several_outputs_counts_once(tmp_path: Path) -> None:
    date = int(TEN * 1e9)
    lines = [f"0\t900\t{date}\t{name}\tffff\n" for name in ("a.h", "a.cpp")]
    assert times(read(tmp_path, "# ninja log v7\n" + "".join(lines))) == {"a.h": (0, 0.9)}


def test_a_line_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    content = log_of(STEPS, TEN)
    assert times(read(tmp_path, content[:-20])) == {name: EXPECTED[name] for name in ("a.cpp.o", "b.cpp.o")}


@pytest.mark.parametrize(
    "line",
    [
        "", "\t\t\t\t", "9\t1\t1\tx\tf", "-1\t2\t3\tx\tf", "1\t2\tx\tx\tf", "1\t2\t3\t\tf", "1\t2\t3\tx",
        "1\t" + "9" * 4000 + "\t3\tx\tf", "1\t2\t3\t" + "x" * 5000 + "\tf", "\x00\xff",
    ],
)  # fmt: skip
def test_a_damaged_line_costs_only_its_step(tmp_path: Path, line: str) -> None:
    content = log_of(STEPS, TEN)
    assert times(read(tmp_path, f"{content}{line}\n".encode("latin-1"))) == EXPECTED


@pytest.mark.parametrize("content", ["", "# ninja log v4\n", "# ninja log v9\n", "no log\n", b"\x00" * 100])
def test_another_file_is_no_log(tmp_path: Path, content: str | bytes) -> None:
    assert read(tmp_path, content) is None


def test_an_empty_log_has_no_steps(tmp_path: Path) -> None:
    assert read(tmp_path, "# ninja log v7\n") == []


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret", log_of(STEPS, TEN))
    state = tmp_path / "state"
    (state / LOG).parent.mkdir(parents=True)
    (state / LOG).symlink_to(secret)
    assert read_ninja_log(state) is None
    (state / LOG).unlink()
    os.mkfifo(state / LOG)
    assert read_ninja_log(state) is None
    other = tmp_path / "other"
    other.mkdir()
    (other / "tree").symlink_to(state)
    assert read_ninja_log(other) is None
    assert read_ninja_log(tmp_path / "missing") is None
