"""contrib's patches for the live pytorch-cpu-feedstock: they apply, and work on the graph of real PyTorch."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from debian_inputs import PACKAGES, debian_inputs
from feedstock_series import applied, build, give_libtorch, lay_out, must_build
from real_graph import RealGraph, prepare
from small_files import program
from test_backend_real_graph import give_the_back_end_of_2_14, replaced

STAGING = "3.12"  # build.sh and meta.yaml say so
PYTHONS = (STAGING, "3.13", "3.11")
MOST_STEPS = 175
ROOT = Path(__file__).resolve().parents[2]
PATCHES = {
    "2.13": ROOT / "contrib/pytorch-cpu-feedstock/stop-if-libtorch-is-compiled-again.patch",
    "2.14": ROOT / "contrib/pytorch-cpu-feedstock/build-2.14-in-one-directory.patch",
}
PYTHON_SIDE = """\
Building CXX object caffe2/torch/CMakeFiles/torch_python.dir/csrc/Module.cpp.o
Linking CXX shared library lib/libtorch_python.so
Building CXX object functorch/CMakeFiles/functorch.dir/csrc/dim/dim.cpp.o
Building CXX object caffe2/CMakeFiles/torch.dir/__/empty.cpp.o
Linking CXX shared library lib/libtorch.so
Install the project..."""


@pytest.mark.parametrize("release", PATCHES)
def test_a_patch_applies_alone(release: str, tmp_path: Path) -> None:
    recipe = applied(PATCHES[release], tmp_path / "feedstock")
    for script in recipe.glob("*.sh"):
        subprocess.run(["bash", "-n", str(script)], check=True)


def added_lines(folder: Path, ninja: str) -> subprocess.CompletedProcess[str]:
    """Run the lines that the patch adds to build.sh, with a ninja that is a script."""
    program(folder / "ninja", ninja)
    script = "set -ex\n" + "\n".join(re.findall(r"^\+(?!\+)(.*)", PATCHES["2.13"].read_text(), re.MULTILINE))
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "PY_VER": "3.13"}
    command = ["bash", "-c", script]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ("", False),
        ("Building CXX object c10/CMakeFiles/c10.dir/core/Device.cpp.o", True),
        ("Building CUDA object caffe2/CMakeFiles/torch_cuda.dir/x.cu.o", True),
        ("Linking CXX shared library lib/libtorch_cpu.so", True),
    ],
)
def test_only_the_python_side_may_be_compiled_again(more: str, refused: bool, tmp_path: Path) -> None:
    done = added_lines(tmp_path, f"cat <<'END'\n{PYTHON_SIDE}\n{more}\nEND")
    assert done.returncode == refused
    if refused:
        assert done.stdout.splitlines()[-1] == more


@pytest.mark.parametrize("ninja", ["case $* in *-n*) exit 1;; esac", "case $* in *-n*) ;; *) echo ok;; esac"])
def test_a_list_that_was_not_made_ends_the_build(ninja: str, tmp_path: Path) -> None:
    """`ninja -n` fails, or prints nothing: nothing was learnt."""
    assert added_lines(tmp_path, ninja).returncode == 1


@pytest.fixture(scope="module", params=PATCHES)
def tree(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, RealGraph]:
    """A tree for the feedstock's build.sh; what conda-build does before it has been done."""
    release = str(request.param)
    work = tmp_path_factory.mktemp(release)
    more = {"2.13": ("packaging", "wheel"), "2.14": ("packaging", "scikit-build-core >=1.0")}[release]
    graph = prepare(work, debian_inputs(), PYTHONS, (*PACKAGES, "pip", *more), work / "recipe")
    lay_out(graph, applied(PATCHES[release], work / "feedstock"), ROOT / "recipe" / "patches" / "debian")
    data = ROOT / "tests" / "data" / "backend-2.14"
    if release == "2.14":
        give_the_back_end_of_2_14(work / "tree", data)
        for python in PYTHONS:  # as the package cmake-python-swap would
            site = work / "prefixes" / python / "lib" / f"python{python}" / "site-packages"
            subprocess.run(["cp", "-r", ROOT / "recipe/swap/cmake_python_swap", site], check=True)
    else:  # CMake that takes the environment on every run, as 2.13's does
        (work / "tree/cmake/Environment.cmake").write_bytes((data / "Environment.cmake").read_bytes())
        project = "project(Torch CXX C)\n"
        replaced(work / "tree/CMakeLists.txt", project, f"{project}include(cmake/Environment.cmake)\n")
    return release, graph


@pytest.mark.long
def test_build_sh_compiles_libtorch_once_and_ends_before_it_would_again(tree: tuple[str, RealGraph]) -> None:
    release, graph = tree
    must_build(graph, STAGING, "libtorch")
    core = graph.core_times()
    assert len(core) > 1000
    give_libtorch(graph, STAGING, set(PYTHONS) - {STAGING})
    for python in PYTHONS:
        taken, now = must_build(graph, python, "pytorch"), graph.core_times()
        again = [path for path, when in now.items() if core.get(path) != when]
        assert len(again) <= (1 if release == "2.13" else 0), again  # sed: one empty source
        core = now
        assert taken <= MOST_STEPS + 10
        packages = graph.work / "prefixes" / python / "lib" / f"python{python}" / "site-packages"
        assert list(packages.glob(f"torch/_C.cpython-{python.replace('.', '')}-*.so"))
    source = graph.work / "tree" / "c10" / "CMakeLists.txt"
    before = source.read_text()
    source.write_text(before + "target_compile_definitions(c10 PRIVATE ANOTHER_FLAG)\n")
    result = build(graph, "3.13", "pytorch")
    source.write_text(before)
    assert result.returncode == (1 if release == "2.13" else 9), result.stdout[-3000:]
    assert "c10" in result.stdout
    assert graph.core_times() == core
