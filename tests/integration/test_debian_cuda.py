"""Debian's CUDA under conda-forge's names: what the packages hold is enough where Debian's CUDA is not, and nvcc works.

Makes a root of 8 GB, of which 2 GB are downloaded.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from debian_inputs import cuda_inputs, debian_inputs, install_cuda_environment

from megabuild.providers.debian.root import enter

pytestmark = pytest.mark.long
LOAD = """
import ctypes, glob
for library in sorted(glob.glob("/mnt/lib/lib*.so.*")):
    ctypes.CDLL(library)
print(len(glob.glob("/mnt/lib/libcu*.so.*")))
"""
COMPILE = """
export CONDA_PREFIX=/mnt
for file in /mnt/etc/conda/activate.d/*.sh; do . "$file"; done
cat > /tmp/kernel.cu <<'END'
#include <cublas_v2.h>
#include <magma_v2.h>
__global__ void twice(float* values) { values[threadIdx.x] *= 2; }
int main() { int count = 0; return cudaGetDeviceCount(&count) == cudaSuccess; }
END
# as PyTorch's cpp_extension calls it
$CUDACXX -ccbin $CC -gencode arch=compute_90,code=sm_90 /tmp/kernel.cu -o /tmp/kernel
/tmp/kernel && cuobjdump --list-elf /tmp/kernel
"""


@pytest.fixture(scope="module")
def prefix(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with what the config's packages would require of CUDA."""
    cuda_inputs()
    target = tmp_path_factory.mktemp("environment")
    install_cuda_environment(repository, target, ["cuda-nvcc_linux-64"])
    return target


def inside(root: Path, prefix: Path, *command: str) -> str:
    done = subprocess.run(
        [*enter(root), "--ro-bind", str(prefix), "/mnt", *command], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_the_libraries_load_where_there_is_no_cuda(prefix: Path) -> None:
    assert int(inside(debian_inputs().root, prefix, "/mnt/bin/python", "-c", LOAD)) >= 15


def test_nvcc_compiles_for_the_architecture_asked_for(prefix: Path) -> None:
    said = inside(cuda_inputs().root, prefix, "sh", "-euc", COMPILE)
    assert "sm_90" in said
