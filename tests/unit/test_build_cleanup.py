"""What may go once a config is done."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from groundwork.errors import BusyError
from megabuild.engine.compile_notes import NOTES
from megabuild.plan.options import Options
from megabuild.run.session import locked, remove_trees
from megabuild.timeline.ninja_log import LOG

GONE = ("tree/build/a.o", "out/build_cache/c", "tmp/d", "tests/broken/e.conda")
#: Of which a copy stays, for the page of the run.
STEPS = (LOG, NOTES)
STAYS = ("logs/run.log", "run.json", "state.json", "pyg/scatter-py311/logs/run.log", "notes-of-mine")


class Place:
    """As much of a run's options as is asked for."""

    run_name = "tiny"
    own = True

    def __init__(self, state: Path) -> None:
        self.state = state
        self.output = state.parent
        self.root = state.parent


@pytest.fixture
def options(tmp_path: Path) -> Options:
    for name in (*GONE, *STEPS, *STAYS, "pyg/scatter-py311/out/f"):
        (tmp_path / "state" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "state" / name).write_bytes(b"x" * 5000)
    return cast(Options, Place(tmp_path / "state"))


def test_what_was_compiled_goes_and_what_was_said_stays(options: Options) -> None:
    freed = remove_trees(options)
    left = {path.relative_to(options.state).as_posix() for path in options.state.rglob("*") if path.is_file()}
    assert left - {"lock"} == {*STAYS, *(f"steps/{name}" for name in STEPS)}
    assert freed >= 5 * 5000
    assert remove_trees(options) == 0


def test_a_link_is_not_followed_and_a_config_that_is_being_built_is_left_alone(
    options: Options, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (options.state / "out").rename(elsewhere)
    (options.state / "out").symlink_to(elsewhere)
    with locked(options), pytest.raises(BusyError):
        remove_trees(options)
    assert (options.state / "tree").is_dir()
    remove_trees(options)
    assert (elsewhere / "build_cache" / "c").is_file()
