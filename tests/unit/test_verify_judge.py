"""The judgement on a module's libraries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from cuda_code.cuda_archs import Unit
from cuda_code.judge import Judgement, Wanted, judge
from cuda_code.kernels import KERNELS, split
from cuda_code.library_facts import LibraryFacts

PLAIN = LibraryFacts(
    path="", needed=("libc10.so",), units=(), cuda_runtime=None, says_not_compiled=False,
    pythons=(), assertions=frozenset(), undefined=frozenset(),
)  # fmt: skip
CUDA = Wanted(cuda=True, cuda_major=13, archs=("9.0", "12.0"), python="3.12")


def unit(*sm: str, ptx: Iterable[str] = ()) -> Unit:
    """Make the device code of one translation unit."""
    return Unit(sm=frozenset(sm), ptx=frozenset(ptx))


def library(name: str, *units: Unit, cuda: int | None = None) -> LibraryFacts:
    """Make what is known of a library of torch_spline_conv."""
    needed = (*PLAIN.needed, *((f"libcudart.so.{cuda}",) if cuda else ()))
    return replace(PLAIN, path=f"torch_spline_conv/{name}", units=units, needed=needed, cuda_runtime=cuda)


def good() -> list[LibraryFacts]:
    """Make a CUDA build as it should be."""
    both = unit("sm_90", "sm_120")
    return [
        library("_basis_cuda.so", both, cuda=13),
        library("_weighting_cuda.so", both, cuda=13),
        library("_version_cuda.so", cuda=13),
    ]


def faults(libraries: list[LibraryFacts], wanted: Wanted = CUDA) -> dict[str, Judgement]:
    """Return what is wrong, per library."""
    found = judge("torch_spline_conv", libraries, wanted)
    return {one.path.rpartition("/")[2]: one for one in found if not one.ok}


def test_a_right_cuda_build_passes() -> None:
    assert faults(good()) == {}


def test_a_cpu_build_for_cuda_names_the_cause_and_the_remedy() -> None:
    built = [
        replace(library(f"_{stem}_cpu.so"), says_not_compiled=True)
        for stem in ("basis", "weighting", "version")
    ]
    found = faults(built)
    assert set(found) == {"_basis_cpu.so", "_weighting_cpu.so", "_version_cpu.so"}
    assert found["_basis_cpu.so"].reason.startswith("compiled without CUDA: no device code, it holds")
    assert 'FORCE_CUDA=1 TORCH_CUDA_ARCH_LIST="9.0;12.0"' in found["_basis_cpu.so"].remedy


def test_cpu_libraries_beside_those_for_cuda_are_no_fault() -> None:
    spare = [library("_basis_cpu.so"), library("_weighting_cpu.so"), library("_version_cpu.so")]
    assert faults([*good(), *spare]) == {}


def test_a_missing_architecture_is_named() -> None:
    found = faults([library("_basis_cuda.so", unit("sm_90"), cuda=13), *good()[1:]])
    assert found["_basis_cuda.so"].reason == "no code for sm_120 (it has sm_90)"
    assert 'TORCH_CUDA_ARCH_LIST="9.0;12.0"' in found["_basis_cuda.so"].remedy


def test_with_exactness_each_architecture_needs_code_of_its_own() -> None:
    older = [library(f"_{stem}_cuda.so", unit("sm_80"), cuda=13) for stem in ("basis", "weighting")]
    found = faults([*older, good()[2]], replace(CUDA, archs=("8.0", "8.6")))
    assert {one.reason for one in found.values()} == {"no code for sm_86 (it has sm_80)"}


def test_missing_ptx_is_named_where_the_list_asks_for_it() -> None:
    found = faults(good(), replace(CUDA, archs=("9.0", "12.0+PTX")))
    assert "PTX for compute_120" in found["_basis_cuda.so"].reason


def test_without_exactness_it_is_enough_that_such_a_gpu_can_run_something() -> None:
    libraries = [
        library("_basis_cuda.so", unit("sm_80", ptx=["compute_90"]), cuda=13),
        library("_weighting_cuda.so", unit("sm_80", ptx=["compute_90"]), cuda=13),
        library("_version_cuda.so", cuda=13),
    ]
    assert faults(libraries, replace(CUDA, archs=("8.6", "12.0"), exact=False)) == {}
    assert len(faults(libraries, replace(CUDA, archs=("7.5",), exact=False))) == 2


def test_an_object_of_another_arch_list_among_others_is_found() -> None:
    mixed = library("_basis_cuda.so", unit("sm_90", "sm_120"), unit("sm_90"), cuda=13)
    assert (
        faults([mixed, *good()[1:]])["_basis_cuda.so"].reason
        == "not every object has all code: sm_120 in 1 of 2"
    )


def test_another_cuda_runtime_is_refused() -> None:
    found = faults([library("_basis_cuda.so", unit("sm_90", "sm_120"), cuda=12), *good()[1:]])
    assert "libcudart.so.12" in found["_basis_cuda.so"].reason


def test_a_cuda_build_for_the_cpu_is_refused() -> None:
    found = faults(good(), Wanted(cuda=False, python="3.12"))
    assert len(found) == 3
    assert "compiled with CUDA" in found["_version_cuda.so"].reason


def test_another_python_is_refused_with_the_evidence() -> None:
    other = replace(good()[0], pythons=(("3.11", "the torch headers it was compiled with"),))
    found = faults([other, *good()[1:]])["_basis_cuda.so"]
    assert found.reason == "built for Python 3.11 (the torch headers it was compiled with), not for 3.12"


def test_the_stable_abi_fits_every_python() -> None:
    other = replace(good()[0], pythons=(("abi3", "its file name"), ("3.11", "the torch headers")))
    assert faults([other, *good()[1:]]) == {}


def test_pyg_lib_is_not_asked_for_what_upstream_cannot_compile() -> None:
    pyg = replace(library("libpyg.so", unit("sm_90", "sm_120"), cuda=12), path="pyg_lib/libpyg.so")
    wanted = Wanted(cuda=True, cuda_major=12, archs=("5.0", "9.0", "12.0"))
    assert all(one.ok for one in judge("pyg_lib", [pyg], wanted))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("_segment_csr_cuda.so", ("segment_csr", "cuda")),
        ("_version_cpu.cpython-312-x86_64-linux-gnu.so", ("version", "cpu")),
        ("libpyg.so", ("pyg", "")),
        ("_rw_cuda.abi3.so", ("rw", "cuda")),
    ],
)
def test_names_of_libraries_are_split(name: str, expected: tuple[str, str]) -> None:
    assert split(name) == expected


def test_the_table_is_what_upstream_sources_say() -> None:
    """The sources that the recipes name: a library with device code where there is a .cu file."""
    assert {name: len(module.kernels) for name, module in KERNELS.items()} == {
        "torch_scatter": 3, "torch_sparse": 4, "torch_cluster": 7, "torch_spline_conv": 2, "pyg_lib": 1,
    }  # fmt: skip
