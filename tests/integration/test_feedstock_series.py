"""contrib's series for the live pytorch-cpu-feedstock: it applies, and what it changes works on real PyTorch's graph.

Real: the feedstock's files with the series, its whole build.sh as conda-build would run it, PyTorch 2.6.0's source and
CMake, its generators, ninja, setuptools, scikit-build-core and pip. Fake: compiling (see test_swap_real_graph.py). Two
things are Debian's: which libraries are switched on, and the back end of 2.14 (tests/data/backend-2.14).
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from debian_inputs import PACKAGES, debian_inputs
from feedstock_series import BUILDS, applied, build, feedstock, give_rsync, lay_out, must_build
from real_graph import RealGraph, prepare
from test_backend_real_graph import give_the_back_end_of_2_14, replaced
from test_linalg_real_graph import CudaGraph, commands, cuda_graph

STAGING = "3.12"  # build.sh and meta.yaml say so
PYTHONS = (STAGING, "3.13", "3.11")
MOST_STEPS = 175
#: Files of PyTorch's that build.sh edits with sed.
EDITED = ("torch/_inductor/cpp_builder.py", "torch/utils/cpp_extension.py", "setup.py")


@pytest.fixture(scope="module")
def series(repository: Path) -> ModuleType:
    """contrib/make_series.py."""
    spec = importlib.util.spec_from_file_location("make_series", repository / "contrib" / "make_series.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def patches(series: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    made: list[Path] = series.make(feedstock(), series.MADE_FOR, tmp_path_factory.mktemp("series"))
    return made


@pytest.mark.parametrize("numbers", ["1", "12", "13", "123"])
def test_the_series_applies_whole_and_in_parts(
    series: ModuleType, patches: list[Path], repository: Path, tmp_path: Path, numbers: str
) -> None:
    chosen = [patches[int(number) - 1] for number in numbers]
    recipe = applied(feedstock(), series.MADE_FOR, chosen, tmp_path / "feedstock") / "recipe"
    for script in recipe.glob("*.sh"):
        subprocess.run(["bash", "-n", str(script)], check=True)
    swap = {path.name: path.read_bytes() for path in (recipe / "cmake_python_swap").glob("*.py")}
    own = repository / "recipe" / "swap" / "cmake_python_swap"
    assert swap == {path.name: path.read_bytes() for path in own.glob("*.py")}
    command = [sys.executable, "-I", "-B", str(recipe / "cmake_python_swap"), "--help"]
    assert "apply" in subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout
    (meta,) = recipe.glob("meta.yaml")
    named = "patches/0024-Build-the-linear-algebra-library-in-two-flavours.patch"
    assert (named in meta.read_text()) == (recipe / named).exists() == ("2" in numbers)


def real_graph(
    work: Path, series: ModuleType, chosen: list[Path], repository: Path, packages: tuple[str, ...]
) -> RealGraph:
    """A tree for a build.sh of the feedstock; what conda-build does before it has been done."""
    graph = prepare(work, debian_inputs(), PYTHONS, packages, work / "recipe")
    recipe = applied(feedstock(), series.MADE_FOR, chosen, work / "feedstock") / "recipe"
    lay_out(graph, recipe, repository / "recipe" / "patches" / "debian")
    return graph


@pytest.fixture(scope="module")
def tree_of_2_13(
    series: ModuleType, patches: list[Path], repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> RealGraph:
    """setup.py, and CMake that takes the environment on every run, as 2.13's does."""
    packages = (*PACKAGES, "pip", "packaging", "wheel")
    graph = real_graph(tmp_path_factory.mktemp("2.13"), series, patches[:1], repository, packages)
    forwarding = repository / "tests" / "data" / "backend-2.14" / "Environment.cmake"
    (graph.work / "tree" / "cmake" / "Environment.cmake").write_bytes(forwarding.read_bytes())
    project = "project(Torch CXX C)\n"
    replaced(graph.work / "tree" / "CMakeLists.txt", project, f"{project}include(cmake/Environment.cmake)\n")
    return graph


