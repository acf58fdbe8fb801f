"""The whole pipeline over the model of PyTorch's tree, CUDA-shaped: every output, for two of the Pythons found here."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import future
import pytest
from tiny import kept_sentences

from groundwork.user_folders import cache_folder
from megabuild.cleaning import size_of
from megabuild.configs.config import load
from megabuild.engine import archive
from megabuild.engine.archive import check_owners
from megabuild.isolation.engine import Engine
from megabuild.plan.options import Options
from megabuild.plan.planning import make_plan
from megabuild.providers.local.interpreters import find
from megabuild.run.outlook import Outlook, look_ahead
from megabuild.run.session import execute
from megabuild.run.summary import Summary
from megabuild.status.status import Status, script_lines

CONFIG = "linux_64_cuda130"
#: Folders of objects that know of Python.
PYTHON_SIDE = ("torch_python.dir", "nnapi_backend.dir", "functorch.dir", "_C.dir", "_nccl_ep.dir")


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """One finished rehearsal."""

    options: Options
    outlook: Outlook
    summary: Summary
    sentences: Sequence[str]
    lines: Sequence[str]  #: of the build scripts

    @property
    def build(self) -> Path:
        return self.options.state / "tree" / "build"

    @property
    def pythons(self) -> set[str | None]:
        return {item.package.python for item in self.outlook.plan.items if item.package.name == "pytorch"}

    def ninja(self, *words: str) -> str:
        command = ["ninja", "-C", str(self.build), *words]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def rehearse(options: Options) -> Rehearsal:
    outlook = look_ahead(make_plan(options, print), {}, print)
    script_lines.setLevel(logging.INFO)
    with kept_sentences() as seen, kept_sentences(script_lines) as printed:
        summary = execute(outlook, Status(options.run_name, options.state))
    sentences, lines = ([record.getMessage() for record in records] for records in (seen, printed))
    return Rehearsal(options=options, outlook=outlook, summary=summary, sentences=sentences, lines=lines)


@pytest.fixture(scope="module")
def rehearsal(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    """A rehearsal of everything, for the oldest and the newest Python, in a fresh output folder."""
    config = load(repository, CONFIG)
    here = [python for python in config.pythons if python in find(print)]
    return rehearse(
        Options(
            config=config,
            root=repository,
            output=tmp_path_factory.mktemp("output"),
            cache=cache_folder(os.environ),
            rehearse=True,
            optimization="0",  # quicker; tests/acceptance/test_first_build.py compiles as users do
            engine=Engine.HOST,
            pythons=tuple(dict.fromkeys([*here[:1], *here[-1:]])),
            cpu_count=len(os.sched_getaffinity(0)),
        )
    )


def test_every_output_is_there_is_what_the_plan_said_and_was_tested(rehearsal: Rehearsal) -> None:
    assert rehearsal.summary.ok
    made = [row.package for row in rehearsal.summary.packages]
    assert made == [item.package.id for item in rehearsal.outlook.plan.items]
    names = [package.name for package in made]
    counts = {name: names.count(name) for name in names}
    pythons = len(rehearsal.options.pythons)
    assert counts == {"libtorch": 1, "libtorch-cuda-linalg": 2, "pytorch-gpu": 1, "pytorch": pythons}
    assert rehearsal.pythons == set(rehearsal.options.pythons) == set(rehearsal.summary.swaps)
    assert all(swap["core"] == 0 for swap in rehearsal.summary.swaps.values())
    assert all(swap["steps"] > 0 for python, swap in rehearsal.summary.swaps.items() if python != "3.12")
    repodata = json.loads((rehearsal.options.packages / "linux-64" / "repodata.json").read_text())
    assert set(repodata["packages.conda"]) == {
        item.package.file_name for item in rehearsal.outlook.plan.items
    }
    assert {text.split()[1] for text in rehearsal.sentences if ": tested in" in text} == set(names)
    check_owners(archive.read(Path(row.path)) for row in rehearsal.summary.packages)


def test_cmake_builds_the_modules_of_2_13_for_each_python(rehearsal: Rehearsal) -> None:
    """torch._C, and with CUDA _nccl_ep: the swap takes them for bindings, and a package has its own Python's only."""
    for row in rehearsal.summary.packages:
        if row.package.name == "pytorch":
            files = archive.read(Path(row.path)).files
            modules = sorted(name for name in files if re.fullmatch(r".*/torch/_\w+\.[^/]*\.so", name))
            number = row.package.build_string.split("_py")[1].split("_")[0]
            assert [re.sub(r".*/torch/|-x86_64.*", "", name) for name in modules] == [
                f"_C.cpython-{number}", f"_nccl_ep.cpython-{number}"
            ]  # fmt: skip
    swapped = [python for python in rehearsal.pythons if python != "3.12"]
    for python in swapped:
        printed = [line for line in rehearsal.lines if line.startswith(f"pytorch {python}: ")]
        for module in ("_C", "_nccl_ep"):
            assert any(f"torch/CMakeFiles/{module}.dir/" in line for line in printed), module


