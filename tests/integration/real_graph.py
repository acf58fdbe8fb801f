"""PyTorch's real CMake graph with a fake compiler, in a Debian root: a tree to swap Pythons in."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from debian_inputs import DebianInputs, install_packages, python_channel

from cmake_python_swap.python_swap import PYTHON_TARGETS
from megabuild.isolation.base import Mount
from megabuild.isolation.bubblewrap import Bubblewrap

TREE = "/opt/megabuild/tree"
RECIPE = "/opt/megabuild/recipe"
TOOLS = "/opt/megabuild/tools"
DEPFILES = f"{TREE}/depfiles"  # inside the tree: the stub compiler hands them out as hard links
#: Runs a command with the recipe's settings; nvcc has the stub as its launcher, because CMake finds CUDA's files by
#: nvcc's place.
BUILD_ENVIRONMENT = f"""
source {RECIPE}/build_env.sh
export CMAKE_CUDA_COMPILER_LAUNCHER={TOOLS}/stub/launcher
exec "$@"
"""
_OFF = (
    "CCACHE CUDA DISTRIBUTED FBGEMM GFLAGS GLOG GLOO ITT KINETO MKLDNN MPI NNPACK NUMA PYTORCH_QNNPACK QNNPACK ROCM "
    "TENSORPIPE VALGRIND XNNPACK XPU"
)


def prepare(
    work: Path, inputs: DebianInputs, pythons: Sequence[str], packages: Sequence[str], recipe: Path
) -> RealGraph:
    """Lay out a tree, a prefix for each Python with these packages, and the tools."""
    channel = python_channel(tuple(pythons), packages)
    (work / "prefixes").mkdir()
    for python in pythons:
        # Installing writes the prefix into scripts and sysconfig: each is installed at the one place it is used at.
        install_packages([f"python {python}.*", *packages], [channel], work / "prefix")
        (work / "prefix").rename(work / "prefixes" / python)
    return lay_out(work, inputs, recipe)


def lay_out(work: Path, inputs: DebianInputs, recipe: Path) -> RealGraph:
    """Lay out a tree and the tools beside prefixes that are there already."""
    here, tools = Path(__file__).parent, work / "tools"
    (tools / "stub").mkdir(parents=True)
    (tools / "bin").mkdir()
    shutil.copy(here / "prepare_stub_build.py", tools / "bin")
    for program in ("stub/gcc", "stub/g++", "stub/launcher", "bin/cmake"):
        shutil.copy(here / ("stub_cmake.sh" if "cmake" in program else "stub_compiler.sh"), tools / program)
        (tools / program).chmod(0o755)
    shutil.copytree(inputs.source, work / "tree", symlinks=True)
    return RealGraph(root=inputs.root, work=work, recipe=recipe, tools=tools)


def announced_swap(said: str) -> tuple[int, int]:
    """Return steps and core objects of the swap that a build script's output announces."""
    match = re.search(r"^::megabuild:: swap from=\S+ to=\S+ steps=(\d+) core=(\d+)$", said, re.MULTILINE)
    assert match, said[-2000:]
    return int(match[1]), int(match[2])


