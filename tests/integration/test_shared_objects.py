"""What the object cache of one config spares the next, on the CMake graphs of real PyTorch 2.6.0.

Real: PyTorch's source (Debian's package), the recipe's patches, scripts, flags and launcher, CMake with g++, nvcc and
MKL's wheels, ccache. Fake: most compiling. In place of each compiler ccache calls a stub, which hands over the list of
headers that a scan of the sources found, a superset of the compiler's. The preprocessor is real, and so are all
compilers for a sample of the kernels.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from debian_inputs import cuda_inputs, install_cuda_environment
from real_graph import DEPFILES, RECIPE, TOOLS, TREE
from small_files import program, write

from megabuild.isolation.base import Mount
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.providers.debian.cuda import HOST_COMPILER, NVCC

PYTHON = "3.12"
CACHE, PREFIX = "/opt/megabuild/ccache", "/tmp/prefix"
MKL = ("mkl==2026.2.0", "mkl-devel==2026.2.0", "mkl-include==2026.2.0")
#: The libraries that FindMKL links; the wheels have no names without a version.
MKL_LIBRARIES = ("mkl_core", "mkl_gnu_thread", "mkl_intel_thread", "mkl_intel_lp64", "mkl_sequential")
KERNELS, SEED = 20, 51
#: ccache calls it before each compiler. In ``STUB_DEPFILES`` it finds the lists of headers; CMake's checks are real.
STUB = """
case "$PWD" in *CMakeScratch*|*CMakeTmp*|*CompilerId*) exec "$@" ;; esac
[ -n "$STUB_DEPFILES" ] || exec "$@"
while [ $# -gt 0 ]; do
    case $1 in
        -o) output=$2; shift ;;
        -MF) depfile=$2; shift ;;
    esac
    shift
done
echo "$output" >"$output"
cp "$STUB_DEPFILES/$output.d" "$depfile"
"""
CONFIGURE = f"""
source {RECIPE}/backend.sh
(cd torch/csrc/jit/serialization && flatc --cpp --gen-mutable --scoped-enums mobile_bytecode.fbs)
configure_tree
"""
BINDINGS = re.compile(r"/CMakeFiles/(torch_python|functorch|nnapi_backend)\.dir/")
pytestmark = pytest.mark.long


@dataclass(frozen=True, kw_only=True)
class ConfiguredTree:
    """PyTorch's tree, configured for one accelerator and one BLAS; all trees are at the same path for builds."""

    root: Path
    work: Path
    recipe: Path
    tools: Path
    prefix: Path
    blas: str
    cuda: bool

    @property
    def build(self) -> Path:
        return self.work / "tree" / "build"

    def run(self, script: str, *, cache: Path, stub: bool = True) -> str:
        """Run a shell script in the tree with a folder of ccache's, and return its output."""
        isolation = Bubblewrap(root=self.root, network=False)
        env = {
            "PATH": f"{PREFIX}/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PREFIX": PREFIX, "SRC_DIR": TREE,
            "TORCH_TREE": TREE, "RECIPE_DIR": RECIPE, "CPU_COUNT": "2", "target_platform": "linux-64",
            "provider": "debian", "torch_source": "debian", "torch_version": "2.6.0", "torch_optimization": "0",
            "blas_impl": self.blas, "cuda_compiler_version": "12.4" if self.cuda else "None",
            "torch_cuda_arch_list": "9.0", "CC": "gcc", "CXX": "g++", "CFLAGS": f"-O2 -isystem {PREFIX}/include",
            "CXXFLAGS": f"-O2 -isystem {PREFIX}/include", "TORCH_CCACHE": "ccache", "CCACHE_DIR": CACHE,
            "CCACHE_PREFIX": f"{TOOLS}/stub", "CCACHE_STATSLOG": f"{CACHE}/stats",
        }  # fmt: skip
        if stub:
            env["STUB_DEPFILES"] = DEPFILES
        if self.cuda:
            env |= {"CUDACXX": f"/{NVCC}", "CUDAHOSTCXX": HOST_COMPILER, "CUDA_HOME": "/usr"}
        mounts = (
            Mount(source=self.work / "tree", target=TREE, writable=True),
            Mount(source=self.prefix, target=PREFIX),
            Mount(source=self.recipe, target=RECIPE),
            Mount(source=self.tools, target=TOOLS),
            Mount(source=cache, target=CACHE, writable=True),
        )
        command = isolation.command(
            ["bash", "-ec", f"source {RECIPE}/build_env.sh; cd {TREE}; {script}"],
            mounts=mounts,
            env=env,
            cwd=TREE,
            name="shared-objects",
        )
        done = subprocess.run(command, env=isolation.environment(env), capture_output=True, text=True)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done.stdout

    def prepare(self, cache: Path) -> None:
        """Configure, make the generated sources, and list the headers of each object."""
        self.run(CONFIGURE, cache=cache, stub=False)
        self.run(
            f"PYTHONPATH={RECIPE}/swap python3 {TOOLS}/prepare_stub_build.py build depfiles", cache=cache
        )

    def objects(self) -> list[str]:
        """Return the object files of the graph, relative to the build folder."""
        entries = json.loads((self.build / "compile_commands.json").read_text())
        return [re.search(r" -o (\S+)", entry["command"])[1] for entry in entries]  # type: ignore[index]

    def compile(self, objects: Iterable[str], cache: Path, *, stub: bool = True) -> list[tuple[str, str]]:
        """Compile objects, and return each source with ccache's result."""
        names = list(objects)
        if not names:
            return []
        for name in names:
            (self.build / name).unlink(missing_ok=True)
        (self.work / "tree" / "objects.txt").write_text("\n".join(names))
        log = cache / "stats"
        log.unlink(missing_ok=True)
        self.run("xargs -a objects.txt ninja -C build -j2", cache=cache, stub=stub)
        results = re.findall(
            r"^# (.*)\n(?:(?!#).*\n)*?(direct_cache_hit|preprocessed_cache_hit|cache_miss)$",
            log.read_text(),
            re.MULTILINE,
        )
        assert len(results) == len(names)
        return results


