"""What a terminal, a plain log and `status` say of where a run stands."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from groundwork.run_state import Going, InFlight, RunState, TimeLeft
from megabuild.state.lines import heartbeat, state_lines

NOW = 1_800_000_000.0
FOLDER = "caffe2/CMakeFiles/torch_cpu.dir/__/aten/src/ATen/native/cpu/"
COMPILE = Going(
    task="pytorch", what="libtorch: compile", since=NOW - 4000, done=812, total=1614,
    objects=(
        InFlight(name=f"{FOLDER}BinaryOpsKernel.cpp.o", since=NOW - 192),
        InFlight(name="c10/CMakeFiles/c10.dir/core/Scalar.cpp.o", since=NOW - 12),
        InFlight(name="c10/CMakeFiles/c10.dir/util/Type.cpp.o", since=NOW - 2),
    ),
)  # fmt: skip
TEST = Going(task="test p", what="testing pytorch 2.13.0 py3.12", since=NOW - 43)
STATE = RunState(
    config="linux_64_cpu", status="building", began=NOW - 4321, updated=NOW, jobs=16, cores=16,
    going=(COMPILE, TEST), packages={"libtorch": "there", "pytorch": "waiting"},
    left=TimeLeft(likely=7800, earliest=6000, latest=12000, done=0.349, share=0.31),
    memory=5_100_000_000, memory_most=16_000_000_000, disk_free=81_000_000_000, cache_hits=120, cache_misses=692,
)  # fmt: skip
DOWNLOAD = Going(
    task="downloading", what="downloading 12 wheels", since=NOW - 40,
    done=1_000_000_000, total=3_000_000_000, unit="bytes",
)  # fmt: skip


def said(state: RunState, width: int = 80, now: float = NOW) -> str:
    return "\n".join(state_lines(state, width, now))


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 300])
@pytest.mark.parametrize(
    "state",
    [
        STATE,
        replace(STATE, left=None),
        replace(STATE, status="preparing", going=(DOWNLOAD,), left=None),
        replace(STATE, status="paused", note="the disk is low: 1 GB is free where 5 GB are wanted " * 3),
        replace(STATE, status="failed", error="staging of libtorch\nfailed " * 20, going=()),
        replace(STATE, going=tuple(replace(COMPILE, task=f"torch_{one}") for one in range(20))),
    ],
)
def test_no_line_is_wider_than_the_terminal(state: RunState, width: int) -> None:
    lines = state_lines(state, width, NOW)
    assert 2 <= len(lines) <= 9
    assert max(map(len, lines)) <= width


def test_the_narrower_the_less_is_said_but_what_matters_most_stays() -> None:
    ends = [time.strftime("%H:%M", time.localtime(NOW + left)) for left in (6000, 12000)]
    wide, usual, narrow = (state_lines(STATE, width, NOW) for width in (120, 80, 60))
    assert wide[0].endswith(f" 34 %  1:12 h so far, 2:10 h left, 1:40 h to 3:20 h, ends {' to '.join(ends)}")
    assert usual[0].endswith(f" 34 %  1:12 h so far, 2:10 h left, ends {' to '.join(ends)}")
    assert narrow[0].endswith(f" 34 %  2:10 h left, ends {' to '.join(ends)}")
    for lines in (wide, usual, narrow):
        assert lines[0].startswith("██")
        assert lines[1].startswith("libtorch: compile 812/1614: ")
        assert "BinaryOpsKernel.cpp 3:12 min" in lines[1]
        assert lines[2] == "testing pytorch 2.13.0 py3.12: 43 s"
        assert lines[3].startswith("1 of 2 packages published, memory 5.1 GB of 16.0 GB")
    assert wide[1].endswith("cpu/BinaryOpsKernel.cpp 3:12 min, core/Scalar.cpp 12 s, util/Type.cpp 2 s")
    assert narrow[1].endswith("BinaryOpsKernel.cpp 3:12 min +2")
    assert wide[3].endswith("disk 81.0 GB free, cache 120 of 812, 31 % of 16 cores are ours")


def test_between_two_events_the_time_left_counts_down_and_never_below_nothing() -> None:
    assert "2:09 h left" in said(STATE, now=NOW + 60)
    assert "BinaryOpsKernel.cpp 4:12 min" in said(STATE, now=NOW + 60)
    assert " 0 s left" in said(STATE, now=NOW + 20_000)


def test_a_narrow_range_is_no_range() -> None:
    sure = replace(STATE, left=TimeLeft(likely=7800, earliest=7500, latest=8000, done=0.9))
    assert " to " not in said(sure, 120)


def test_an_end_on_another_day_has_its_day() -> None:
    far = replace(STATE, left=TimeLeft(likely=90_000, earliest=90_000, latest=90_000, done=0.1))
    assert f"ends {time.strftime('%a %H:%M', time.localtime(NOW + 90_000))}" in said(far)


def test_a_preparation_has_a_bar_by_bytes_and_a_time_left() -> None:
    preparing = replace(STATE, status="preparing", going=(DOWNLOAD,), left=None, packages={})
    lines = state_lines(preparing, 80, NOW)
    assert lines[0] == "preparing, 1:12 h so far"
    assert lines[1] == "███░░░░░░░ downloading 12 wheels 1.0 GB of 3.0 GB, 40 s, 1:20 min left"


def test_a_check_is_not_a_build() -> None:
    assert said(replace(STATE, status="checking", going=(), left=None)).startswith(
        "checking, 1:12 h so far\n"
    )
    lines = state_lines(replace(STATE, status="checking", going=()), 120, NOW)
    assert " 34 %  checking, 1:12 h so far, 2:10 h left, " in lines[0]


def test_an_end_says_how_and_why() -> None:
    lines = state_lines(replace(STATE, status="failed", error="no luck", going=(), left=None), 80, NOW)
    assert lines[:2] == ["linux_64_cpu: failed after 1:12 h", "  no luck"]


def test_a_heartbeat_names_what_runs_and_since_when() -> None:
    line = heartbeat(STATE, NOW)
    assert "libtorch: compile 812/1614" in line
    assert "BinaryOpsKernel.cpp 3:12 min" in line
    assert "testing pytorch 2.13.0 py3.12: 43 s" in line
    assert "34 % done, 2:10 h left" in line
    assert "\n" not in line


def test_what_a_build_named_does_not_steer_the_terminal() -> None:
    evil = InFlight(name="a\x1b[2J\nb\u202e.o", since=NOW)
    state = replace(STATE, going=(replace(COMPILE, what="x\x1b]0;y\x07", objects=(evil,)),))
    assert not {"\x1b", "\x07", "\u202e"} & set(said(state, 300) + heartbeat(state, NOW))
    assert len(said(state, 300).splitlines()) == 3
