"""What a changed package costs on the CMake graph of real PyTorch 2.6.0: objects removed, and made again by ninja.

As in test_swap_real_graph.py, only the compiler is fake. A scan of the sources says which headers an object includes, a
superset of the compiler's list. Changed headers are in a copy that is mounted over Debian's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from debian_inputs import PACKAGES, debian_inputs
from real_graph import DEPFILES, RECIPE, TOOLS, RealGraph, prepare

from megabuild.isolation.base import Mount

PYTHON = "3.12"
OLD = 1_500_000_000
SYSTEM_FOLDERS = ("/usr/include/x86_64-linux-gnu", "/usr/include")
PROTOBUF = "usr/include/google/protobuf"
SITE = f"lib/python{PYTHON}/site-packages"
pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Changed:
    """The result of a staging after a change."""

    configured: bool  #: CMake configured from scratch
    removed: int  #: objects
    compiled: int  #: objects, after that


@dataclass(frozen=True)
class Staging:
    """A tree of the real graph, with the recipe's comparison of inputs."""

    graph: RealGraph
    protobuf: Path  #: the copy of its headers

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

    def stage(self) -> Changed:
        """Run a staging, as build_staging.sh does."""
        before = self.graph.object_times()
        said = self.run("compare")
        print(said)
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
        return Changed(configured=not is_configured, removed=int(match[1]), compiled=compiled)

    def change(self, path: Path) -> None:
        """Change a header, and give it an older date."""
        text = path.read_text() + "\n/* changed */\n"
        path.unlink()
        path.write_text(text)
        os.utime(path, (OLD, OLD))


@pytest.fixture(scope="module")
def staging(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Staging:
    """A tree after its first staging."""
    work = tmp_path_factory.mktemp("rebuild")
    inputs = debian_inputs()
    graph = prepare(work, inputs, [PYTHON], PACKAGES, repository / "recipe")
    overlay = work / "protobuf"
    shutil.copytree(inputs.root / PROTOBUF, overlay, symlinks=True)
    graph = replace(graph, mounts=(Mount(source=overlay, target=f"/{PROTOBUF}"),))
    write_idna(work / "prefixes" / PYTHON, 1)
    graph.configure(PYTHON)
    made = Staging(graph=graph, protobuf=overlay)
    (graph.build / "configured-with.txt").touch()
    made.run("begin")
    made.compile()
    print(made.run("record"))
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
    write_idna(staging.graph.work / "prefixes" / PYTHON, 2)


def change_protobuf(staging: Staging) -> None:
    """Change a header that all of protobuf's include."""
    staging.change(staging.protobuf / "port_def.inc")


def change_numpy(staging: Staging) -> None:
    """Change a header that all of NumPy's include."""
    include = staging.graph.work / "prefixes" / PYTHON / SITE / "numpy/_core/include/numpy"
    staging.change(include / "ndarrayobject.h")


def change_pybind11(staging: Staging) -> None:
    """Change a header that all of pybind11's include."""
    (header,) = (staging.graph.work / "prefixes" / PYTHON / SITE).glob("pybind11/include/pybind11/pybind11.h")
    staging.change(header)


#: The most objects that a change may cost.
MOST: Mapping[Callable[[Staging], None], int] = {
    change_nothing: 0,
    change_idna: 0,
    change_numpy: 8,
    change_protobuf: 12,
    change_pybind11: 165,
}


def test_a_changed_package_costs_the_objects_that_read_it(staging: Staging) -> None:
    record = json.loads((staging.graph.build / "environment-inputs.json").read_text())
    print(record["objects"])
    for package in record["packages"]:
        print(package)
    assert sum(record["objects"].values()) > 1000
    for change, most in MOST.items():
        change(staging)
        result = staging.stage()
        print(f"{change.__name__}: {result}")
        assert result.removed <= most
        # a configure from scratch writes a source of libtorch.so again
        assert result.compiled <= result.removed + result.configured
        if most == 0:
            assert not result.configured
        else:
            assert result.removed > 0