def test_both_linalg_flavours_come_from_one_staging_and_are_tested_with_pytorch(rehearsal: Rehearsal) -> None:
    for phase in ("compile", "install"):
        assert rehearsal.sentences.count(f"libtorch: {phase}") == 1
    builds = [row.package.build_string for row in rehearsal.summary.packages if "linalg" in row.package.name]
    assert ["nomagma" in build for build in sorted(builds)].count(True) == 1
    met = [text for text in rehearsal.lines if text.startswith("test:") and "linear algebra on GPUs:" in text]
    assert len(met) == len(rehearsal.pythons)
    assert all("_nomagma_" in text for text in met), met
    loaded = sorted(
        text.split()[-4] for text in rehearsal.lines if text.endswith("magma: every symbol found")
    )
    assert loaded == ["magma:", "nomagma:"]


def test_the_model_is_configured_as_asked_and_nothing_of_its_core_is_left_to_do(rehearsal: Rehearsal) -> None:
    cache = dict(
        re.findall(r"^(\w+):\w+=(.*)$", (rehearsal.build / "CMakeCache.txt").read_text(), re.MULTILINE)
    )
    assert cache["BLAS"] == "MKL"
    assert cache["TORCH_CUDA_ARCH_LIST"].startswith("7.5")
    # With binutils >= 2.41 CMake has libraries written down by absolute path, which ninja takes for another file than
    # the one it makes: after an interrupted compile libtorch_cuda stayed out of date, and the swap refused.
    assert cache["CMAKE_LINK_DEPENDS_USE_LINKER"] == "OFF"
    objects = re.findall(r" object (\S+)$", rehearsal.ninja("-n"), re.MULTILINE)
    assert [name for name in objects if not any(part in name for part in PYTHON_SIDE)] == []


def test_only_the_python_side_of_the_model_includes_python(rehearsal: Rehearsal) -> None:
    blocks = (block for block in rehearsal.ninja("-t", "deps").split("\n\n") if ": #deps" in block)
    includes = {block.split(":")[0]: "Python.h" in block for block in blocks}
    core = [name for name in includes if not any(part in name for part in PYTHON_SIDE)]
    assert len(core) >= 20
    assert [name for name in core if includes[name]] == []
    # as in PyTorch, some objects of the Python side know nothing of Python and are still compiled anew for each
    assert sum(includes.values()) >= 6
    assert 2 <= len(includes) - len(core) - sum(includes.values()) <= 6


def test_the_engine_copies_no_tree_and_its_log_has_a_time_on_every_line(rehearsal: Rehearsal) -> None:
    state = rehearsal.options.state
    assert size_of(state / "out" / "build_cache") < size_of(state / "tree") / 2
    lines = [line for line in rehearsal.summary.log.read_text().splitlines() if line]
    stamped = [line for line in lines if re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", line)]
    assert len(stamped) > 0.99 * len(lines)


def test_a_second_run_does_nothing(rehearsal: Rehearsal) -> None:
    again = rehearse(rehearsal.options)
    assert not again.outlook.progress.missing
    assert {row.status for row in again.summary.packages} == {"skipped"}
    assert again.summary.seconds < 5


@pytest.mark.long  # the dates themselves: test_tree_dates
def test_a_tree_of_tomorrow_goes_on_where_it_stopped(rehearsal: Rehearsal) -> None:
    # as a clock that was ahead leaves it, and a run that was killed before it had packed anything
    options = rehearsal.options
    future.send(options.state / "tree", 86400)
    shutil.rmtree(options.packages)
    shutil.rmtree(options.state / "out")
    again = rehearse(options)
    assert again.summary.ok
    assert any("clock" in text and str(options.state) in text for text in again.sentences)
    lines = [text for text in again.lines if text.startswith("staging: ")]
    assert sum("Re-running CMake" in line for line in lines) <= 2
    compiled = [line.split()[-1] for line in lines if "Building" in line and " object " in line]
    assert compiled, "the Python side goes back from the last Python to staging's"
    assert [name for name in compiled if not name.startswith(("torch/", "functorch/"))] == []
    assert all(swap["core"] == 0 for swap in again.summary.swaps.values())
