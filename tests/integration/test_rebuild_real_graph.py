"""What a change costs on the CMake graphs of real PyTorch 2.6.0: objects removed, and made again by ninja.

As in test_swap_real_graph.py, only the compiler is fake. A scan of the sources says which headers an object includes, a
superset of the compiler's list. Changed headers of the system are in copies that are mounted over Debian's. The graph
for CUDA has the recipe's own settings.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from debian_inputs import PACKAGES, cuda_inputs, debian_inputs, install_cuda_environment
from real_graph import DEPFILES, RECIPE, TOOLS, RealGraph, lay_out, prepare

from megabuild.isolation.base import Mount
from megabuild.plan.environment_inputs import RECORD, EnvironmentInputs, read_inputs
from megabuild.providers.debian.cuda import HOST_COMPILER, NVCC

PYTHON = "3.12"
OLD = 1_500_000_000
SYSTEM_FOLDERS = ("/usr/include/x86_64-linux-gnu", "/usr/include")
#: Headers that all others of their package include, and the folder of the copies that are mounted over them.
PROTOBUF = "usr/include/google/protobuf/port_def.inc"
MAGMA = "usr/include/magma_types.h"
COPIES = "copies"
SITE = f"lib/python{PYTHON}/site-packages"
CUDA = {
    "provider": "debian",
    "torch_source": "debian",
    "torch_optimization": "2",
    "blas_impl": "generic",
    "cuda_compiler_version": "12.4",
    "torch_cuda_arch_list": "9.0",
    "CUDACXX": f"/{NVCC}",
    "CUDAHOSTCXX": HOST_COMPILER,
    "CUDA_HOME": "/usr",
}
pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Changed:
    """The result of a staging after a change."""

    configured: bool  #: CMake configured from scratch
    removed: int  #: objects
    compiled: int  #: objects, after that
    kept: frozenset[str]  #: those of them that were not removed


@dataclass(frozen=True)
class Staging:
    """A tree of a real graph, with the recipe's comparison of inputs."""

    graph: RealGraph

    @property
    def host(self) -> Path:
        """The environment."""
        return self.graph.work / "prefixes" / PYTHON

    @property
    def inputs(self) -> EnvironmentInputs:
        """The record, as a plan reads it."""
        found = read_inputs(self.graph.work / "tree")
        assert found is not None
        return found

    def run(self, command: str) -> str:
        """Run a command of tree_inputs."""
        words = ["/usr/bin/python3", "-B", f"{RECIPE}/tree_inputs", command, "build", "torch"]
        return self.graph.must(PYTHON, words)

    def configure(self) -> None:
        """Configure from scratch, as build_staging.sh does."""
        (self.graph.build / "CMakeCache.txt").unlink(missing_ok=True)
        self.graph.must(PYTHON, [f"{self.graph.prefix}/bin/python", "setup.py", "build", "--cmake-only"])
        (self.graph.build / "configured-with.txt").touch()

    def compile(self) -> None:
        """Build everything with the fake compiler."""
        scan = f"/usr/bin/python3 -B {TOOLS}/bin/prepare_stub_build.py build {DEPFILES}"
        words = ["env", f"PYTHONPATH={RECIPE}/swap", *scan.split(), *SYSTEM_FOLDERS]
        self.graph.must(PYTHON, words, stub=True)
        self.graph.must(PYTHON, ["ninja", "-C", "build", "-j2"], stub=True)

    def make(self) -> None:
        """Run the first staging."""
        self.graph.configure(PYTHON)
        (self.graph.build / "configured-with.txt").touch()
        self.run("begin")
        self.compile()
        print(self.run("record"))
        print(self.inputs.objects)
        for package in self.inputs.packages:
            print(package)

    def stage(self) -> Changed:
        """Run a staging, as build_staging.sh does."""
        before = self.graph.object_times()
        said = self.run("compare")
        print(said)
        survivors = self.graph.object_times()
        match = re.search(r"^::megabuild:: inputs .*?\bobjects=(\d+)", said, re.MULTILINE)
        assert match, said
        is_configured = (self.graph.build / "configured-with.txt").exists()
        if not is_configured:
            self.configure()
        self.run("begin")
        self.compile()
        print(self.run("record"))
        after = self.graph.object_times()
        compiled = sum(before.get(name) != date for name, date in after.items())
        kept = frozenset(name for name, date in survivors.items() if after.get(name) != date)
        return Changed(configured=not is_configured, removed=int(match[1]), compiled=compiled, kept=kept)

    def change(self, path: Path) -> None:
        """Change a header, and give it an older date."""
        text = path.read_text() + "\n/* changed */\n"
        path.unlink()
        path.write_text(text)
        os.utime(path, (OLD, OLD))


