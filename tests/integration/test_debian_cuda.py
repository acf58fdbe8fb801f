"""Debian's CUDA under conda-forge's names: what the packages hold is enough where Debian's CUDA is not, and nvcc works.

Makes a root of 8 GB, of which 2 GB are downloaded.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest
from debian_inputs import cuda_inputs, debian_cache, debian_inputs
from rattler import Channel, VirtualPackage, VirtualPackageOverrides, install, solve
from rattler.virtual_package.virtual_package import Override

from megabuild.configs.config import load
from megabuild.configs.render import render
from megabuild.providers.debian.root import enter
from megabuild.providers.provider import ProviderRequest
from megabuild.providers.select import provide

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
    config = load(repository, "linux_64_cuda124_debian")
    planned = render(config, repository / "recipe" / "recipe.yaml")
    made = provide(ProviderRequest(config=config, planned=planned, cache=debian_cache(), report=print))
    overrides = VirtualPackageOverrides()
    overrides.libc = Override.string(made.virtual_packages["__glibc"])
    overrides.cuda = Override.string("12.4")
    asked = (spec for package in planned for spec in (*package.host, *package.staging_host))
    host = [spec for spec in dict.fromkeys(asked) if not spec.startswith(("libtorch", "python"))]
    target = tmp_path_factory.mktemp("environment")

    async def work() -> None:
        records = await solve(
            [Channel(Path(channel).as_uri()) for channel in made.channels],
            [*host, "python 3.12.*", "cuda-nvcc_linux-64"],
            platforms=["linux-64", "noarch"],
            virtual_packages=VirtualPackage.detect(overrides),
        )
        await install(records, target_prefix=target, cache_dir=tmp_path_factory.mktemp("packages"))

    asyncio.run(work())
    return target


def inside(root: Path, prefix: Path, *command: str) -> str:
    done = subprocess.run(
        [*enter(root), "--ro-bind", str(prefix), "/mnt", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def test_the_libraries_load_where_there_is_no_cuda(prefix: Path) -> None:
    assert int(inside(debian_inputs().root, prefix, "/mnt/bin/python", "-c", LOAD)) >= 15


def test_nvcc_compiles_for_the_architecture_asked_for(prefix: Path) -> None:
    said = inside(cuda_inputs().root, prefix, "sh", "-euc", COMPILE)
    assert "sm_90" in said
