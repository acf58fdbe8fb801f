"""Both linear algebra flavours in the CMake graph of real PyTorch 2.6.0 with CUDA: what the second one costs.

Real: PyTorch's source, its CMake run with Debian's nvcc, MAGMA and compilers, the recipe's patches and CUDA module.
Nothing is compiled: ninja is asked for the commands behind each library.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from debian_inputs import PACKAGES, cuda_inputs, install_packages, python_channel
from real_graph import RealGraph

from megabuild.providers.debian.cuda import HOST_COMPILER, NVCC

PYTHON = "3.12"
pytestmark = pytest.mark.long


class CudaGraph(RealGraph):
    """The same graph with CUDA, as recipe/build_env.sh configures Debian's; without cuDNN, which is not in Debian."""

    def _environment(self, prefix: str) -> dict[str, str]:
        off = ("NCCL", "CUFILE", "CUSPARSELT", "CUDSS", "CUDNN", "FLASH_ATTENTION", "MEM_EFF_ATTENTION")
        return {
            **super()._environment(prefix),
            **{f"USE_{name}": "0" for name in off},
            "USE_CUDA": "1",
            "USE_MAGMA": "OFF",
            "BUILD_LAZY_CUDA_LINALG": "ON",
            "BUILD_LINALG_MAGMA": "ON",
            "TORCH_CUDA_ARCH_LIST": "9.0",
            "CUDACXX": f"/{NVCC}",
            "CUDAHOSTCXX": HOST_COMPILER,
            **dict.fromkeys(("CUDA_HOME", "CUDAToolkit_ROOT", "CUDA_TOOLKIT_ROOT_DIR", "MAGMA_HOME"), "/usr"),
        }


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> RealGraph:
    """The graph with CUDA and the patch for linear algebra, configured."""
    recipe, work, inputs = repository / "recipe", tmp_path_factory.mktemp("real-graph"), cuda_inputs()
    (work / "prefixes").mkdir()
    install_packages([f"python {PYTHON}.*", *PACKAGES], [python_channel((PYTHON,))], work / "prefix")
    (work / "prefix").rename(work / "prefixes" / PYTHON)
    stub = work / "tools" / "stub"
    stub.mkdir(parents=True)
    for name in ("gcc", "g++"):
        shutil.copy(Path(__file__).with_name("stub_compiler.sh"), stub / name)
        (stub / name).chmod(0o755)
    shutil.copytree(inputs.source, work / "tree", symlinks=True)
    made = CudaGraph(root=inputs.root, work=work, recipe=recipe, tools=work / "tools")
    patch = recipe / "patches" / "linalg-in-two-flavours.patch"
    subprocess.run(["patch", "-s", "-p1", "-i", patch], cwd=work / "tree", check=True)
    shutil.copy(recipe / "FindCUDA.cmake", work / "tree" / "cmake" / "Modules_CUDA_fix")
    made.configure(PYTHON)
    return made


def commands(graph: RealGraph, target: str) -> set[str]:
    return set(graph.must(PYTHON, ["ninja", "-C", "build", "-t", "commands", target]).splitlines()[1:])


def test_the_second_flavour_is_six_objects_and_a_link_and_no_other_source_has_magma(graph: RealGraph) -> None:
    plain, magma = commands(graph, "torch_cuda_linalg"), commands(graph, "torch_cuda_linalg_magma")
    own = magma - plain
    assert len(plain) > 1000, "libtorch_cpu and libtorch_cuda are behind it"
    assert sum(" -c " in command for command in own) == 6
    assert len(own) == 7
    assert sum(" -c " in command for command in plain - magma) == 6, "and the first one's are its own as well"
    assert all(" -DTORCH_LINALG_MAGMA" in command for command in own if " -c " in command)
    (link,) = (command for command in own if " -c " not in command)
    assert "libmagma.so" in link
    everything = commands(graph, "install")
    assert sum("TORCH_LINALG_MAGMA" in command for command in everything) == 6
    config = (graph.work / "tree/aten/src/ATen/cuda/CUDAConfig.h").read_text()
    assert (
        "#ifdef TORCH_LINALG_MAGMA\n#define AT_MAGMA_ENABLED() 1\n#else\n#define AT_MAGMA_ENABLED() 0\n"
        in config
    )