def lay_over(graph: RealGraph, *headers: str) -> None:
    """Mount copies over headers of the root, of which a test changes some."""
    mounts: list[Mount] = []
    for header in headers:
        copy = graph.work / COPIES / header
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(graph.root / header, copy)
        mounts.append(Mount(source=copy, target=f"/{header}"))
    graph.mounts = tuple(mounts)


@pytest.fixture(scope="module")
def staging(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Staging:
    """A tree for CPUs after its first staging."""
    work = tmp_path_factory.mktemp("rebuild")
    inputs = debian_inputs()
    graph = prepare(work, inputs, [PYTHON], PACKAGES, repository / "recipe")
    lay_over(graph, PROTOBUF)
    write_idna(work / "prefixes" / PYTHON, 1)
    made = Staging(graph=graph)
    made.make()
    return made


@pytest.fixture(scope="module")
def cuda_staging(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Staging:
    """A tree for CUDA after its first staging."""
    work = tmp_path_factory.mktemp("rebuild-cuda")
    inputs = cuda_inputs()
    (work / "prefixes").mkdir()
    install_cuda_environment(repository, work / "prefix", ())
    (work / "prefix").rename(work / "prefixes" / PYTHON)
    recipe = repository / "recipe"
    graph = lay_out(work, inputs, recipe)
    graph.variant = CUDA
    lay_over(graph, PROTOBUF, MAGMA)
    tree = work / "tree"
    patch = recipe / "patches" / "linalg-in-two-flavours.patch"
    subprocess.run(["patch", "-s", "-p1", "-i", str(patch)], cwd=tree, check=True)
    shutil.copy(recipe / "FindCUDA.cmake", tree / "cmake" / "Modules_CUDA_fix")
    subprocess.run([sys.executable, recipe / "separate_blas.py", tree], check=True)
    made = Staging(graph=graph)
    made.make()
    return made


def write_idna(prefix: Path, version: int) -> None:
    """Write a package that only scripts import."""
    folder = prefix / SITE / "idna"
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text(f"version = {version}\n")
    os.utime(folder / "__init__.py", (OLD, OLD))


def change_nothing(staging: Staging) -> None:
    """Change no file."""


def change_idna(staging: Staging) -> None:
    """Change a package that no object reads."""
    write_idna(staging.host, 2)


def change_protobuf(staging: Staging) -> None:
    """Change a header that all of protobuf's include."""
    staging.change(staging.graph.work / COPIES / PROTOBUF)


def change_numpy(staging: Staging) -> None:
    """Change a header that all of NumPy's include."""
    staging.change(staging.host / SITE / "numpy/_core/include/numpy/ndarrayobject.h")


def change_pybind11(staging: Staging) -> None:
    """Change a header that all of pybind11's include."""
    (header,) = (staging.host / SITE).glob("pybind11/include/pybind11/pybind11.h")
    staging.change(header)


def change_cudnn(staging: Staging) -> None:
    """Change a header that all of cuDNN's include."""
    staging.change(staging.host / "include" / "cudnn_version.h")


def change_magma(staging: Staging) -> None:
    """Change a header that all of MAGMA's include."""
    staging.change(staging.graph.work / COPIES / MAGMA)


def change_source(staging: Staging) -> None:
    """Patch one source file."""
    source = staging.graph.work / "tree" / "aten/src/ATen/native/Sorting.cpp"
    source.write_text(source.read_text() + "\n// changed\n")


def change_release(staging: Staging) -> None:
    """Take a patch release that differs in its version only: the settings change, so CMake configures from scratch."""
    staging.graph.version = "2.6.1"
    (staging.graph.work / "tree" / "version.txt").write_text("2.6.1\n")
    (staging.graph.build / "configured-with.txt").unlink()


#: Of libtorch.so: a configure from scratch writes its source again, which has no content.
WRITTEN_BY_CMAKE = frozenset({"caffe2/CMakeFiles/torch.dir/__/empty.cpp.o"})
#: Objects that are compiled for real, by the name of the tree's fixture.
COMPILED = {
    "staging": (
        "c10/CMakeFiles/c10.dir/core/Allocator.cpp.o",
        "c10/CMakeFiles/c10.dir/util/Logging.cpp.o",
    ),
    "cuda_staging": (
        "c10/cuda/CMakeFiles/c10_cuda.dir/CUDAStream.cpp.o",
        "caffe2/CMakeFiles/torch_cuda.dir/__/aten/src/ATen/native/cuda/CrossKernel.cu.o",
    ),
}
#: The most objects that a change of a package may remove.
MOST_REMOVED: Mapping[Callable[[Staging], None], int] = {
    change_nothing: 0,
    change_idna: 0,
    change_numpy: 8,
    change_protobuf: 12,
    change_pybind11: 165,
}
MOST_REMOVED_WITH_CUDA: Mapping[Callable[[Staging], None], int] = {
    change_nothing: 0,
    change_protobuf: 12,
    change_cudnn: 24,
    change_magma: 3,
}
#: The package by which a plan knows what a change costs.
PLANNED = {
    change_numpy: ("host", "numpy"),
    change_pybind11: ("host", "pybind11"),
    change_protobuf: ("system", "libprotobuf-dev"),
    change_cudnn: ("host", "libcudnn-dev"),
    change_magma: ("system", "libmagma-dev"),
}


def check_packages(staging: Staging, changes: Mapping[Callable[[Staging], None], int]) -> None:
    """Change packages, one after the other, and stage."""
    for change, most in changes.items():
        planned = 0
        if change in PLANNED:
            package = staging.inputs.named(*PLANNED[change])
            assert package is not None
            planned = package.objects.total
        change(staging)
        result = staging.stage()
        print(f"{change.__name__}: {planned} planned, {result}")
        assert result.removed <= planned <= most
        assert result.kept <= WRITTEN_BY_CMAKE
        assert result.compiled <= result.removed + len(result.kept)
        if most == 0:
            assert not result.configured
        else:
            assert result.removed > 0


def test_a_changed_package_costs_the_objects_that_read_it(staging: Staging) -> None:
    assert staging.inputs.objects.total > 1000
    check_packages(staging, MOST_REMOVED)


def test_so_does_a_package_of_cuda(cuda_staging: Staging) -> None:
    objects = cuda_staging.inputs.objects
    assert objects.kernels > 200
    assert objects.total > 1700
    check_packages(cuda_staging, MOST_REMOVED_WITH_CUDA)


@pytest.mark.parametrize("name", ["staging", "cuda_staging"])
def test_a_patch_and_a_patch_release_cost_the_objects_that_read_them(
    name: str, request: pytest.FixtureRequest
) -> None:
    staging: Staging = request.getfixturevalue(name)
    assert staging.stage().compiled == 0
    change_source(staging)
    patched = staging.stage()
    print(f"a patch: {patched}")
    assert not patched.configured
    assert patched.removed == 0
    assert patched.compiled == 1
    change_release(staging)
    released = staging.stage()
    print(f"a patch release: {released}")
    assert released.removed == 0
    readers = released.kept - WRITTEN_BY_CMAKE
    assert 5 <= len(readers) <= 15


@pytest.mark.parametrize(("name", "objects"), COMPILED.items())
def test_a_killed_first_compile_keeps_its_objects(
    name: str, objects: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    """Of real compilers: their lists name Debian's headers of Linux by the place to which links lead."""
    staging: Staging = request.getfixturevalue(name)
    tree = staging.graph.work / "tree"
    staging.graph.must(PYTHON, ["ninja", "-C", "build", "-t", "clean"])
    for record in (tree / RECORD, staging.graph.build / ".ninja_log", staging.graph.build / ".ninja_deps"):
        record.unlink()
    staging.run("begin")
    staging.graph.must(PYTHON, ["ninja", "-C", "build", "-j2", *objects])
    compiled = staging.graph.object_times()
    assert compiled.keys() == set(objects)
    headers = staging.graph.must(PYTHON, ["ninja", "-C", "build", "-t", "deps"])
    assert "/usr/lib/linux/" in headers
    said = staging.run("compare")
    assert " objects=0 " in said, said
    assert staging.graph.object_times() == compiled
