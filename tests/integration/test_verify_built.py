"""`megabuild verify` on libraries that were really compiled, and device code as NVIDIA's reader finds it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from built_libraries import Cuda, Torch, torch_wheel

from cuda_code import cuda_archs
from cuda_code.elf_file import opened
from gpu_tools.verify.check import LibraryVerdict, Verdict, verify
from gpu_tools.verify.expectation import Expectation

# gigabytes of wheels on a fresh machine
pytestmark = [pytest.mark.long, pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")]
ARCHS = ("9.0", "12.0")
EXPECTED = Expectation(accelerator="cuda130", archs=ARCHS)
KERNELS = ("basis", "weighting")


@pytest.fixture(scope="session")
def torch() -> Torch:
    """torch 2.13.0 with CUDA 13.0, for Python 3.12."""
    return torch_wheel("torch==2.13.0", "3.12")


@pytest.fixture(scope="session")
def torch_cpu() -> Torch:
    """torch 2.13.0 without CUDA, for Python 3.11."""
    return torch_wheel("torch==2.13.0+cpu", "3.11")


def environment(torch: Torch, folder: Path) -> Path:
    """Make an environment with a torch: a link, since it has gigabytes."""
    site = folder / torch.site_packages.relative_to(torch.prefix)
    site.mkdir(parents=True)
    for entry in torch.site_packages.iterdir():
        (site / entry.name).symlink_to(entry)
    return folder


def install(prefix: Path, libraries: dict[str, Path], tag: str = "") -> None:
    """Lay out torch_spline_conv as a wheel has it."""
    (site,) = prefix.glob("lib/python*/site-packages")
    (site / "torch_spline_conv").mkdir()
    for name, built in libraries.items():
        shutil.copy(built, site / "torch_spline_conv" / name)
    if tag:
        information = site / "torch_spline_conv-1.2.2+pt213cu130.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Name: torch_spline_conv\nVersion: 1.2.2+pt213cu130\n")
        (information / "WHEEL").write_text(f"Tag: {tag}\n")


def for_cuda(torch: Torch, cuda: Cuda, *archs: str) -> dict[str, Path]:
    """Build a CUDA build of torch_spline_conv: two libraries with device code, one without."""
    kernel = torch.build("kernel", "-DWITH_CUDA", linked=[cuda.object(*archs), cuda.runtime])
    return {
        **{f"_{stem}_cuda.so": kernel for stem in KERNELS},
        "_version_cuda.so": torch.build("version", linked=[cuda.runtime]),
    }


def extension(verdict: Verdict) -> dict[str, LibraryVerdict]:
    """Return the verdicts on torch_spline_conv."""
    found = [library for library in verdict.libraries if library.module == "torch_spline_conv"]
    return {Path(library.path).name: library for library in found}


def test_a_right_build_passes_with_exactly_its_archs_where_kernels_are(
    torch: Torch, cuda: Cuda, tmp_path: Path
) -> None:
    prefix = environment(torch, tmp_path)
    install(prefix, for_cuda(torch, cuda, "90", "120"), tag="cp312-cp312-linux_x86_64")
    verdict = verify(prefix, expect=EXPECTED)
    assert [library.reason for library in verdict.libraries if not library.ok] == []
    assert {name: library.archs for name, library in extension(verdict).items()} == {
        "_basis_cuda.so": ("sm_90", "sm_120"), "_weighting_cuda.so": ("sm_90", "sm_120"), "_version_cuda.so": (),
    }  # fmt: skip
    assert all(library.cuda == "13" for library in extension(verdict).values())
    assert all(library.python == "3.12" for library in extension(verdict).values())


def test_an_extension_of_another_python_is_found_in_the_library_itself(
    torch: Torch, torch_cpu: Torch, cuda: Cuda, tmp_path: Path
) -> None:
    prefix = environment(torch, tmp_path)
    install(
        prefix, for_cuda(torch_cpu, cuda, "90", "120")
    )  # no metadata, no suffix: as upstream names its libraries
    found = extension(verify(prefix, expect=EXPECTED))
    assert len(found) == 3
    for library in found.values():
        assert re.match(r".* Python 3\.11 .*headers.* 3\.12$", library.reason)
        assert "Python 3.12" in library.remedy


def test_a_build_against_another_torch_is_found_in_the_library_itself(
    torch_cpu: Torch, tmp_path: Path
) -> None:
    newer = torch_wheel("torch==2.14.1", "3.11")
    prefix = environment(torch_cpu, tmp_path)
    install(prefix, {f"_{stem}_cpu.so": newer.build("cpu") for stem in (*KERNELS, "version")})
    found = extension(verify(prefix))
    assert len(found) == 3
    for library in found.values():
        assert re.search(r"headers .* 2\.13\.0\+cpu .*c10/", library.reason)
        assert "torch 2.13.0+cpu" in library.remedy


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


def test_archs_of_libtorch_agree_with_cuobjdump(cuda: Cuda, torch: Torch) -> None:
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
