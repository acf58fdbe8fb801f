"""PyTorch's real CMake graph with a fake compiler, in a Debian root: a tree to swap Pythons in."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rattler import Channel, VirtualPackage, install, solve

from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.isolation.mount import Mount
from ninja_dry_run import Graph

TREE = "/opt/megabuild/tree"
RECIPE = "/opt/megabuild/recipe"
TOOLS = "/opt/megabuild/tools"
DEPFILES = f"{TREE}/depfiles"  # inside the tree: the stub compiler hands them out as hard links
_OFF = (
    "CCACHE CUDA DISTRIBUTED FBGEMM GFLAGS GLOG GLOO ITT KINETO MKLDNN MPI NNPACK NUMA PYTORCH_QNNPACK QNNPACK ROCM "
    "TENSORPIPE VALGRIND XNNPACK XPU"
)


def install_prefix(channel: str, specs: Sequence[str], folder: Path) -> None:
    """Install packages into a folder."""

    async def work() -> None:
        records = await solve(
            [Channel(channel)],
            list(specs),
            platforms=["linux-64", "noarch"],
            virtual_packages=VirtualPackage.detect(),
        )
        await install(records, target_prefix=folder)

    asyncio.run(work())


@dataclass(kw_only=True)
class RealGraph:
    """A PyTorch tree in which every command runs with one of several Pythons at the same place.

    Parameters
    ----------
    root:
        Debian root.
    work:
        Folder with ``tree`` (the sources) and ``prefixes/<python>``, each of which was installed as
        ``prefix`` and then moved away.
    recipe, tools:
        The recipe's folder; the folder of the fake compiler and the include scan.
    """

    root: Path
    work: Path
    recipe: Path
    tools: Path
    build: Path = field(init=False)
    prefix: str = field(init=False)
    depfiles: Path = field(init=False)

    def __post_init__(self) -> None:
        self.build = self.work / "tree" / "build"
        self.prefix = str(self.work / "prefix")
        self.depfiles = self.work / "tree" / "depfiles"

    def run(
        self,
        python: str,
        argv: Sequence[str],
        *,
        stub: bool = False,
        environment: Mapping[str, str] | None = None,
        prefix: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the tree, with one Python in the prefix; ``stub``: compile nothing."""
        prefix = prefix or self.prefix
        isolation = Bubblewrap(root=self.root, network=False)
        env = {**self._environment(prefix), **({"STUB_DEPFILES": DEPFILES} if stub else {}), **(environment or {})}
        mounts = (
            Mount(source=self.work / "tree", target=TREE, writable=True),
            Mount(source=self.work / "prefixes" / python, target=prefix),
            Mount(source=self.recipe, target=RECIPE),
            Mount(source=self.tools, target=TOOLS),
        )
        command = isolation.command(argv, mounts=mounts, env=env, cwd=TREE, name="real-graph")
        return subprocess.run(
            command,
            env=isolation.environment(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
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
        self.must(python, ["ninja", "-C", "build", *self._generated()], stub=True)
        self.depfiles.mkdir(exist_ok=True)
        self.must(python, ["/usr/bin/python3", "-B", f"{TOOLS}/include_scan.py", "build", DEPFILES])
        self.must(python, ["ninja", "-C", "build", "-j2"], stub=True)

    def swap(
        self, python: str, *, environment: Mapping[str, str] | None = None, prefix: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run the Python swap to the Python in the prefix."""
        interpreter = f"{prefix or self.prefix}/bin/python"
        argv = [interpreter, f"{RECIPE}/python_swap.py", "build", "--python", interpreter, "--json"]
        return self.run(python, argv, environment=environment, prefix=prefix)

    def object_times(self) -> dict[str, int]:
        """Modification times of all objects, by path in the build folder."""
        return {
            str(path.relative_to(self.build)): path.stat().st_mtime_ns for path in self.build.rglob("CMakeFiles/**/*.o")
        }

    def objects_including(self, header: str) -> set[str]:
        """Objects whose header list has a header of that name."""
        return {
            str(path.relative_to(self.depfiles))[: -len(".d")]
            for path in self.depfiles.rglob("*.d")
            if f"/{header} " in path.read_text()
        }

    def _generated(self) -> list[str]:
        """Sources and headers that custom commands make: they must be there before anybody reads what they include."""
        return sorted(
            output
            for edge in Graph(self.build).edges
            if edge.rule == "CUSTOM_COMMAND"
            for output in edge.outputs
            if output.endswith((".h", ".cpp", ".c")) and "${" not in output
        )

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
            "PYTORCH_BUILD_VERSION": "2.6.0",
            "PYTORCH_BUILD_NUMBER": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "MAX_JOBS": "2",
        }