def count(results: Iterable[tuple[str, str]]) -> Counter[str]:
    return Counter(result for _, result in results)


def missed(results: Iterable[tuple[str, str]]) -> list[str]:
    return [source for source, result in results if result == "cache_miss"]


def copy_mkl(prefix: Path, wheels: Path) -> None:
    """Unpack MKL's wheels into an environment, as conda's packages would be."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(wheels), *MKL]
    if subprocess.run(command).returncode != 0:
        pytest.skip("no index has MKL's wheels")
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                inside = name.partition(".data/data/")[2]
                if inside.startswith(("lib/libmkl_", "include/")) and not name.endswith("/"):
                    write(prefix / inside, archive.read(name))
    for library in MKL_LIBRARIES:
        (versioned,) = (prefix / "lib").glob(f"lib{library}.so.*")
        (prefix / "lib" / f"lib{library}.so").symlink_to(versioned.name)


@pytest.fixture(scope="module")
def trees(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[bool, str], ConfiguredTree]:
    """Trees by accelerator (with CUDA or not) and BLAS."""
    inputs, top, recipe = cuda_inputs(), tmp_path_factory.mktemp("shared-objects"), repository / "recipe"
    tools = top / "tools"
    tools.mkdir()
    shutil.copy(Path(__file__).with_name("prepare_stub_build.py"), tools)
    program(tools / "stub", STUB)
    install_cuda_environment(repository, top / "prefix", ())
    shutil.copytree(top / "prefix", top / "with-mkl", symlinks=True)
    (top / "wheels").mkdir()
    copy_mkl(top / "with-mkl", top / "wheels")
    # as conda-forge's packages of both BLAS, so that the folder has the same place on command lines
    (top / "prefix/include/cblas.h").symlink_to("/usr/include/x86_64-linux-gnu/cblas.h")
    made = {}
    for cuda, blas in ((False, "generic"), (False, "mkl"), (True, "generic"), (True, "mkl")):
        work = top / f"{'cuda' if cuda else 'cpu'}-{blas}"
        shutil.copytree(inputs.source, work / "tree", symlinks=True)
        patches = [
            recipe / "patches/linalg-in-two-flavours.patch",
            *sorted((recipe / "patches/debian").iterdir()),
        ]
        for patch in patches:
            subprocess.run(["patch", "-s", "-p1", "-i", str(patch)], cwd=work / "tree", check=True)
        shutil.copy(recipe / "FindCUDA.cmake", work / "tree/cmake/Modules_CUDA_fix")
        subprocess.run([sys.executable, recipe / "separate_blas.py", work / "tree"], check=True)
        made[cuda, blas] = ConfiguredTree(
            root=inputs.root, work=work, recipe=recipe, tools=tools, blas=blas, cuda=cuda,
            prefix=top / ("with-mkl" if blas == "mkl" else "prefix"),
        )  # fmt: skip
    return made


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ccache")


def is_kernel(name: str) -> bool:
    return name.endswith(".cu.o")


def test_cuda_takes_libtorch_s_objects_from_the_cpu_config(
    trees: dict[tuple[bool, str], ConfiguredTree], cache: Path
) -> None:
    cpu, cuda = trees[False, "generic"], trees[True, "generic"]
    cpu.prepare(cache)
    cuda.prepare(cache)
    first = cpu.objects()
    assert set(count(cpu.compile(first, cache))) == {"cache_miss"}
    common = [name for name in cuda.objects() if name in set(first)]
    core = [name for name in common if not BINDINGS.search(name)]
    core_results = cuda.compile(core, cache)
    bindings = cuda.compile([name for name in common if BINDINGS.search(name)], cache)
    print(count(core_results), missed(core_results), count(bindings))
    assert len(core) - len(missed(core_results)) >= 1190
    # Of 154, 108 read no macro of CUDA's. For 21 of them the text depends on dates: for #pragma once, GCC takes a
    # second header for the first one if it has the same content and was written in the same second, as by torchgen.
    assert count(bindings)["preprocessed_cache_hit"] >= 80


def test_another_blas_compiles_the_files_that_read_it(
    trees: dict[tuple[bool, str], ConfiguredTree], cache: Path
) -> None:
    cuda = trees[True, "generic"]
    rest = [name for name in cuda.objects() if name not in set(trees[False, "generic"].objects())]
    cuda.compile(rest, cache)
    for tree in (trees[False, "mkl"], trees[True, "mkl"]):
        tree.prepare(cache)
        names = tree.objects()
        kernels = tree.compile(filter(is_kernel, names), cache)
        others = tree.compile((name for name in names if not is_kernel(name)), cache)
        print(tree.work.name, count(kernels), missed(kernels), count(others), missed(others))
        assert len(missed(kernels)) <= 3
        assert len(missed(others)) <= 80


def test_kernels_of_the_real_compiler_come_from_the_other_blas(
    trees: dict[tuple[bool, str], ConfiguredTree], tmp_path: Path
) -> None:
    generic, mkl = trees[True, "generic"], trees[True, "mkl"]
    kernels = random.Random(SEED).sample(sorted(filter(is_kernel, generic.objects())), KERNELS)
    assert set(count(generic.compile(kernels, tmp_path, stub=False))) == {"cache_miss"}
    assert missed(mkl.compile(kernels, tmp_path, stub=False)) in ([], ["LinearAlgebra.cu"])
    for name in kernels:
        assert (generic.build / name).read_bytes() == (mkl.build / name).read_bytes()


@pytest.mark.parametrize("condition", ["#ifndef __CUDA_ARCH__", "#if __CUDA_ARCH__ == 900"])
def test_nvcc_s_objects_are_never_found_by_their_text(
    trees: dict[tuple[bool, str], ConfiguredTree], tmp_path: Path, condition: str
) -> None:
    """`nvcc -E` prints one architecture's text: a change for the host or for another one would not be seen."""
    tree = trees[True, "generic"]
    source = tree.work / "tree" / "trial.cu"
    script = """
    IFS=';' read -ra launcher <<<"$CMAKE_CUDA_COMPILER_LAUNCHER"
    mkdir -p CMakeFiles/torch_python.dir
    "${launcher[@]}" "$CUDACXX" -ccbin "$CUDAHOSTCXX" -gencode arch=compute_80,code=sm_80 \\
        -gencode arch=compute_90,code=sm_90 -MD -MT trial.o -MF trial.d -x cu -c trial.cu \\
        -o CMakeFiles/torch_python.dir/trial.o
    sha256sum CMakeFiles/torch_python.dir/trial.o
    """
    made = []
    for number in (1, 2):
        source.write_text(
            f"#define NUMBER 0\n{condition}\n#undef NUMBER\n#define NUMBER {number}\n#endif\n"
            "__device__ __host__ int number() { return NUMBER; }\n"
            "__global__ void kernel(int *result) { *result = number(); }\n"
        )
        made.append(tree.run(script, cache=tmp_path, stub=False).split()[0])
    assert made[0] != made[1]
    assert (tmp_path / "stats").read_text().split().count("cache_miss") == 2