@pytest.fixture(scope="module")
def tree_of_2_14(
    series: ModuleType, patches: list[Path], repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> RealGraph:
    """2.14's build back end."""
    packages = (*PACKAGES, "pip", "packaging", "scikit-build-core >=1.0")
    chosen = [patches[0], patches[2]]
    graph = real_graph(tmp_path_factory.mktemp("2.14"), series, chosen, repository, packages)
    give_the_back_end_of_2_14(graph.work / "tree", repository / "tests" / "data" / "backend-2.14")
    return graph


@pytest.mark.debian
@pytest.mark.long
@pytest.mark.parametrize("version", ["2_13", "2_14"])
def test_build_sh_compiles_libtorch_once(
    version: str, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    tree: RealGraph = request.getfixturevalue(f"tree_of_{version}")
    staged = must_build(tree, STAGING, "libtorch")
    rows = [f"libtorch: {staged.steps} steps", *python_sides(tree, record_property)]
    print("\n" + "\n".join(rows))


def python_sides(tree: RealGraph, record_property: Callable[[str, object], None]) -> list[str]:
    """Build the package pytorch for every Python over a libtorch that is built; says in a line what each took."""
    core = tree.core_times()
    assert len(core) > 1000
    give_libtorch_to_every_python(tree)
    rows = []
    for python in PYTHONS:
        built = must_build(tree, python, "pytorch")
        announced, refused = built.announced
        now = tree.core_times()
        again = sum(now[path] != when for path, when in core.items()) + len(now.keys() - core.keys())
        rows.append(f"{python}: announced {announced}, ran {built.steps}, {again} core objects")
        record_property(python, rows[-1])
        assert (refused, again) == (0, 0), rows
        assert announced <= (10 if python == STAGING else MOST_STEPS)
        packages = tree.work / "prefixes" / python / "lib" / f"python{python}" / "site-packages"
        assert list(packages.glob(f"torch/_C.cpython-{python.replace('.', '')}-*.so"))
        linked = packages / "torch" / "lib" / "libtorch_cpu.so"
        assert str(linked.readlink()) == f"{tree.prefix}/lib/libtorch_cpu.so"
    return rows


def give_libtorch_to_every_python(tree: RealGraph) -> None:
    """Copy what the libtorch output laid into its environment into the others, as its package would bring it."""
    prefixes = tree.work / "prefixes"
    places = ["bin/torch_shm_manager", "share/cmake/Torch", "include/ATen", "include/c10", "include/torch"]
    places += ["include/caffe2"]
    places += [
        f"lib/{path.name}" for path in (prefixes / STAGING / "lib").glob("lib[cts]*.so*") if is_ours(path)
    ]
    for python in set(PYTHONS) - {STAGING}:
        for place in places:
            (prefixes / python / place).parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", prefixes / STAGING / place, prefixes / python / place], check=True)


def is_ours(library: Path) -> bool:
    return library.name.startswith(("libc10", "libtorch", "libshm"))


@pytest.mark.debian
@pytest.mark.long
@pytest.mark.parametrize("version", ["2_13", "2_14"])
def test_build_sh_ends_before_libtorch_is_compiled_again(
    version: str, request: pytest.FixtureRequest
) -> None:
    tree: RealGraph = request.getfixturevalue(f"tree_of_{version}")
    core = tree.core_times()
    assert len(core) > 1000, "the test before this one has built it"
    source = tree.work / "tree" / "c10" / "CMakeLists.txt"
    before = source.read_text()
    source.write_text(before + "target_compile_definitions(c10 PRIVATE ANOTHER_FLAG)\n")
    result = build(tree, "3.13", "pytorch")
    source.write_text(before)
    assert result.returncode == 9
    assert "[c10]: its command line changed (with -DANOTHER_FLAG)" in result.stdout
    assert tree.core_times() == core


@pytest.fixture(scope="module")
def linalg_recipe(series: ModuleType, patches: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The feedstock's recipe with the swap and both flavours of the linear algebra library."""
    folder = tmp_path_factory.mktemp("linalg") / "feedstock"
    return applied(feedstock(), series.MADE_FOR, patches[:2], folder) / "recipe"


def test_each_linalg_package_has_its_flavour_and_pytorch_has_none(
    linalg_recipe: Path, tmp_path: Path
) -> None:
    """build.sh and build_linalg.sh with CUDA, where Python builds nothing and lays out what PyTorch's would."""
    source, prefix, lib = tmp_path / "work", tmp_path / "prefix", "torch/lib"
    both = ["libtorch_cuda_linalg.so", "libtorch_cuda_linalg_magma.so"]
    site = prefix / "lib/python3.13/site-packages"
    for place in (prefix / "bin", prefix / "share", prefix / "include", source / "torch/_inductor", site):
        place.mkdir(parents=True)
    for name in EDITED:
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text("")
    (source / "third_party/NNPACK/cmake").mkdir(parents=True)
    (source / "build").mkdir()
    (source / "build/CMakeCache.txt").write_text("")
    python = prefix / "bin/python"
    python.write_text(
        f"""#!/bin/sh
echo building
case "$*" in *setup.py*) at=build/lib.linux/torch ;; *"pip install"*) at={site}/torch ;; *) exit 0 ;; esac
mkdir -p $at/lib $at/bin $at/share/cmake $at/include/ATen
for name in ATen caffe2 tensorpipe torch c10; do mkdir -p $at/include/$name; done
touch $at/bin/torch_shm_manager
for name in cuda python cuda_linalg cuda_linalg_magma; do echo libtorch_$name >$at/lib/libtorch_$name.so; done
"""
    )
    give_rsync(tmp_path)
    python.chmod(0o755)

    def run(script: str, package: str, **more: str) -> None:
        environment = {
            "PATH": f"{tmp_path}:/usr/bin:/bin", "PREFIX": str(prefix), "BUILD_PREFIX": str(prefix),
            "SRC_DIR": str(source), "RECIPE_DIR": str(linalg_recipe), "SP_DIR": str(site), "SHLIB_EXT": ".so",
            "CPU_COUNT": "2", "CXX": "c++", "c_compiler": "gcc", "PKG_NAME": package, "PKG_VERSION": "2.13.0",
            "PY_VER": "3.13", "target_platform": "linux-64", "build_platform": "linux-64", "blas_impl": "mkl",
            "cuda_compiler_version": "13.0",
        }  # fmt: skip
        command = ["bash", str(linalg_recipe / script)]
        result = subprocess.run(
            command, cwd=source, env={**environment, **more}, check=False, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stderr[-2000:]

    run("build.sh", "libtorch")
    assert [path.name for path in (prefix / "lib").glob("libtorch*")] == ["libtorch_cuda.so"]
    for flavour, made in (("nomagma", both[:1]), ("magma", both)):
        run("build_linalg.sh", "libtorch-cuda-linalg", linalg_backend=flavour)
        found = sorted((prefix / "lib").glob("libtorch_cuda_linalg*"))
        assert [path.name for path in found] == made
        assert found[0].resolve().read_text() == f"{Path(made[-1]).stem}\n"
        run("build.sh", "pytorch")
        packed = sorted((site / lib).glob("*linalg*"))
        assert [(path.name, str(path.readlink())) for path in packed] == [
            (both[0], str(prefix / "lib" / both[0]))
        ]
        for path in found:
            path.unlink()
        shutil.rmtree(site / "torch")


@pytest.mark.debian
@pytest.mark.long
def test_both_flavours_are_in_the_graph_that_build_sh_asks_for(
    linalg_recipe: Path, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    words = exported(linalg_recipe / "build.sh", tmp_path_factory.mktemp("environment"))
    assert words["USE_MAGMA"] == "0"

    class FeedstockGraph(CudaGraph):
        def _environment(self, prefix: str) -> dict[str, str]:
            asked = {
                name: words[name] for name in ("USE_MAGMA", "BUILD_LAZY_CUDA_LINALG", "BUILD_LINALG_MAGMA")
            }
            return {**super()._environment(prefix), **asked}

    work = tmp_path_factory.mktemp("real-graph")
    (name,) = (linalg_recipe / "patches").glob("0024-*.patch")
    graph = cuda_graph(work, repository / "recipe", name, FeedstockGraph)
    plain, magma = commands(graph, "torch_cuda_linalg"), commands(graph, "torch_cuda_linalg_magma")
    assert len(plain) > 1000
    assert sum(" -c " in command for command in magma - plain) == 6
    assert len(magma - plain) == 7


def exported(build_sh: Path, folder: Path) -> dict[str, str]:
    """What build.sh has in its environment when it begins to build with CUDA."""
    text = build_sh.read_text()
    (folder / "build.sh").write_text(text[: text.index(BUILDS)] + "\nenv -0 >environment\n")
    for name in EDITED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / "third_party/NNPACK/cmake").mkdir(parents=True)
    environment = {
        "PATH": "/usr/bin:/bin", "PREFIX": f"{folder}/prefix", "SRC_DIR": str(folder), "PKG_NAME": "libtorch",
        "PY_VER": "3.12", "blas_impl": "mkl", "CPU_COUNT": "2", "target_platform": "linux-64",
        "build_platform": "linux-64", "cuda_compiler_version": "13.0",
    }  # fmt: skip
    subprocess.run(["bash", "build.sh"], cwd=folder, env=environment, check=True, capture_output=True)
    words = (folder / "environment").read_text().split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)
