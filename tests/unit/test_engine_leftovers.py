"""What becomes of the engine's output folder before a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tiny import make_channel, make_package

from groundwork import files
from groundwork.errors import IntegrityError
from megabuild.engine.output_folder import FINISHED, INPUTS, prepare_output, seal_stagings

LIBRARY, MODULE = "torch-1-0.conda", "module-1-0.conda"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder whose last run has made a library and a module of something that is called ``a``."""
    make_channel(tmp_path / "state" / "out", (("torch", "1", "0"), ("module", "1", "0")))
    (tmp_path / "state" / "out" / INPUTS).write_text(f"{LIBRARY} a\n{MODULE} a\n")
    return tmp_path / "state"


def there(state: Path) -> set[str]:
    return {path.name for path in (state / "out").glob("linux-64/*.conda")}


def test_what_was_made_of_the_same_stays_and_a_published_package_is_copied_in(
    state: Path, tmp_path: Path
) -> None:
    left = prepare_output(state, inputs={LIBRARY: "a", MODULE: "b"}, published=(), platform="linux-64")
    assert (there(state), left) == ({LIBRARY}, [f"linux-64/{LIBRARY}"])
    package = make_package(tmp_path / "packages" / "linux-64", "torch", "1", "0", {"lib/other": "x"})
    left = prepare_output(state, inputs={LIBRARY: "a"}, published=[package], platform="linux-64")
    copy = state / "out" / "linux-64" / LIBRARY
    assert left == [], "it needs no test"
    assert files.sha256(copy) == files.sha256(package)
    assert not copy.samefile(package)


def test_nothing_below_the_folder_becomes_readable_to_others(state: Path) -> None:
    program = state / "out" / "build_cache" / "staging_1" / "prefix" / "bin" / "program"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    (state / "out" / "build_cache" / "staging_1" / "metadata.json").write_text("{}")
    seal_stagings(state / "out")
    (state / "out" / "linux-64" / LIBRARY).chmod(0o600)
    prepare_output(state, inputs={LIBRARY: "a"}, published=(), platform="linux-64")
    assert program.stat().st_mode & 0o777 == 0o755
    assert (state / "out" / "linux-64" / LIBRARY).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["link", "pipe", "bytes"])
def test_a_list_of_inputs_that_cannot_be_ours_says_nothing(state: Path, tmp_path: Path, kind: str) -> None:
    inputs = state / "out" / INPUTS
    (tmp_path / "mine").write_text(inputs.read_text())
    inputs.unlink()
    if kind == "link":
        inputs.symlink_to(tmp_path / "mine")
    elif kind == "pipe":
        os.mkfifo(inputs)
    else:
        inputs.write_bytes(b"\xff \xff")
    prepare_output(state, inputs={LIBRARY: "a", MODULE: "a"}, published=(), platform="linux-64")
    assert there(state) == set()
    assert inputs.read_text().splitlines() == [f"{MODULE} a", f"{LIBRARY} a"]
    assert not inputs.is_symlink()
    assert (tmp_path / "mine").read_text().startswith(LIBRARY)


def test_what_a_killed_run_had_finished_is_removed_and_a_link_is_not_followed(
    state: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note").write_text("mine")
    (state / FINISHED).symlink_to(tmp_path / "mine")
    (state / "tmp").symlink_to(tmp_path / "nowhere")
    prepare_output(state, inputs={}, published=(), platform="linux-64")
    assert not (state / FINISHED).is_symlink()
    assert not (state / "tmp").is_symlink()
    assert (tmp_path / "mine" / "note").read_text() == "mine"


def test_an_output_folder_that_is_a_link_is_refused(state: Path, tmp_path: Path) -> None:
    (state / "out").rename(tmp_path / "elsewhere")
    (state / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IntegrityError, match="symbolic link"):
        prepare_output(state, inputs={}, published=(), platform="linux-64")
