"""The Python swap on the CMake graph of real PyTorch 2.6.0, from every Python to every other.

Real: PyTorch's source (Debian's package), its CMake run with a real compiler, its code generators, ninja and its
records, the interpreters with NumPy and pybind11, and the swap itself. Fake: compiling. Once configured, a stub
compiler makes empty objects and libraries and hands ninja lists of headers that a scan of the sources found (a superset
of the compiler's), so that the whole graph "builds" in seconds. After each swap the tree is built, and the next swap
starts from what is there.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise, permutations
from pathlib import Path

import pytest
from debian_inputs import PACKAGES, debian_inputs
from real_graph import RealGraph, prepare

from cmake_python_swap.__main__ import EXIT_REFUSED
from cmake_python_swap.ninja_dry_run import Graph

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
STAGING = "3.12"
CIRCUIT = (
    "3.12", "3.13", "3.12", "3.11", "3.13", "3.11", "3.12", "3.10", "3.13", "3.10", "3.11", "3.10", "3.12",
)  # fmt: skip
MOST_STEPS = 164
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> RealGraph:
    """A tree configured for the staging Python and built completely."""
    work = tmp_path_factory.mktemp("real-graph")
    graph = prepare(work, debian_inputs(), PYTHONS, PACKAGES, repository / "recipe")
    graph.configure(STAGING)
    graph.compile(STAGING)
    return graph


def test_no_core_object_includes_a_python_header(tree: RealGraph) -> None:
    graph = Graph(tree.build)
    including = {graph.target(graph.by_output[each]) for each in tree.objects_including("Python.h")}
    assert including == {"torch_python", "functorch", "nnapi_backend"}


def test_swapping_from_every_python_to_every_other_leaves_libtorch_alone(tree: RealGraph) -> None:
    core = tree.core_times()
    assert len(core) > 1000
    assert set(pairwise(CIRCUIT)) == set(permutations(PYTHONS, 2))
    for before, after in pairwise(CIRCUIT):
        result = tree.swap(after)
        assert result.returncode == 0, result.stderr
        report = json.loads(result.stdout)
        assert f"::megabuild:: swap from={before} to={after} steps={report['steps']} core=0" in result.stderr
        print(f"{before} -> {after}: {report['steps']} steps, {report['objects']} objects")
        assert report["steps"] <= MOST_STEPS
        tree.compile(after)
    now = tree.object_times()
    assert {path: now[path] for path in core} == core, "a core object was made again"


def test_the_same_python_again_compiles_nothing(tree: RealGraph) -> None:
    result = tree.swap(STAGING)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["objects"] == 0


def test_a_changed_flag_in_the_environment_is_refused_before_anything_changes(tree: RealGraph) -> None:
    cache = (tree.build / "CMakeCache.txt").read_bytes()
    flags = f"-O3 -isystem {tree.prefix}/include"
    result = tree.swap("3.11", environment={"CXXFLAGS": flags})
    assert result.returncode == EXIT_REFUSED
    assert "$CXXFLAGS" in result.stderr
    assert "-O2 -fdebug-prefix-map" in result.stderr
    assert "became -O3" in result.stderr
    assert (tree.build / "CMakeCache.txt").read_bytes() == cache


def test_a_changed_flag_in_the_cache_is_refused_with_the_objects_and_the_reason(tree: RealGraph) -> None:
    cache = tree.build / "CMakeCache.txt"
    original = cache.read_bytes()
    changed = re.sub(rb"(?m)^(CMAKE_CXX_FLAGS:STRING=.*)$", rb"\1 -ggdb3", original)
    assert changed != original
    cache.write_bytes(changed)
    result = tree.swap("3.11", environment={"CXXFLAGS": ""})
    assert result.returncode == EXIT_REFUSED
    objects = re.search(r"would rebuild (\d+) files outside the Python side \((\d+) objects\)", result.stderr)
    assert objects is not None
    assert int(objects[2]) > 1000
    assert re.search(r"\[c10\]: .*\(with -ggdb3\)", result.stderr)
    assert result.stderr.count("(with -ggdb3)") == 20
    assert cache.read_bytes() == changed
    cache.write_bytes(original)
    assert json.loads(tree.swap(STAGING).stdout)["core"] == 0


def test_another_prefix_is_refused(tree: RealGraph) -> None:
    cache = (tree.build / "CMakeCache.txt").read_bytes()
    elsewhere = f"{tree.prefix}-of-another-output"
    result = tree.swap("3.11", prefix=elsewhere)
    assert result.returncode == EXIT_REFUSED
    assert re.search(f" {tree.prefix},.* {elsewhere}/bin/python .* {elsewhere}:", result.stderr)
    assert (tree.build / "CMakeCache.txt").read_bytes() == cache
