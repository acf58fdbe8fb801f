"""The recipe's own staging and packing on the graph of real PyTorch 2.6.0 with the build back end of 2.14.

Real: PyTorch's source (Debian's package), its CMake run with a real compiler, its code generators, scikit-build-core,
pip, ninja, and the recipe's build_staging.sh and build_pytorch.sh as the engine would run them. Fake: compiling (see
test_swap_real_graph.py). The tree is made to build as 2.14's does (tests/data/backend-2.14): scikit-build-core in
pyproject.toml, setup.py a shim, the environment forwarded by CMake, ``torch._C`` a CMake target.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from debian_inputs import PACKAGES, debian_inputs
from real_graph import DEPFILES, RECIPE, TOOLS, TREE, RealGraph, announced_swap, prepare

STAGING = "3.12"
PYTHONS = (STAGING, "3.13", "3.11")  # in this order; the first is staging's own
MOST_STEPS = 170
VERSION = "2.6.0"
pytestmark = pytest.mark.long


def steps(said: str, phase: str) -> int:
    """Steps that ninja finished in a phase of a script."""
    parts = re.split(r"^::megabuild:: phase ", said, flags=re.MULTILINE)
    of_phase = "".join(part for part in parts if part.startswith(phase))
    return len(re.findall(r"^ *\[\d+/\d+ [^]]*\]", of_phase, re.MULTILINE))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> RealGraph:
    """2.6's sources with 2.14's back end, not configured."""
    packages = (*PACKAGES, "pip", "packaging", "scikit-build-core >=1.0")
    graph = prepare(
        tmp_path_factory.mktemp("backend"), debian_inputs(), PYTHONS, packages, repository / "recipe"
    )
    for patch in sorted((graph.recipe / "patches" / "debian").glob("*.patch")):
        graph.must(STAGING, ["patch", "-p1", "-i", f"{RECIPE}/patches/debian/{patch.name}"])
    shutil.copy(repository / "recipe" / "FindCUDA.cmake", graph.work / "tree")  # as the engine brings it
    give_the_back_end_of_2_14(graph.work / "tree", repository / "tests" / "data" / "backend-2.14")
    return graph


def give_the_back_end_of_2_14(tree: Path, data: Path) -> None:
    """Make a tree that setup.py builds one that scikit-build-core builds."""
    (tree / "pyproject.toml").write_bytes((data / "pyproject.toml").read_bytes())
    (tree / "setup.py").write_text('raise SystemExit("setup.py builds nothing any more")\n')
    (tree / "cmake" / "Environment.cmake").write_bytes((data / "Environment.cmake").read_bytes())
    project = "project(Torch CXX C)\n"
    replaced(tree / "CMakeLists.txt", project, f"{project}include(cmake/Environment.cmake)\n")
    module = tree / "torch" / "CMakeLists.txt"
    module.write_text(module.read_text() + (data / "Module.cmake").read_text())
    source_folder, wheel_folder = '"${CMAKE_CURRENT_SOURCE_DIR}")', '"${SKBUILD_PLATLIB_DIR}/functorch")'
    replaced(tree / "functorch" / "CMakeLists.txt", source_folder, wheel_folder)


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, f"{path}: {old}"
    path.write_text(text.replace(old, new))


def script(tree: RealGraph, python: str, name: str) -> subprocess.CompletedProcess[str]:
    """Run one of the recipe's scripts as the engine does."""
    environment: Mapping[str, str] = {
        "PATH": f"{TOOLS}/bin:{tree.prefix}/bin:/usr/bin:/bin",
        "PYTHONPATH": f"{RECIPE}/swap",  # for prepare_stub_build.py
        "STUB_LISTS": DEPFILES,
        # the stub's libraries hold nothing, no RPATH either
        "CMAKE_SKIP_RPATH": "ON",
        "PIP_NO_COMPILE": "1",
        "SRC_DIR": TREE,
        "TORCH_TREE": TREE,
        "RECIPE_DIR": RECIPE,
        "SP_DIR": f"{tree.prefix}/lib/python{python}/site-packages",
        "PY_VER": python,
        "CPU_COUNT": "2",
        "target_platform": "linux-64",
        "provider": "debian",
        "torch_source": "debian",
        "torch_version": VERSION,
        "torch_optimization": "2",
        "cuda_compiler_version": "None",
        "blas_impl": "generic",
    }
    # without the check of what was compiled, since the stub's libraries cannot be loaded
    command = f"sed '/^phase check$/,/^$/d' {RECIPE}/{name} | bash 2>&1"
    # one stream, so that what pip passes on stands in its phase
    return tree.run(python, ["bash", "-c", command], environment=environment, writable=True)


def run(tree: RealGraph, python: str, name: str) -> str:
    result = script(tree, python, name)
    assert result.returncode == 0, result.stdout[-6000:]
    return result.stdout


def test_staging_and_packing_compile_libtorch_once(tree: RealGraph) -> None:
    staged = run(tree, STAGING, "build_staging.sh")
    core = tree.core_times()
    assert len(core) > 1000
    assert (tree.work / "prefixes" / STAGING / "lib" / "libtorch_cpu.so").exists()
    print(f"\nstaging {STAGING}: {steps(staged, 'compile')} steps")
    for python in PYTHONS:
        # as the package libtorch would
        libtorch = [f"{tree.prefix}/bin/python", f"{RECIPE}/install_libtorch.py", "installed", tree.prefix]
        assert tree.run(python, libtorch, writable=True).returncode == 0
        said = run(tree, python, "build_pytorch.sh")
        announced, refused = announced_swap(said)
        now, packing = tree.core_times(), steps(said, "package")
        again = sum(now[path] != when for path, when in core.items()) + len(now.keys() - core.keys())
        print(f"{python}: announced {announced}, compiled {steps(said, 'python')}, packing {packing} steps")
        assert (refused, again) == (0, 0)
        assert announced <= (10 if python == STAGING else MOST_STEPS)
        assert packing < 10
        assert_libtorch_is_not_in_the_wheel(tree.work / "prefixes" / python, python)


def assert_libtorch_is_not_in_the_wheel(prefix: Path, python: str) -> None:
    packages = prefix / "lib" / f"python{python}" / "site-packages"
    (record,) = packages.glob("torch-*.dist-info/RECORD")
    names = [line.split(",")[0] for line in record.read_text().splitlines()]
    others = r"torch/(lib/lib(?!torch_python\.so)[^/]+\.so|bin/|include/ATen/|include/c10/|csrc/)"
    assert not [name for name in names if re.match(others, name)]
    soabi = f"cpython-{python.replace('.', '')}-x86_64-linux-gnu"
    assert [name for name in names if name.startswith("torch/_C.")] == [f"torch/_C.{soabi}.so"]
    assert (packages / "torch" / "lib" / "libtorch_cpu.so").resolve().parent == prefix / "lib"


def test_a_changed_flag_is_refused_after_the_back_ends_own_configuring(tree: RealGraph) -> None:
    core = tree.core_times()
    source = tree.work / "tree" / "c10" / "CMakeLists.txt"
    before = source.read_text()
    source.write_text(before + "target_compile_definitions(c10 PRIVATE ANOTHER_FLAG)\n")
    result = script(tree, "3.13", "build_pytorch.sh")
    assert result.returncode == 9
    assert re.search(r"\[c10\]: .*-DANOTHER_FLAG", result.stdout)
    assert tree.core_times() == core
    source.write_text(before)
