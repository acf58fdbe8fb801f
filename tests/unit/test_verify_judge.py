"""The judgement on a module's libraries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cuda_code.cuda_archs import MACHINE_CODE, PTX, Fatbin, Member
from cuda_code.judge import Wanted, judge, judge_archs
from cuda_code.kernels import split
from cuda_code.library_facts import LibraryFacts, NamedPython
from gpu_tools.verify import check, judge_fit, judge_library, subject
from gpu_tools.verify.build_target import BuildTarget
from gpu_tools.verify.expectation import Expectation, ModuleContext

PLAIN = LibraryFacts(
    path="", needed=("libc10.so",), units=(), cuda_runtime=None, says_not_compiled=False,
    pythons=(), assertions=frozenset(), undefined=frozenset(),
)  # fmt: skip
CUDA = Wanted(cuda=True, cuda_major=13, archs=("9.0", "12.0"), python="3.12")


def unit(*sm: str, ptx: Iterable[str] = ()) -> Fatbin:
    """Make the device code of one translation unit."""
    kinds = (*((MACHINE_CODE, name) for name in sm), *((PTX, name) for name in ptx))
    return Fatbin(0, 0, tuple(Member(kind, name.partition("_")[2], 0) for kind, name in kinds))


def library(name: str, *units: Fatbin, cuda: int | None = None) -> LibraryFacts:
    """Make what is known of a library of torch_spline_conv."""
    needed = (*PLAIN.needed, *((f"libcudart.so.{cuda}",) if cuda else ()))
    return replace(PLAIN, path=f"torch_spline_conv/{name}", units=units, needed=needed, cuda_runtime=cuda)


BOTH = unit("sm_90", "sm_120")
BASIS, WEIGHTING = (library(f"_{stem}_cuda.so", BOTH, cuda=13) for stem in ("basis", "weighting"))
VERSION = library("_version_cuda.so", cuda=13)
STEMS = ("basis", "weighting", "version")
CPU = Wanted(cuda=False, python="3.12")
STATIC = [
    library("_basis_cuda.so", BOTH),
    library("_weighting_cuda.so", BOTH),
    library("_version_cuda.so"),
]
OF_311 = replace(BASIS, pythons=(NamedPython("3.11", "the torch headers"),))
ABI3 = replace(
    BASIS, pythons=(NamedPython("abi3", "its file name"), NamedPython("3.11", "the torch headers"))
)


@pytest.mark.parametrize(
    ("libraries", "wanted", "faults"),
    [
        ([BASIS, WEIGHTING, VERSION], CUDA, {}),
        (
            [replace(library(f"_{stem}_cpu.so"), says_not_compiled=True) for stem in STEMS],
            CUDA,
            {f"_{stem}_cpu.so": "compiled without CUDA: no device code, contains" for stem in STEMS},
        ),
        # libraries for the CPU beside those for CUDA
        ([BASIS, WEIGHTING, VERSION, *(library(f"_{stem}_cpu.so") for stem in STEMS)], CUDA, {}),
        (
            [library("_basis_cuda.so", unit("sm_90"), cuda=13), WEIGHTING, VERSION],
            CUDA,
            {"_basis_cuda.so": "no code for sm_120 (it has sm_90)"},
        ),
        (
            [library("_basis_cuda.so", BOTH, unit("sm_90"), cuda=13), WEIGHTING, VERSION],
            CUDA,
            {"_basis_cuda.so": "some objects lack code: sm_120 in 1 of 2"},
        ),
        (
            [library("_basis_cuda.so", BOTH, cuda=12), WEIGHTING, VERSION],
            CUDA,
            {"_basis_cuda.so": "libcudart.so.12"},
        ),
        (
            [BASIS, WEIGHTING, VERSION],
            Wanted(cuda=False, python="3.12"),
            {f"_{stem}_cuda.so": "compiled with CUDA" for stem in STEMS},
        ),
        ([OF_311, WEIGHTING, VERSION], CUDA, {"_basis_cuda.so": "built for Python 3.11 (the torch headers)"}),
        ([ABI3, WEIGHTING, VERSION], CUDA, {}),
        ([WEIGHTING, VERSION], CUDA, {"_basis_cuda.so": "no library for basis"}),
        ([BASIS, WEIGHTING], CUDA, {"_version_cuda.so": "no library for version"}),
        # kernels that are named for CUDA, and were compiled without it
        (
            [library("_basis_cuda.so", cuda=13), WEIGHTING, VERSION],
            CUDA,
            {"_basis_cuda.so": "compiled without CUDA: no device code"},
        ),
        (
            [replace(library("_basis_cuda.so", cuda=13), blank=True), WEIGHTING, VERSION],
            CUDA,
            {"_basis_cuda.so": "device code (.nv_fatbin) is all zeros"},
        ),
        # the CUDA runtime is in the libraries themselves
        (STATIC, CUDA, {}),
        (
            [library("_basis_cpu.so"), *STATIC[1:]],
            replace(CUDA, cuda=None),
            {"_basis_cpu.so": "compiled without CUDA: no device code, named for the CPU"},
        ),
        ([library(f"_{stem}_cpu.so") for stem in STEMS], replace(CUDA, cuda=None), {}),
        (
            [
                library("_basis_cpu.so", BOTH),
                replace(library("_weighting_cpu.so"), needed=("libc10_cuda.so",)),
                library("_version_cuda.so"),
            ],
            CPU,
            {
                "_basis_cpu.so": "compiled with CUDA (has device code)",
                "_weighting_cpu.so": "compiled with CUDA (links to CUDA)",
                "_version_cuda.so": "compiled with CUDA (is named for CUDA)",
            },
        ),
        (
            [replace(library("_basis_cpu.so"), pythons=OF_311.pythons)]
            + [library(f"_{stem}_cpu.so") for stem in STEMS[1:]],
            CPU,
            {"_basis_cpu.so": "built for Python 3.11 (the torch headers)"},
        ),
        (
            [library(f"_{stem}_cpu.so") for stem in STEMS[1:]],
            CPU,
            {"_basis_cpu.so": "no library for basis"},
        ),
    ],
)
def test_what_is_wrong_with_a_build(
    libraries: list[LibraryFacts], wanted: Wanted, faults: dict[str, str]
) -> None:
    judged = judge("torch_spline_conv", libraries, wanted).items()
    reasons = {path.rpartition("/")[2]: fault.reason for path, fault in judged if not fault.ok}
    assert reasons.keys() == faults.keys()
    assert all(words in reasons[name] for name, words in faults.items()), reasons


def test_pyg_lib_is_not_asked_for_what_upstream_cannot_compile() -> None:
    pyg = replace(library("libpyg.so", unit("sm_90", "sm_120"), cuda=12), path="pyg_lib/libpyg.so")
    wanted = Wanted(cuda=True, cuda_major=12, archs=("5.0", "9.0", "12.0"))
    assert all(one.ok for one in judge("pyg_lib", [pyg], wanted).values())


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


HAS_80 = library("_x.so", unit("sm_80", ptx=["compute_90"]))
HALF_90 = library("_x.so", unit("sm_80"), unit("sm_80", "sm_90"))


@pytest.mark.parametrize(
    ("facts", "archs", "changes", "fault", "note"),
    [
        (HAS_80, ("8.0",), {}, False, False),
        (HAS_80, ("8.0", "9.0"), {}, True, False),
        (HAS_80, ("8.0", "9.0"), {"required": False}, False, True),
        (HAS_80, ("12.0",), {"required": False}, True, False),
        (HAS_80, ("8.6", "9.0"), {"exact": False, "required": False}, False, False),
        (HAS_80, ("8.6", "9.0"), {"exact": False}, False, True),
        (HAS_80, ("8.0+PTX",), {"exact": False}, True, False),
        (HALF_90, ("8.0", "9.0"), {}, True, False),
        (HALF_90, ("8.0", "9.0"), {"required": False}, False, False),
        (HALF_90, ("8.0",), {}, False, True),
    ],
)
def test_code_for_an_architecture_is_its_own_or_one_that_it_runs(
    facts: LibraryFacts, archs: tuple[str, ...], changes: dict[str, bool], fault: bool, note: bool
) -> None:
    found = judge_archs(facts, replace(Wanted(archs=archs), **changes))  # type: ignore[arg-type]
    assert (bool(found.reason), bool(found.note)) == (fault, note)


@pytest.mark.parametrize("wanted", [None, True, False])
@pytest.mark.parametrize("found", [None, "cpu", "13.0"])
def test_torch_is_wrong_only_if_its_cuda_is_known_and_another_is_asked_for(
    wanted: bool | None, found: str | None
) -> None:
    module = SimpleNamespace(
        names=(),
        target=SimpleNamespace(cuda=found),
        wants_cuda=wanted,
        asked=SimpleNamespace(cuda_version=""),
    )
    judged = judge_fit._judge_torch_part(
        cast(Any, module), cast(Any, SimpleNamespace(path="libtorch_cpu.so"))
    )
    is_wrong = None not in (wanted, found) and wanted != (found != "cpu")
    assert (judged is not None) == is_wrong


@pytest.mark.parametrize(
    ("name", "units", "archs", "ok", "note"),
    [
        ("libtorch_cuda.so", (BOTH,), ("9.0", "12.0"), True, ""),
        ("libtorch_cuda.so", (unit("sm_90"),), ("9.0", "12.0"), False, ""),
        ("libtorch_cuda.so", (unit("sm_90a", "sm_120f"),), ("9.0+PTX", "12.0"), True, "sm_90a"),
        ("libtorch_cuda.so", (unit("sm_80"),), ("8.0", "8.6"), False, ""),
        ("libtorch_cuda.so", (), ("9.0",), False, ""),
        # the official wheels omit some
        ("libtorch_cuda_linalg.so", (unit("sm_90"),), ("9.0", "12.0"), True, "no code for sm_120"),
        ("libtorch_nvshmem.so", (), ("9.0",), True, ""),
        ("libtorch_cpu.so", (), ("9.0",), True, ""),
    ],
)
def test_only_libraries_of_torch_that_must_have_kernels_are_faulty_without_them(
    name: str, units: tuple[Fatbin, ...], archs: tuple[str, ...], ok: bool, note: str
) -> None:
    facts = replace(PLAIN, path=f"torch/lib/{name}", units=units, cuda_runtime=13)
    judgement = judge_library._judge_torch_code(facts, replace(CUDA, archs=archs, exact=True))
    assert judgement.ok is ok, judgement.reason
    assert note in (judgement.note or "")
    assert bool(note) == bool(judgement.note)


INSTALLED = Expectation(
    accelerator="cuda130", archs=("9.0",), exact_archs=False, python="3.12", torch_version="2.13"
)


@pytest.mark.parametrize(("asked", "installed", "target", "wanted"), [
    ({}, INSTALLED, {}, Wanted(cuda=True, cuda_major=13, archs=("9.0",), exact=False, required=False, python="3.12")),
    ({"accelerator": "cpu"}, INSTALLED, {}, Wanted(cuda=False, exact=False, required=False, python="3.12")),
    # architectures mean CUDA, with machine code for each
    ({"archs": ("12.0",)}, INSTALLED, {},
     Wanted(cuda=True, cuda_major=13, archs=("12.0",), exact=True, required=True, python="3.12")),
    ({}, INSTALLED, {"cuda": "12.6", "python": "3.13"},
     Wanted(cuda=True, cuda_major=13, archs=("9.0",), exact=False, required=False, python="3.12")),
    # where request and installed torch say nothing, metadata count
    ({}, Expectation(), {"cuda": "12.6", "python": "3.13"},
     Wanted(cuda=True, cuda_major=12, exact=True, required=False, python="3.13")),
    ({}, Expectation(), {"cuda": "cpu"}, Wanted(cuda=False, exact=True, required=False)),
    ({}, Expectation(python="3.12"), {"python": "abi3"}, Wanted(cuda=None, exact=True, required=False)),
])  # fmt: skip
def test_the_request_counts_more_than_the_installed_torch_and_that_more_than_metadata(
    asked: dict[str, Any], installed: Expectation, target: dict[str, str], wanted: Wanted
) -> None:
    request = Expectation(**asked)
    module = ModuleContext(
        name="x", names=frozenset(), asked=request, expected=request.filled(installed), torch=None,
        target=BuildTarget(source="", **target),  # type: ignore[arg-type]
    )  # fmt: skip
    assert module.wanted == wanted


@pytest.mark.parametrize(("name", "has_own"), [("torch", False), ("torch_scatter", False), ("thing", True)])
def test_device_code_of_torch_and_its_extensions_says_nothing_of_other_modules(
    name: str, has_own: bool
) -> None:
    contents = {name: check._Contents(facts={"a.so": BASIS}, faults={})}
    assert check._has_own_code(contents) is has_own


@pytest.mark.parametrize(
    ("facts", "known", "shown"),
    [(OF_311, "3.12", "3.11"), (OF_311, "abi3", "abi3"), (BASIS, "3.12", "3.12"), (OF_311, None, "3.11")],
)
def test_the_python_of_a_library_is_shown_unless_metadata_name_the_stable_abi(
    facts: LibraryFacts, known: str | None, shown: str
) -> None:
    assert check._find_python(facts, known) == shown


@pytest.mark.parametrize(("name", "target", "installed", "reason"), [
    ("torch_scatter", {"cuda": "13.0"}, {}, ""),  # of no known torch
    ("torch_scatter", {"cuda": "13.0"}, {"accelerator": "cuda130"}, ""),
    ("torch_scatter", {"cuda": "13.0"}, {"accelerator": "cuda132"}, "built for CUDA 13.0 (x), not for CUDA 13.2"),
    ("torchvision", {"cuda": "13.0"}, {"accelerator": "cuda132"}, ""),
    ("torch_scatter", {"cuda": "13.0"}, {"accelerator": "cpu"}, "built for CUDA 13.0 (x), not for the CPU"),
    ("torchvision", {"cuda": "cpu"}, {"accelerator": "cuda130"}, "built for the CPU (x), not for CUDA 13.0"),
    ("torch_scatter", {"python": "3.12"}, {"python": "3.13"}, "built for Python 3.12 (x), not for 3.13"),
    ("torch_scatter", {"python": "3.13"}, {"python": "3.13t"}, "built for Python 3.13 (x), not for 3.13t"),
    ("torch_scatter", {"python": "abi3"}, {"python": "3.13"}, ""),
    ("torch_scatter", {"python": "3.12"}, {}, ""),
    ("torch_scatter", {"torch": "2.13"}, {"torch_version": "2.14.0"}, "built for torch 2.13 (x), not for 2.14.0"),
    ("torch_scatter", {"torch": "2.13"}, {}, ""),
])  # fmt: skip
def test_metadata_must_fit_what_is_known_of_the_torch(
    name: str, target: dict[str, str], installed: dict[str, str], reason: str
) -> None:
    expected = Expectation(**installed)  # type: ignore[arg-type]
    built = BuildTarget(source="x", **target)  # type: ignore[arg-type]
    module = SimpleNamespace(name=name, target=built, expected=expected)
    judgement = judge_fit._judge_target(cast(Any, module), BASIS)
    assert (judgement.reason if judgement else "") == reason


@pytest.mark.parametrize(("lacks", "denies", "stable", "wrong"), [
    ([], ["c10/x.h:1"], False, "its headers differ"), ([], ["c10/x.h:1"], True, ""),
    (["_ZN3c103oldEv"], [], True, "has no c10::old"), (["_ZN3c103oldEv"], ["c10/x.h:1"], False, "has no c10::old"),
    ([], [], False, ""),
])  # fmt: skip
def test_a_library_of_the_stable_abi_needs_symbols_but_no_headers(
    lacks: list[str], denies: list[str], stable: bool, wrong: str
) -> None:
    torch = SimpleNamespace(version="2.13.0", lacks=lambda _: lacks, denies=lambda _: denies)
    facts = SimpleNamespace(undefined=frozenset(), assertions=frozenset(), stable_abi=stable)
    module = SimpleNamespace(name="x", torch=torch, expected=Expectation(torch_version="2.13.0"))
    judgement = judge_fit._judge_symbols(cast(Any, module), cast(Any, facts))
    assert (judgement is not None) == bool(wrong)
    assert judgement is None or wrong in judgement.reason


@pytest.mark.parametrize(("wants", "uses_torch", "is_open"), [
    (True, False, True), (True, True, False), (False, False, True), (None, False, False),
])  # fmt: skip
def test_a_silent_library_is_an_open_question_unless_it_only_uses_torch(
    wants: bool | None, uses_torch: bool, is_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_library, "_is_silent", lambda *_: True)
    module = SimpleNamespace(wants_cuda=wants, only_uses_torch=uses_torch)
    assert (judge_library.judge_silence(cast(Any, module), BASIS) is not None) == is_open


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("lib/libtorch_cpu.so.2.6.0", "torch"),
        ("libc10.so", "torch"),
        ("lib/python3.12/site-packages/functorch/_C.so", "torch"),
        ("usr/lib/python3/dist-packages/torch/lib/libtorch.so", "torch"),
        ("lib/python3.12/site-packages/torch_scatter/_x.so", "torch_scatter"),
        ("lib/python3.12/site-packages/flash_attn.cpython-312.so", "flash_attn"),
        ("torch_scatter/_x.so", "torch_scatter"),
        ("thing.libs/libtorch.so", "thing.libs"),
    ],
)
def test_a_library_belongs_to_the_module_of_its_folder(path: str, module: str) -> None:
    assert {*subject.sort_by_module(Path("/x"), [Path("/x", path)])} == {module}
