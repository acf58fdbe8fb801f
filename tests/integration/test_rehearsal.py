"""The whole pipeline over the model of PyTorch's tree, CUDA-shaped: every output, for two of the Pythons found here."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import future
import pytest
from tiny import kept_sentences

from groundwork.files import cache_folder
from megabuild.cleaning import size_of
from megabuild.configs.config import load
from megabuild.engine import archive
from megabuild.engine.archive import owners
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan
from megabuild.plan.planning import make_plan
from megabuild.providers.local.interpreters import find
from megabuild.run.session import execute
from megabuild.run.summary import Summary
from megabuild.status.status import script_lines

CONFIG = "linux_64_cuda130"


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """One finished rehearsal."""

    options: Options
    plan: Plan
    summary: Summary
    sentences: Sequence[str]
    lines: Sequence[str]  #: of the build scripts


@pytest.fixture(scope="module")
def rehearsal(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    """A rehearsal of everything, for the oldest and the newest Python, in a fresh output folder."""
    found = find(print)
    here = [python for python in load(repository, CONFIG).pythons if python in found]
    options = Options(
        config=load(repository, CONFIG),
        root=repository,
        output=tmp_path_factory.mktemp("output"),
        cache=cache_folder(os.environ),
        rehearse=True,
        engine="host",
        pythons=tuple(dict.fromkeys([*here[:1], *here[-1:]])),
        cpu_count=len(os.sched_getaffinity(0)),
    )
    made = make_plan(options, print)
    script_lines.setLevel(logging.INFO)
    with kept_sentences() as seen, kept_sentences(script_lines) as printed:
        summary = execute(made)
    sentences, lines = ([record.getMessage() for record in records] for records in (seen, printed))
    return Rehearsal(options=options, plan=made, summary=summary, sentences=sentences, lines=lines)


def archives(rehearsal: Rehearsal) -> dict[str, archive.Archive]:
    return {Path(row.path).name: archive.read(Path(row.path)) for row in rehearsal.summary.packages}


def test_every_output_is_there_for_every_python(rehearsal: Rehearsal) -> None:
    assert rehearsal.summary.ok
    names = [row.package.name for row in rehearsal.summary.packages]
    pythons = [item.package.python or "" for item in rehearsal.plan.items if item.package.name == "pytorch"]
    assert names.count("libtorch") == 1
    assert names.count("libtorch-cuda-linalg") == 2
    assert names.count("pytorch-gpu") == 1
    assert names.count("pytorch") == len(pythons) >= 1
    assert set(pythons) == set(rehearsal.options.pythons)


def test_both_linalg_flavours_come_from_one_staging(rehearsal: Rehearsal) -> None:
    for phase in ("compile", "install"):
        assert rehearsal.sentences.count(f"libtorch: {phase}") == 1
    made = [row.package for row in rehearsal.summary.packages]
    flavours = [package.build_string for package in made if package.name == "libtorch-cuda-linalg"]
    assert sorted("nomagma" if "nomagma" in flavour else "magma" for flavour in flavours) == [
        "magma",
        "nomagma",
    ]


def test_every_pytorch_is_tested_with_the_flavour_that_users_get_and_both_flavours_with_pytorch(
    rehearsal: Rehearsal,
) -> None:
    lines = [tuple(line.split(": ", 1)) for line in rehearsal.lines]
    pythons = {item.package.python for item in rehearsal.plan.items if item.package.name == "pytorch"}
    met = [text for source, text in lines if source.startswith("test:") and "linear algebra on GPUs:" in text]
    assert len(met) == len(pythons)
    assert all("_nomagma_" in text for text in met), met
    loaded = sorted(text.strip() for _, text in lines if text.endswith("magma: every symbol found"))
    assert loaded == ["magma: every symbol found", "nomagma: every symbol found"]


def test_no_swap_rebuilds_the_core(rehearsal: Rehearsal) -> None:
    pythons = {item.package.python for item in rehearsal.plan.items if item.package.name == "pytorch"}
    assert set(rehearsal.summary.swaps) == pythons
    assert all(swap["core"] == 0 for swap in rehearsal.summary.swaps.values())
    assert all(swap["steps"] > 0 for python, swap in rehearsal.summary.swaps.items() if python != "3.12")


def test_no_library_waits_for_what_the_linker_noted(rehearsal: Rehearsal) -> None:
    # With binutils >= 2.41 CMake has it written down by absolute path, which ninja takes for another file than the
    # library it makes: after an interrupted compile libtorch_cuda stayed out of date, and the swap refused.
    cache = (rehearsal.options.state / "tree" / "build" / "CMakeCache.txt").read_text()
    assert re.search(r"^CMAKE_LINK_DEPENDS_USE_LINKER:\w+=OFF$", cache, re.MULTILINE)


def test_every_package_was_tested(rehearsal: Rehearsal) -> None:
    tested = {text.split()[1] for text in rehearsal.sentences if ": tested in" in text}
    assert tested == {"libtorch", "libtorch-cuda-linalg", "pytorch", "pytorch-gpu"}


def test_every_file_has_one_owner(rehearsal: Rehearsal) -> None:
    assert not owners(archives(rehearsal).values())


def test_packages_are_what_the_plan_said(rehearsal: Rehearsal) -> None:
    assert [row.package for row in rehearsal.summary.packages] == [
        item.package.id for item in rehearsal.plan.items
    ]
    repodata = json.loads((rehearsal.options.packages / "linux-64" / "repodata.json").read_text())
    assert set(repodata["packages.conda"]) == {item.package.file_name for item in rehearsal.plan.items}


def test_the_engine_copies_no_tree_for_its_packages(rehearsal: Rehearsal) -> None:
    state = rehearsal.options.state
    assert size_of(state / "out" / "build_cache") < size_of(state / "tree") / 2


def test_the_log_has_a_time_on_every_line_and_no_line_twice_over(rehearsal: Rehearsal) -> None:
    lines = [line for line in rehearsal.summary.log.read_text().splitlines() if line]
    stamped = [line for line in lines if re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", line)]
    assert len(stamped) > 0.99 * len(lines)


def test_a_second_run_does_nothing(rehearsal: Rehearsal) -> None:
    again = make_plan(rehearsal.options, print)
    assert not again.missing
    summary = execute(again)
    assert summary.ok
    assert {row.status for row in summary.packages} == {"skipped"}
    assert summary.seconds < 5


def test_a_tree_of_tomorrow_goes_on_where_it_stopped(rehearsal: Rehearsal) -> None:
    # as a clock that was ahead leaves it, and a run that was killed before it had packed anything
    options = rehearsal.options
    future.send(options.state / "tree", 86400)
    shutil.rmtree(options.packages)
    shutil.rmtree(options.state / "out")
    script_lines.setLevel(logging.INFO)
    with kept_sentences() as seen, kept_sentences(script_lines) as printed:
        summary = execute(make_plan(options, print))
    assert summary.ok
    warned = [record.getMessage() for record in seen if record.levelno == logging.WARNING]
    assert any("the clock was set back" in message for message in warned)
    lines = [record.getMessage() for record in printed if record.getMessage().startswith("staging: ")]
    again = sum("Re-running CMake" in line for line in lines)
    compiled = [line.split()[-1] for line in lines if "Building" in line and " object " in line]
    # the Python side goes back from the last Python to staging's
    core = [name for name in compiled if not name.startswith(("torch/", "functorch/"))]
    print(
        f"{len(compiled)} objects compiled in staging, {len(core)} of libtorch; CMake ran {again} times more"
    )
    assert again <= 2
    assert compiled
    assert core == []
    assert all(swap["core"] == 0 for swap in summary.swaps.values())
