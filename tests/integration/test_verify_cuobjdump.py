"""Device code as this reader finds it, compared with NVIDIA's own reader, for every way to compress and link it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import built_libraries
import pytest
from built_libraries import Cuda

from cuda_code import cuda_archs
from cuda_code.elf_file import opened

# gigabytes of wheels on a fresh machine
pytestmark = pytest.mark.long


GENCODE = ("-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_120,code=[sm_120,compute_120]")


@pytest.mark.parametrize(
    "flags",
    [
        GENCODE[:1],
        GENCODE,
        (*GENCODE, "-Xfatbin", "-compress-all"),
        (*GENCODE, "--compress-mode=size"),
        (*GENCODE, "--compress-mode=speed"),
        (*GENCODE, "--compress-mode=none"),
        (
            "-gencode=arch=compute_90a,code=[sm_90a,compute_90a]",
            "-gencode=arch=compute_100f,code=[sm_100f,compute_100f]",
        ),
        (*GENCODE, "-rdc=true", "-cudart", "static"),
        ("-gencode=arch=compute_75,code=compute_75",),
    ],
    ids=["one", "two", "compressed", "size", "speed", "none", "letters", "linked", "ptx-only"],
)
def test_archs_agree_with_cuobjdump(cuda: Cuda, flags: tuple[str, ...]) -> None:
    library = cuda.fatbin_library("kernels", *flags)
    compare(cuda, library)


def test_archs_of_libtorch_agree_with_cuobjdump(cuda: Cuda) -> None:
    torch = built_libraries.torch_wheel("torch==2.13.0", "3.12")
    compare(cuda, torch.site_packages / "torch" / "lib" / "libtorch_cuda_linalg.so")


def compare(cuda: Cuda, library: Path) -> None:
    """Compare this reader with NVIDIA's; theirs leaves out the f of machine code for a family."""
    with opened(library) as file:
        units = cuda_archs.units(file)
    ours = sorted(name for unit in units for name in unit.sm)
    ours_ptx = sorted(name.replace("compute", "sm") for unit in units for name in unit.ptx)
    theirs = dumped(cuda, library, "--list-elf")
    assert [name.rstrip("f") for name in ours] == [name.rstrip("f") for name in theirs]
    assert ours_ptx == dumped(cuda, library, "--list-ptx")
    assert ours or ours_ptx


def dumped(cuda: Cuda, library: Path, option: str) -> list[str]:
    """Return what cuobjdump lists."""
    done = subprocess.run(
        [str(cuda.cuobjdump), option, str(library)], capture_output=True, text=True, check=False
    )
    return sorted(re.findall(r"file +\d+: .*\.(sm_\d+[af]?)\.(?:cubin|ptx)$", done.stdout, re.MULTILINE))
