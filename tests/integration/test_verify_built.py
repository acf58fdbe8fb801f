"""`megabuild verify` on libraries that were really compiled: the mistakes it is there for."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import built_libraries
import pytest
from built_libraries import Cuda, Torch

from gpu_tools.verify.check import LibraryVerdict, Verdict, verify
from gpu_tools.verify.expectation import Expectation

# gigabytes of wheels on a fresh machine
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
]
ARCHS = ("9.0", "12.0")
EXPECTED = Expectation(accelerator="cuda130", archs=ARCHS)
KERNELS = ("basis", "weighting")


@pytest.fixture(scope="session")
def cuda() -> Cuda:
    """NVIDIA's compiler."""
    return built_libraries.cuda()


@pytest.fixture(scope="session")
def torch() -> Torch:
    """torch 2.13.0 with CUDA 13.0, for Python 3.12."""
    return built_libraries.torch_wheel("torch==2.13.0", "3.12")


@pytest.fixture(scope="session")
def torch_cpu() -> Torch:
    """torch 2.13.0 without CUDA, for Python 3.11."""
    return built_libraries.torch_wheel("torch==2.13.0+cpu", "3.11")


@pytest.fixture(scope="session")
def torch_newer() -> Torch:
    """torch 2.14.1, for Python 3.11."""
    return built_libraries.torch_wheel("torch==2.14.1", "3.11")


def environment(torch: Torch, folder: Path) -> Path:
    """Make an environment with a torch: a link, since it has gigabytes."""
    site = folder / torch.site_packages.relative_to(torch.prefix)
    site.mkdir(parents=True)
    for entry in torch.site_packages.iterdir():
        (site / entry.name).symlink_to(entry)
    return folder


def install(prefix: Path, libraries: dict[str, Path], **metadata: str) -> None:
    """Put libraries into an environment as torch_spline_conv, with the metadata of a wheel."""
    (site,) = prefix.glob("lib/python*/site-packages")
    fill(site, libraries, **metadata)


def fill(folder: Path, libraries: dict[str, Path], version: str = "1.2.2", tag: str = "") -> None:
    """Lay out torch_spline_conv as a wheel has it."""
    (folder / "torch_spline_conv").mkdir()
    for name, built in libraries.items():
        shutil.copy(built, folder / "torch_spline_conv" / name)
    if tag:
        information = folder / f"torch_spline_conv-{version}.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Name: torch_spline_conv\nVersion: {version}\n")
        (information / "WHEEL").write_text(f"Tag: {tag}\n")


def for_cuda(torch: Torch, cuda: Cuda, *archs: str) -> dict[str, Path]:
    """Build a CUDA build of torch_spline_conv: two libraries with device code, one without."""
    kernel = torch.build("kernel", "-DWITH_CUDA", linked=[cuda.object(*archs), cuda.runtime])
    return {
        **{f"_{stem}_cuda.so": kernel for stem in KERNELS},
        "_version_cuda.so": torch.build("version", linked=[cuda.runtime]),
    }


def judge_for_cpu(torch: Torch, *flags: str) -> dict[str, Path]:
    """Build a CPU build of torch_spline_conv."""
    return {f"_{stem}_cpu.so": torch.build("cpu", *flags) for stem in (*KERNELS, "version")}


def extension(verdict: Verdict) -> dict[str, LibraryVerdict]:
    """Return the verdicts on torch_spline_conv."""
    found = [library for library in verdict.libraries if library.module == "torch_spline_conv"]
    return {Path(library.path).name: library for library in found}


def test_a_right_build_passes_with_exactly_its_archs_where_kernels_are(
    torch: Torch, cuda: Cuda, tmp_path: Path
) -> None:
    prefix = environment(torch, tmp_path)
    install(
        prefix, for_cuda(torch, cuda, "90", "120"), version="1.2.2+pt213cu130", tag="cp312-cp312-linux_x86_64"
    )
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
        assert (
            library.reason == "built for Python 3.11 (the torch headers it was compiled with), not for 3.12"
        )
        assert "Python 3.12" in library.remedy


def test_a_build_against_another_torch_is_found_in_the_library_itself(
    torch_cpu: Torch, torch_newer: Torch, tmp_path: Path
) -> None:
    prefix = environment(torch_cpu, tmp_path)
    install(prefix, judge_for_cpu(torch_newer))
    found = extension(verify(prefix))
    assert len(found) == 3
    for library in found.values():
        assert library.reason.startswith(
            "built for another torch: its headers differ from 2.13.0+cpu at c10/"
        )
        assert "torch 2.13.0+cpu" in library.remedy


def test_a_build_that_needs_what_this_torch_has_not_is_found(torch_cpu: Torch, tmp_path: Path) -> None:
    prefix = environment(torch_cpu, tmp_path)
    install(prefix, judge_for_cpu(torch_cpu, "-DOF_ANOTHER_TORCH"))
    found = extension(verify(prefix))["_basis_cpu.so"]
    assert found.reason == "built for another torch: 2.13.0+cpu has no c10::of_another_torch"


@pytest.mark.parametrize(
    ("version", "tag", "reason"),
    [
        ("1.2.2+pt213cu130", "cp312-cp312-linux_x86_64", ""),
        ("1.2.2+pt212cu130", "cp312-cp312-linux_x86_64", "built for torch 2.12"),
        ("1.2.2+pt213cu129", "cp312-cp312-linux_x86_64", "built for CUDA 12.9"),
        ("1.2.2+pt213cu130", "cp311-cp311-linux_x86_64", "built for Python 3.11"),
    ],
)
def test_a_wheel_for_something_else_is_refused_beside_an_environment(
    torch: Torch, cuda: Cuda, tmp_path: Path, version: str, tag: str, reason: str
) -> None:
    (tmp_path / "content").mkdir()
    fill(tmp_path / "content", for_cuda(torch, cuda, "90", "120"), version, tag)
    wheel = tmp_path / f"torch_spline_conv-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in (tmp_path / "content").rglob("*"):
            archive.write(file, file.relative_to(tmp_path / "content"))
    found = extension(verify(wheel, beside=torch.prefix, expect=EXPECTED))
    assert found["_basis_cuda.so"].ok == (not reason)
    assert found["_basis_cuda.so"].reason.startswith(reason)


@pytest.mark.parametrize("right", [True, False])
def test_the_test_of_every_package_fails_for_a_cpu_library_in_a_cuda_package(
    torch: Torch, cuda: Cuda, repository: Path, tmp_path: Path, right: bool
) -> None:
    libraries = for_cuda(torch, cuda, "90", "120")
    if not right:
        libraries = {
            name: torch.build("cpu") if "weighting" in name else built for name, built in libraries.items()
        }
    fill(tmp_path, libraries)
    script = str(repository / "recipe" / "pyg" / "common" / "verify_package.py")
    asked = ["--folder", str(tmp_path), "--accelerator", "cuda130", "--archs", "9.0;12.0", "--python", "3.12"]
    command = [sys.executable, script, "torch_spline_conv", *asked]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "_basis_cuda.so: sm_90 sm_120" in done.stdout
    if right:
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert done.returncode == 1
        assert "_weighting_cuda.so: compiled without CUDA" in done.stderr
        assert "_basis_cuda.so" not in done.stderr