@dataclass(kw_only=True)
class RealGraph:
    """A PyTorch tree in which every command runs with one of several Pythons at the same place.

    `work`: folder with ``tree`` (the sources) and ``prefixes/<python>``, each of which was installed as ``prefix``
      and then moved away.
    `recipe`, `tools`: the recipe's folder; the folder of the fake compiler and of the scan of headers.
    `variant`: values of a config; with them, the recipe's build_env.sh sets the environment.
    """

    root: Path
    work: Path
    recipe: Path
    tools: Path
    mounts: tuple[Mount, ...] = ()  #: over files of the root
    variant: Mapping[str, str] = field(default_factory=dict)
    version: str = "2.6.0"  #: of PyTorch

    @property
    def build(self) -> Path:
        """The build folder."""
        return self.work / "tree" / "build"

    @property
    def prefix(self) -> str:
        """Where each Python is while it is used."""
        return str(self.work / "prefix")

    def run(
        self,
        python: str,
        argv: Sequence[str],
        *,
        stub: bool = False,
        environment: Mapping[str, str] | None = None,
        prefix: str = "",
        writable: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the tree, with one Python in the prefix; ``stub``: compile nothing."""
        prefix = prefix or self.prefix
        isolation = Bubblewrap(root=self.root, network=False)
        if self.variant:
            argv = ["bash", "-ec", BUILD_ENVIRONMENT, "bash", *argv]
        env = {
            **self._environment(prefix),
            **({"STUB_DEPFILES": DEPFILES} if stub else {}),
            **(environment or {}),
        }
        mounts = (
            Mount(source=self.work / "tree", target=TREE, writable=True),
            Mount(source=self.work / "prefixes" / python, target=prefix, writable=writable),
            Mount(source=self.recipe, target=RECIPE),
            Mount(source=self.tools, target=TOOLS),
            *self.mounts,
        )
        command = isolation.command(argv, mounts=mounts, env=env, cwd=TREE, name="real-graph")
        return subprocess.run(
            command, env=isolation.environment(env), stdin=subprocess.DEVNULL, capture_output=True, text=True
        )

    def must(self, python: str, argv: Sequence[str], *, stub: bool = False) -> str:
        """Run a command that must succeed; returns its output."""
        result = self.run(python, argv, stub=stub)
        assert result.returncode == 0, f"{argv}: {(result.stdout + result.stderr)[-3000:]}"
        return result.stdout

    def configure(self, python: str) -> None:
        """Apply the recipe's patches and configure the tree, with the real compiler."""
        for patch in sorted((self.recipe / "patches" / "debian").glob("*.patch")):
            self.must(python, ["patch", "-p1", "-i", f"{RECIPE}/patches/debian/{patch.name}"])
        self.must(python, [f"{self.prefix}/bin/python", "setup.py", "build", "--cmake-only"])

    def compile(self, python: str) -> None:
        """Build everything with the fake compiler; generators run for real, and header lists are up to date."""
        scan = (
            f"PYTHONPATH={RECIPE}/swap /usr/bin/python3 -B {TOOLS}/bin/prepare_stub_build.py build {DEPFILES}"
        )
        self.must(python, ["env", *scan.split()], stub=True)
        self.must(python, ["ninja", "-C", "build", "-j2"], stub=True)

    def swap(
        self, python: str, *, environment: Mapping[str, str] | None = None, prefix: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run the Python swap to the Python in the prefix."""
        interpreter = f"{prefix or self.prefix}/bin/python"
        argv = [interpreter, f"{RECIPE}/swap/cmake_python_swap", "apply", "build"]
        argv += ["--python", interpreter, "--json"]
        return self.run(python, argv, environment=environment, prefix=prefix)

    def object_times(self) -> dict[str, int]:
        """Modification times of all objects, by path in the build folder; without those of CMake's own tests."""
        return {
            str(path.relative_to(self.build)): path.stat().st_mtime_ns
            for path in self.build.rglob("CMakeFiles/**/*.dir/**/*.o")
        }

    def core_times(self) -> dict[str, int]:
        """The same for objects outside the Python side."""
        python_side = tuple(f"/CMakeFiles/{target}.dir/" for target in PYTHON_TARGETS)
        times = self.object_times()
        return {path: when for path, when in times.items() if not any(each in path for each in python_side)}

    def objects_including(self, header: str) -> set[str]:
        """Objects whose header list has a header of that name."""
        lists = self.work / "tree" / "depfiles"
        return {
            str(path.relative_to(lists))[: -len(".d")]
            for path in lists.rglob("*.d")
            if f"/{header} " in path.read_text()
        }

    def _environment(self, prefix: str) -> dict[str, str]:
        flags = f"-O2 -isystem {prefix}/include -fdebug-prefix-map={TREE}=/usr/local/src/conda/libtorch-2.6.0"
        return {
            "PATH": f"{prefix}/bin:/usr/bin:/bin",
            "HOME": "/tmp",
            "LC_ALL": "C.UTF-8",
            "PREFIX": prefix,
            "CC": f"{TOOLS}/stub/gcc",
            "CXX": f"{TOOLS}/stub/g++",
            "CFLAGS": flags,
            "CXXFLAGS": flags,
            "CMAKE_GENERATOR": "Ninja",
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_PREFIX_PATH": prefix,
            **{f"USE_{name}": "0" for name in _OFF.split()},
            "USE_SYSTEM_LIBS": "ON",
            "BUILD_TEST": "0",
            "INSTALL_TEST": "0",
            "BUILD_CUSTOM_PROTOBUF": "OFF",
            "BLAS": "Generic",
            "GENERIC_BLAS_LIBRARIES": "blas",
            "ONNX_NAMESPACE": "onnx",
            "_GLIBCXX_USE_CXX11_ABI": "1",
            "PYTORCH_BUILD_VERSION": self.version,
            "PYTORCH_BUILD_NUMBER": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "MAX_JOBS": "2",
            **self._variant(prefix),
        }

    def _variant(self, prefix: str) -> dict[str, str]:
        if not self.variant:
            return {}
        return {
            **self.variant,
            "torch_version": self.version,
            "SRC_DIR": TREE,
            "TORCH_TREE": TREE,
            "RECIPE_DIR": RECIPE,
            "CPU_COUNT": "2",
            "target_platform": "linux-64",
            "PYTHON": f"{prefix}/bin/python",
        }
