"""Device code in fatbins, and the ELF reader against pyelftools."""

from __future__ import annotations

import _ctypes
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from gpu_library import FOR_FAMILY, FOR_ONE, MACHINE_CODE, PTX, entry, fatbin

from cuda_code.cuda_archs import fatbins, runs_on, wanted
from cuda_code.elf_file import opened

#: Some shared library of this Python's.
LIBRARY = Path(_ctypes.__file__)


def test_units_are_kept_apart_and_their_code_by_kind_and_letter() -> None:
    found = fatbins(
        fatbin(entry(MACHINE_CODE, 90, FOR_ONE, size=3), entry(MACHINE_CODE, 100, FOR_FAMILY))
        + bytes(5)
        + fatbin(entry(MACHINE_CODE, 80), entry(PTX, 80))
    )
    assert [(unit.sm, unit.ptx) for unit in found] == [
        (frozenset({"sm_90a", "sm_100f"}), frozenset()),
        (frozenset({"sm_80"}), frozenset({"compute_80"})),
    ]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (fatbin(entry(MACHINE_CODE, 90))[:-8], "truncated"),
        (b"something else!!" * 2, "unknown data at byte 0"),
        (fatbin(b"\x02\x00\x01\x01" + bytes(60)), "unknown form"),
    ],
)
def test_what_is_not_understood_is_refused_rather_than_passed_over(data: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        fatbins(data)


@pytest.mark.parametrize(
    ("device", "sm", "ptx", "answer"),
    [
        ("sm_90", ["sm_90"], [], "native"),
        ("sm_89", ["sm_80"], [], "native"),  # a higher minor number of the same major one
        ("sm_80", ["sm_86"], [], "missing"),  # never the other way
        ("sm_120", ["sm_90"], ["compute_90"], "PTX-only"),
        ("sm_90", ["sm_80"], ["compute_120"], "missing"),
        ("sm_90", ["sm_90a"], [], "native"),
        ("sm_103", ["sm_100a"], ["compute_100a"], "missing"),
        ("sm_103", ["sm_100f"], [], "native"),
        ("sm_103", [], ["compute_100f"], "PTX-only"),
        ("sm_120", [], ["compute_100f"], "missing"),
        ("sm_87", ["sm_86", "sm_80"], [], "missing"),  # Jetson runs no desktop GPU's code
        ("sm_87", ["sm_86"], ["compute_86"], "PTX-only"),
        ("sm_89", ["sm_87"], [], "missing"),
    ],
)
def test_what_runs_on_a_gpu(device: str, sm: list[str], ptx: list[str], answer: str) -> None:
    assert runs_on(device, sm, ptx) == answer


@pytest.mark.parametrize(
    ("archs", "sm", "ptx"),
    [
        ((), set(), set()),
        (("9.0", "12.0"), {"sm_90", "sm_120"}, set()),
        (("9.0+PTX", " 12.0+PTX ", "10.0f"), {"sm_90", "sm_120", "sm_100f"}, {"compute_90", "compute_120"}),
        (("9.0a",), {"sm_90a"}, set()),
    ],
)
def test_a_list_of_archs_asks_for_machine_code_of_each_and_for_ptx_of_those_with_it(
    archs: tuple[str, ...], sm: set[str], ptx: set[str]
) -> None:
    assert tuple(map(set, wanted(archs))) == (sm, ptx)


@pytest.mark.parametrize("arch", ["90", "sm_90", "9.", "Hopper", "9.x", ""])
def test_what_is_no_arch_is_refused(arch: str) -> None:
    with pytest.raises(ValueError, match=f"^{arch}: not a CUDA architecture"):
        wanted(("12.0", arch))


def test_the_elf_reader_agrees_with_pyelftools() -> None:
    with LIBRARY.open("rb") as stream:
        other = ELFFile(stream)
        symbols, dynamic = other.get_section_by_name(".dynsym"), other.get_section_by_name(".dynamic")
        assert isinstance(symbols, SymbolTableSection)
        assert isinstance(dynamic, DynamicSection)
        named = [symbol for symbol in symbols.iter_symbols() if symbol.name]
        exported = {symbol.name for symbol in named if symbol["st_shndx"] != "SHN_UNDEF"}
        undefined = {
            symbol.name
            for symbol in named
            if symbol["st_shndx"] == "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_WEAK"
        }
        needed = tuple(
            str(vars(tag)["needed"]) for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_NEEDED"
        )
        section = other.get_section_by_name(".rodata")
        assert section is not None
        constants = section.data()
    assert undefined
    with opened(LIBRARY) as library:
        assert library.exported() == exported
        assert library.undefined() == undefined
        assert library.needed() == needed
        assert library.content(".rodata") == constants
