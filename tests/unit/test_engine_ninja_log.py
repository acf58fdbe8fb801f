"""What is read of ninja's own log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from megabuild.engine.ninja_log import NinjaLog, logs_below, seconds, steps

#: Two ninjas, one started at 1000.0 s and one at 2000.0 s. The generator's rule says ``restat``: its date is that of
#: its output, and ninja looks at the same files by two names each.
TWO = """# ninja log v7
20\t700\t1000020000000\tc10/a.cpp.o\taa
10\t900\t1000880000000\tgen/F.cpp\tbb
10\t900\t1000880000000\tgen/F.h\tbb
10\t900\t1000880000000\t/tree/build/gen/F.cpp\tbb
10\t900\t1000880000000\t/tree/build/gen/F.h\tbb
700\t1500\t1000700500000\tc10/b.cpp.o\tcc
1500\t1600\t1001500100000\tlib/libc10.so\tdd
5\t400\t2000005000000\tc10/a.cpp.o\taa
400\t500\t2000400100000\tlib/libc10.so\tdd
"""


def test_a_command_is_one_step_at_the_time_of_day_at_which_it_ran() -> None:
    found = steps(TWO.encode()).values()
    assert [(round(one.began, 1), round(one.seconds, 2), one.output, one.outputs) for one in found] == [
        (1000.0, 0.68, "c10/a.cpp.o", 1),
        (1000.0, 0.89, "gen/F.cpp", 2),
        (1000.7, 0.8, "c10/b.cpp.o", 1),
        (1001.5, 0.1, "lib/libc10.so", 1),
        (2000.0, 0.4, "c10/a.cpp.o", 1),
        (2000.4, 0.1, "lib/libc10.so", 1),
    ]


def test_of_a_step_that_ran_twice_the_last_time_counts_and_no_name_is_a_trap() -> None:
    hostile = b"1\t2\t1000001000000\tescape\x1b.o\tef\n"
    assert seconds(TWO.encode() + hostile) == pytest.approx(
        {"gen/F.cpp": 0.89, "c10/b.cpp.o": 0.8, "c10/a.cpp.o": 0.395, "lib/libc10.so": 0.1}
    )
    assert list(seconds(TWO.encode())) == ["gen/F.cpp", "c10/b.cpp.o", "c10/a.cpp.o", "lib/libc10.so"]


def test_lines_in_any_order_as_ninja_leaves_them_when_it_writes_its_log_anew_keep_their_times() -> None:
    head, *lines = TWO.splitlines()
    there = {(round(one.began, 2), one.output) for one in steps(TWO.encode()).values()}
    again = "\n".join([head, *sorted(lines, key=lambda line: line.split("\t")[3]), ""])
    assert {(round(one.began, 2), one.output) for one in steps(again.encode()).values()} == there


def test_dates_of_outputs_as_ninjas_before_1_11_noted_them_are_the_ends_of_commands() -> None:
    lines = b"# ninja log v5\n0\t2000\t1002000000000\ta.o\taa\n2000\t5000\t1005000000000\tb.o\tbb\n"
    found = steps(lines).values()
    assert [(one.began, one.seconds) for one in found] == [(1000.0, 2.0), (1002.0, 3.0)]


@pytest.mark.parametrize(
    "line",
    ["", "5\t4\t1\ta.o\taa", "x\t4\t1\ta.o\taa", "1\t2\ta.o", "-1\t2\t3\ta.o\taa", f"1\t2\t{'9' * 40}\ta\tb"],
)
def test_a_line_that_makes_no_sense_is_left_out(line: str) -> None:
    found = steps(f"{line}\n0\t10\t1000000000000\tb.o\tbb\n".encode()).values()
    assert [one.output for one in found] == ["b.o"]


def test_each_look_gives_what_is_new_and_a_line_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / ".ninja_log"
    whole, half = TWO[: TWO.index("700\t1500")], "700\t1500\t10007"
    path.write_text(whole + half)
    log = NinjaLog(path, tmp_path)
    assert [one.output for one in log.new()] == ["c10/a.cpp.o", "gen/F.cpp"]
    assert log.new() == []
    path.write_text(TWO)  # the same file, grown
    assert [one.output for one in log.new()] == [
        "c10/b.cpp.o",
        "lib/libc10.so",
        "c10/a.cpp.o",
        "lib/libc10.so",
    ]
    other = tmp_path / "other"
    other.write_text(TWO[: TWO.index("5\t400")] + "0\t10\t3000000000000\tnew.o\tee\n")
    os.replace(other, path)  # written anew by ninja, without lines that others have replaced
    assert [one.output for one in log.new()] == ["new.o"]


def test_a_link_or_a_pipe_in_place_of_a_log_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "real").write_text(TWO)
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / ".ninja_log").symlink_to(tmp_path / "real")
    assert NinjaLog(tmp_path / "tree" / ".ninja_log", tmp_path).new() == []
    os.mkfifo(tmp_path / "pipe")
    assert NinjaLog(tmp_path / "pipe", tmp_path).new() == []
    (tmp_path / "folder").symlink_to(tmp_path / "tree")
    (tmp_path / "tree" / ".ninja_log").unlink()
    (tmp_path / "tree" / ".ninja_log").write_text(TWO)
    assert NinjaLog(tmp_path / "folder" / ".ninja_log", tmp_path).new() == []
    assert list(logs_below(tmp_path, depth=3)) == [tmp_path / "tree" / ".ninja_log"]
