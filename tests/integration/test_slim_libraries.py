"""Real libraries made smaller: what CUDA would choose is there, byte for byte, where wrappers point, and they load."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import built_libraries
import pytest
from built_libraries import Cuda

from cuda_code import cuda_archs
from cuda_code.cuda_archs import MACHINE_CODE, PTX, Fatbin
from cuda_code.elf_file import ElfFile, opened
from gpu_tools.slim.library import LibrarySlimmed, slim_library

pytestmark = pytest.mark.long
GPU = "sm_120"
ARCHS = (75, 80, 86, 90, 100, 120)
UNROLLED = Path(__file__).resolve().parent.parent / "data" / "slim" / "unrolled.cuh"
_LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1], mode=2)"


def entries(library: ElfFile, fatbin: Fatbin) -> list[bytes]:
    """Return a fat binary's entries, byte for byte."""
    position, found = fatbin.start + 16, []
    for member in fatbin.members:
        found.append(bytes(library.data[position : position + member.size]))
        position += member.size
    return found


def runs(fatbin: Fatbin, gpu: str) -> str:
    """Say how a fat binary's code runs on a GPU."""
    sm = [f"sm_{member.arch}" for member in fatbin.members if member.kind == MACHINE_CODE]
    return cuda_archs.runs_on(
        gpu, sm, [f"compute_{member.arch}" for member in fatbin.members if member.kind == PTX]
    )


def pointed_at(library: ElfFile) -> list[bytes]:
    """Return how the fat binaries begin at which the loader points nvcc's wrappers, in the order of the wrappers."""
    (table,), (count,) = (
        struct.unpack_from("<Q", library.data, 32),
        struct.unpack_from("<H", library.data, 56),
    )
    headers = [struct.unpack_from("<IIQQQQ", library.data, table + 56 * at) for at in range(count)]
    mapped = [(start, offset, size) for kind, _, offset, start, _, size in headers if kind == 1]
    wrappers = library.sections.get(".nvFatBinSegment")
    if not wrappers:
        return []
    (first,) = (
        start + wrappers.offset - at for start, at, size in mapped if at <= wrappers.offset < at + size
    )
    pointers = range(first + 8, first + wrappers.size, 24)
    targets = [one for one in struct.iter_unpack("<QQq", library.content(".rela.dyn")) if one[0] in pointers]
    found = []
    for _, _, target in sorted(targets):
        (at,) = (at + target - start for start, at, size in mapped if start <= target < start + size)
        found.append(bytes(library.data[at : at + 16]))
    return found


def compare(before: Path, after: Path, gpu: str = GPU) -> list[list[bytes]]:
    """Check a slimmed library against the one that it was, and return the entries that stay."""
    stays = []
    with opened(before) as old, opened(after) as new:
        pairs = list(zip(cuda_archs.anywhere(old.data), cuda_archs.anywhere(new.data), strict=True))
        for one, other in pairs:
            assert runs(one, gpu) == runs(other, gpu)
            there, left = entries(old, one), entries(new, other)
            assert runs(one, gpu) == "missing" or {*left} <= {*there}
            stays.append(left)
        begins = [bytes(new.data[other.start : other.start + 16]) for _, other in pairs]
        assert len(pointed_at(old)) == len(pointed_at(new))
        assert {*pointed_at(new)} <= {*begins}
    return stays


def slimmed(library: Path, folder: Path, *, symbols: bool = True) -> tuple[LibrarySlimmed, Path]:
    """Slim a library into a folder."""
    target = folder / library.name
    done = slim_library(library, target, gpus=[GPU], symbols=symbols)
    assert not done.trouble
    return done, target if target.exists() else library


def listed(cuda: Cuda, library: Path) -> Sequence[str]:
    """Return what NVIDIA's reader lists."""
    done = subprocess.run([str(cuda.cuobjdump), "-lelf", str(library)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [line.rpartition(".sm_")[2].partition(".")[0] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("mode", ["none", "size"])
def test_six_architectures_slimmed_to_one_are_what_one_alone_is(
    cuda: Cuda, mode: str, tmp_path: Path
) -> None:
    flags = ("-include", str(UNROLLED), f"--compress-mode={mode}")
    many = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in ARCHS]
    six = cuda.fatbin_library("six", *many, *flags)
    one = cuda.fatbin_library("one", many[-1], *flags)
    _, small = slimmed(six, tmp_path)
    with opened(one) as library:
        assert compare(six, small) == [
            entries(library, fatbin) for fatbin in cuda_archs.anywhere(library.data)
        ]
    assert listed(cuda, small) == ["120"]
    subprocess.run(
        [sys.executable, "-c", _LOAD, str(small)],
        check=True,
        env={"LD_LIBRARY_PATH": str(cuda.runtime.parent)},
    )


@pytest.mark.parametrize(("name", "most"), [("libtorch_cuda.so", 150e6), ("libtorch_cuda_linalg.so", 17e6)])
def test_torch_gets_small_and_stays_readable(cuda: Cuda, name: str, most: float, tmp_path: Path) -> None:
    library = built_libraries.torch_wheel("torch==2.13.0", "3.12").site_packages / "torch" / "lib" / name
    done, small = slimmed(library, tmp_path)
    assert done.after <= most
    compare(library, small)
    assert {*listed(cuda, small)} <= {"120", "120a"}
