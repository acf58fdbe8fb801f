"""The Debian root for real: made once (two minutes, the network), then read-only.

With CUDA, a root of 8 GB, of which 2 GB are downloaded: its CUDA under conda-forge's names is enough where Debian's is
not, and nvcc works.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from debian_inputs import cuda_inputs, debian_cache, install_cuda_environment

from cuda_code.elf_file import opened
from gpu_tools.slim import tables
from groundwork.errors import ProviderError
from groundwork.machine import machine_platform
from megabuild.providers.debian import apt, libraries, root
from megabuild.providers.debian.root import DebianRoot, enter
from megabuild.providers.local.compilers import probe

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="mmdebstrap is not installed"),
    pytest.mark.skipif(machine_platform() != "linux-64", reason="names of linux-64"),
]


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
def debian() -> DebianRoot:
    """The root with PyTorch's build dependencies."""
    try:
        apt.debian_lines(root.SUITE)
    except ProviderError as error:
        pytest.skip(error.message)
    return root.make(debian_cache() / "debian", lambda _: None)


def test_the_root_has_pytorch_its_compilers_and_its_build_dependencies(debian: DebianRoot) -> None:
    assert (debian.source / "setup.py").is_file()
    assert (debian.source / "debian" / "patches" / "series").is_file()
    toolchain = probe(root=debian.path, enter=enter(debian.path))
    assert (toolchain.major, toolchain.glibc) == ("14", "2.41")
    control = f"/{debian.source.relative_to(debian.path)}/debian/control"
    done = subprocess.run(
        [*enter(debian.path), "dpkg-checkbuilddeps", control], capture_output=True, text=True
    )
    assert "libonnx-dev" not in done.stderr
    assert root.make(debian_cache() / "debian", lambda _: None) == debian


def test_the_libraries_are_complete_without_the_c_library(debian: DebianRoot) -> None:
    chosen = libraries.select(debian, libraries.read(debian))
    assert {"libopenblas.so.0", "libprotobuf.so.32", "libonnx.so.1", "libsleef.so.3", "libfmt.so.10"} <= set(
        chosen
    )
    assert not {"libc.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libssl.so.3", "libz.so.1"} & set(chosen)
    assert chosen["libblas.so.3"].owner.startswith("libopenblas")


def test_libraries_find_each_other_and_what_their_code_points_to_stays(
    debian: DebianRoot, tmp_path: Path
) -> None:
    chosen = libraries.select(debian, libraries.read(debian))
    libraries.fill(debian, chosen, "libraries", tmp_path)
    for soname, packaged in chosen.items():
        assert _contents(tmp_path / "lib" / soname) == _contents(packaged.path), soname
        with opened(tmp_path / "lib" / soname) as library:
            assert library.rpath() == ("$ORIGIN",)


def _contents(path: Path) -> dict[str, int]:
    """Addresses of what the program itself reads or runs, by section."""
    with opened(path) as library:
        found = tables.read(library)
    return {
        name: section.address
        for name, section in zip(found.names, found.sections, strict=True)
        if section.kind == 1 and section.flags & tables.ALLOC  # SHT_PROGBITS
    }


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


def test_the_libraries_load_where_there_is_no_cuda(debian: DebianRoot, prefix: Path) -> None:
    assert int(inside(debian.path, prefix, "/mnt/bin/python", "-c", LOAD)) >= 15


def test_nvcc_compiles_for_the_architecture_asked_for(prefix: Path) -> None:
    said = inside(cuda_inputs().root, prefix, "sh", "-euc", COMPILE)
    assert "sm_90" in said
