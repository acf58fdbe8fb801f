"""Libraries made smaller: they load, find their GPU code where they look for it, and what is not understood stays."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from gpu_library import (
    FOR_FAMILY,
    FOR_ONE,
    LTO_IR,
    MACHINE_CODE,
    PTX,
    build,
    digest,
    entry,
    fatbin,
    seen_in_memory,
)

from cuda_code import cuda_archs
from cuda_code.elf_file import opened
from gpu_tools.slim.gpu_code import _find_fatbins
from gpu_tools.slim.layout import RangeChange, hole, lay_out
from gpu_tools.slim.library import LibrarySlimmed, slim_library
from gpu_tools.slim.tables import NotUnderstood, read

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")

SM = {arch: entry(MACHINE_CODE, arch) for arch in (80, 90, 120)}
SMALL = entry(MACHINE_CODE, 75, size=1000)
USUAL = [
    fatbin(SM[80], SM[90], SM[120], entry(PTX, 120)),
    fatbin(SMALL, SM[90]),
    fatbin(entry(MACHINE_CODE, 90, FOR_ONE), entry(MACHINE_CODE, 120, FOR_FAMILY), entry(LTO_IR, 80)),
]
FOR_120 = [
    fatbin(SM[120]),
    fatbin(SMALL),  # nothing runs there, before or after
    fatbin(entry(MACHINE_CODE, 120, FOR_FAMILY), entry(LTO_IR, 80)),
]
#: Another section: code for others, then one of which part is for 12.0, then others again.
RESOURCES = [fatbin(SM[90]), fatbin(SM[80], SM[120]), fatbin(entry(MACHINE_CODE, 100, FOR_ONE, 70_000))]
PLACES = [0, len(RESOURCES[0]), len(RESOURCES[0]) + len(RESOURCES[1])]


def slimmed(library: Path, *gpus: str, symbols: bool = True) -> tuple[LibrarySlimmed, Path]:
    """Slim a library, and look at what holds for every one."""
    target = library.with_name("slimmed.so")
    before = library.read_bytes()
    planned = slim_library(library, None, gpus=gpus, symbols=symbols)
    done = slim_library(library, target, gpus=gpus, symbols=symbols)
    assert planned == done
    assert library.read_bytes() == before
    assert done.before == len(before)
    assert done.before - done.after == done.gpu_code + done.symbols
    assert target.exists() == (done.after < done.before)
    if target.exists():
        assert target.stat().st_size == done.after
    return done, target


def compacted(small: Path, size: int = sum(map(len, FOR_120))) -> bool:
    """Say whether nvcc's section has become so small, and not only lost pages of the file."""
    with opened(small) as library:
        return library.sections[".nv_fatbin"].size == size


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["-Wl,-z,max-page-size=0x200000"],
        ["-Wl,-z,max-page-size=0x10000", "-Wl,-z,noseparate-code"],
        ["-Wl,-z,now", "-Wl,-z,relro", "-Wl,--hash-style=sysv"],
        ["-Wl,-z,pack-relative-relocs"],
    ],
    ids=["usual", "2 MB", "code and data together", "relro", "packed"],
)
def test_a_slimmed_library_finds_the_code_for_its_gpu(flags: list[str], tmp_path: Path) -> None:
    library = build(tmp_path, USUAL, b"".join(RESOURCES), flags=flags)
    assert seen_in_memory(library, 3, PLACES) == ([*map(digest, USUAL)], [*map(digest, RESOURCES)])
    done, small = slimmed(library, "sm_120")
    stays = [RESOURCES[1], fatbin(SMALL)]
    resources = [*map(digest, (stays[1], stays[0], stays[1]))]
    assert seen_in_memory(small, 3, PLACES) == ([*map(digest, FOR_120)], resources)
    assert done.gpu_code > sum(map(len, USUAL)) - sum(map(len, FOR_120)) + 90_000 - 8 * 4096
    assert compacted(small) == ("-Wl,-z,pack-relative-relocs" not in flags)
    again, _ = slimmed(small.rename(tmp_path / "once.so"), "sm_120")
    assert (again.before, again.trouble) == (again.after, "")


def test_a_section_of_a_larger_alignment_than_others_segments(tmp_path: Path) -> None:
    """As in XLA's libraries: read-only data ask for 32 kB, and only the segment they lie in has that alignment."""
    wide = 'const char table[40000] __attribute__((aligned(32768))) = "wide";'
    more = f"{wide} int work(int x) {{ return (unsigned long)table % 32768 ? 0 : data[1] + zeros[x]; }}"
    library = build(tmp_path, USUAL, b"".join(RESOURCES), more=more, flags=["-Wl,-z,max-page-size=0x1000"])
    with library.open("rb") as stream:
        loaded = [*ELFFile(stream).iter_segments("PT_LOAD")]
    assert max(one["p_align"] for one in loaded) == 32768
    assert any((one["p_vaddr"] - one["p_offset"]) % 32768 for one in loaded)
    done, small = slimmed(library, "sm_120")
    assert compacted(small)
    assert done.gpu_code > sum(map(len, USUAL)) - sum(map(len, FOR_120)) + 60_000 - 8 * 32768
    # the first is too small for a hole of such pages
    stays = [*RESOURCES[:2], fatbin(SMALL)]
    assert seen_in_memory(small, 3, PLACES) == ([*map(digest, FOR_120)], [*map(digest, stays)])
    with small.open("rb") as stream:
        for one in ELFFile(stream).iter_segments("PT_LOAD"):
            assert (one["p_vaddr"] - one["p_offset"]) % one["p_align"] == 0


def test_an_alignment_that_no_segment_has_is_not_heeded(tmp_path: Path) -> None:
    """The loader places segments and knows no sections."""
    library = build(tmp_path, USUAL, b"".join(RESOURCES))
    usual, _ = slimmed(library, "sm_120")
    with library.open("r+b") as stream:
        elf = ELFFile(stream)
        number = elf.get_section_index(".nv_fatbin")
        stream.seek(elf["e_shoff"] + number * elf["e_shentsize"] + 48)  # sh_addralign
        stream.write(struct.pack("<Q", 1 << 21))
    (tmp_path / "slimmed.so").unlink()
    wide, small = slimmed(library, "sm_120")
    assert wide.after == usual.after
    assert seen_in_memory(small, 3, PLACES)[0] == [*map(digest, FOR_120)]


def test_a_compacted_section_can_be_read_from_the_file(tmp_path: Path) -> None:
    _, small = slimmed(build(tmp_path, USUAL), "sm_120", symbols=False)
    with opened(small) as library:
        assert library.content(".nv_fatbin") == b"".join(FOR_120)
        units = cuda_archs.units(library)
    assert [sorted(unit.sm) for unit in units] == [["sm_120"], ["sm_75"], ["sm_120f"]]
    with small.open("rb") as stream:
        sections = ELFFile(stream)
        symbols = sections.get_section_by_name(".symtab")
        (section,) = (one for one in sections.iter_sections() if one.name == ".nv_fatbin")
        places = [symbols.get_symbol_by_name(f"fat{n}")[0]["st_value"] for n in range(3)]  # type: ignore[union-attr]
    assert [place - section["sh_addr"] for place in places] == [
        0,
        len(FOR_120[0]),
        len(FOR_120[0] + FOR_120[1]),
    ]
    for command in (["readelf", "-aW"], ["objdump", "-x"], ["nm", "-D"]):
        done = subprocess.run([*command, str(small)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), command


@pytest.mark.parametrize("flags", [["-pie"], ["-no-pie", "-static"]], ids=["loaded", "static"])
def test_a_program_loses_only_its_symbols_and_runs(flags: list[str], tmp_path: Path) -> None:
    build(tmp_path, USUAL, more="int work(int x) { return x; } int main(void) { return data[1] + 40; }")
    command = ["gcc", "-g", "-fPIC", *flags, "-o", "program", "code.c", "code.s"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done, small = slimmed(tmp_path / "program", "sm_120")
    assert (done.gpu_code, done.symbols > 0) == (0, True)
    small.chmod(0o755)
    assert subprocess.run([small], check=False).returncode == 42


def test_a_fat_binary_without_a_wrapper_keeps_its_place(tmp_path: Path) -> None:
    """The CUDA runtime's own, where it is linked in, is the first; anywhere else each keeps its address."""
    _, small = slimmed(build(tmp_path, USUAL, unwrapped=1), "sm_120")
    assert compacted(small)
    assert seen_in_memory(small, 2)[0] == [*map(digest, FOR_120[1:])]
    (tmp_path / "two").mkdir()
    done, small = slimmed(build(tmp_path / "two", USUAL, unwrapped=2), "sm_120")
    assert (done.gpu_code > 0, compacted(small)) == (True, False)
    assert seen_in_memory(small, 1)[0] == [digest(FOR_120[2])]


def test_code_that_is_known_by_name_keeps_its_address(tmp_path: Path) -> None:
    source = 'extern const char fat2[]; __attribute__((visibility("default"))) const void *table[] = {&fat2[5000]};'
    more = f"{source} int work(int x) {{ return data[1] + zeros[x]; }}"
    done, small = slimmed(build(tmp_path, USUAL, more=more), "sm_120")
    assert (done.gpu_code > 0, compacted(small)) == (True, False)
    assert seen_in_memory(small, 3)[0] == [*map(digest, FOR_120)]


def test_code_is_found_whatever_the_order_of_the_sections(tmp_path: Path) -> None:
    with opened(build(tmp_path, USUAL, b"".join(RESOURCES))) as library:
        tables = read(library)
        found = _find_fatbins(library, tables)
        turned = _find_fatbins(library, replace(tables, sections=tables.sections[::-1]))
    assert len(found) == 2
    last = len(tables.sections) - 1
    assert {last - index: fatbins for index, fatbins in turned.items()} == found


def test_the_holes_are_no_more_than_the_loader_bears(tmp_path: Path) -> None:
    many = [fatbin(entry(MACHINE_CODE, 80, size=30_000 + 8 * number)) for number in range(700)]
    places = [sum(map(len, many[:number])) for number in range(700)]
    library = build(tmp_path, [], fatbin(SMALL) + b"".join(many))
    done, small = slimmed(library, "sm_120", symbols=False)
    assert done.gpu_code > 400 * 20_000
    with small.open("rb") as stream:
        assert ELFFile(stream).num_segments() < 1100
    seen = seen_in_memory(small, 0, [place + len(fatbin(SMALL)) for place in places])[1]
    assert {*seen} <= {*map(digest, many), digest(fatbin(SMALL))}
    assert seen.count(digest(fatbin(SMALL))) > 400


def _patched(at: int, content: bytes) -> Callable[[bytearray], None]:
    def patch(data: bytearray) -> None:
        data[at : at + len(content)] = content

    return patch


def _cut(data: bytearray) -> None:
    del data[len(data) // 2 :]


def _unload(data: bytearray) -> None:
    for at in range(64, 64 + 56 * data[56], 56):
        data[at] = 0


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_cut, "truncated"),
        (_patched(4, b"\1"), "not a 64-bit little-endian ELF file"),
        (_patched(16, b"\1"), "neither a shared library nor a program"),
        (_patched(40, bytes(8)), "no section headers"),
        (_patched(32, struct.pack("<Q", 1 << 50)), "program headers beyond the end"),
        (_patched(54, b"\x20\0"), "unknown form"),
        (_unload, "no segment is mapped"),
        (_patched(64 + 32, struct.pack("<Q", 1 << 40)), "beyond the end"),
        (lambda data: data.extend(b"appended" * 2000), "data after the last section"),
        (lambda data: data.clear(), "empty"),
    ],
)
def test_what_is_not_understood_is_left_alone(
    damage: Callable[[bytearray], None], reason: str, tmp_path: Path
) -> None:
    library = build(tmp_path, USUAL)
    data = bytearray(library.read_bytes())
    damage(data)
    if "section headers" in reason:
        data[40:48] = data[60:62] = bytes(8)
        data[60:64] = bytes(4)
    library.write_bytes(data)
    done, _ = slimmed(library, "sm_120")
    assert reason in done.trouble


#: Places of fields in a program header.
OFFSET, ADDRESS, SIZE, MEMORY, ALIGN = 8, 16, 32, 40, 48


@pytest.mark.parametrize(
    ("which", "fields", "reason"),
    [
        (1, {OFFSET: lambda loaded: loaded[0]["p_offset"]}, "overlapping segments"),
        (1, {ADDRESS: lambda loaded: loaded[0]["p_vaddr"]}, "overlapping segments"),
        (0, {ALIGN: lambda _: 3}, "segments of unknown form"),
        (0, {MEMORY: lambda loaded: loaded[0]["p_filesz"] - 1}, "segments of unknown form"),
        (-1, {ADDRESS: lambda loaded: loaded[-1]["p_vaddr"] + 8}, "segments not aligned to pages"),
        (-1, {OFFSET: lambda _: 1 << 40}, "sections or segments beyond the end of the file"),
    ],
    ids=["in the file", "in memory", "align", "smaller in memory", "not aligned", "beyond"],
)
def test_contradicting_segments_are_left_alone(
    which: int, fields: Mapping[int, Callable[[list[Any]], int]], reason: str, tmp_path: Path
) -> None:
    library = build(tmp_path, USUAL)
    with library.open("rb") as stream:
        file = ELFFile(stream)
        table = file["e_phoff"]
        numbers = [n for n, one in enumerate(file.iter_segments()) if one["p_type"] == "PT_LOAD"]
        loaded = [file.get_segment(number) for number in numbers]
        values = {place: of(loaded) for place, of in fields.items()}
    data = bytearray(library.read_bytes())
    for place, value in values.items():
        struct.pack_into("<Q", data, table + 56 * numbers[which] + place, value)
    library.write_bytes(data)
    done, small = slimmed(library, "sm_120")
    assert (done.trouble, small.exists()) == (reason, False)


def test_code_that_is_mapped_in_part_only_is_not_touched(tmp_path: Path) -> None:
    library = build(tmp_path, USUAL)
    data = bytearray(library.read_bytes())
    with library.open("rb") as stream:
        file = ELFFile(stream)
        code = file.get_section_by_name(".nv_fatbin")
        assert code is not None
        middle = code["sh_offset"] + len(USUAL[0]) // 2
        for number, one in enumerate(file.iter_segments()):
            if one["p_type"] == "PT_LOAD" and one["p_offset"] <= middle < one["p_offset"] + one["p_filesz"]:
                struct.pack_into("<Q", data, file["e_phoff"] + 56 * number + SIZE, middle - one["p_offset"])
    library.write_bytes(data)
    done, small = slimmed(library, "sm_120", symbols=False)
    assert (done.before, done.trouble, small.exists()) == (done.after, "", False)


def test_sections_that_share_bytes_are_left_alone(tmp_path: Path) -> None:
    library = build(tmp_path, USUAL)
    with library.open("rb") as stream:
        file = ELFFile(stream)
        table, index = file["e_shoff"], file.get_section_index(".symtab")
        names = file.get_section_by_name(".shstrtab")["sh_offset"]  # type: ignore[index]
    data = bytearray(library.read_bytes())
    struct.pack_into("<Q", data, table + 64 * (index or 0) + 24, names - 8)
    library.write_bytes(data)
    done, _ = slimmed(library, "sm_120")
    assert "two uses" in done.trouble


def test_ranges_that_overlap_are_refused(tmp_path: Path) -> None:
    """One of them would overwrite bytes of the other one."""
    with opened(build(tmp_path, USUAL)) as library:
        code = library.sections[".nv_fatbin"]
        middle = code.offset + len(USUAL[0])
        for end in (middle, middle + 1):
            changes = [
                RangeChange(start=code.offset, end=end),
                RangeChange(start=middle, end=code.offset + code.size),
            ]
            with pytest.raises(NotUnderstood, match="overlap") if end > middle else nullcontext():
                lay_out(read(library), changes, frozenset(), len(library.data))


def test_new_program_headers_are_in_no_page_that_is_mapped(tmp_path: Path) -> None:
    """The loader clears the rest of the last page: here, that of a file without anything after its data."""
    with opened(build(tmp_path, USUAL)) as library:
        tables = read(library)
        code = library.sections[".nv_fatbin"]
        mapped = max(segment.end for segment in tables.loaded)
        change = RangeChange(start=code.offset, end=code.end)
        layout = lay_out(tables, [change], frozenset(), mapped)
    gone = sum(placed.gone for placed in layout.changes)
    (offsets,) = (placed.change.pieces[0] for placed in layout.changes if placed.change.start == 32)
    assert isinstance(offsets, bytes)
    place, _ = struct.unpack("<QQ", offsets)
    assert gone > 0
    assert place >= -(-(mapped - gone) // tables.page) * tables.page


@pytest.mark.parametrize("is_followed", [True, False])
def test_content_before_a_segment_goes_by_whole_pages(is_followed: bool, tmp_path: Path) -> None:
    """Patchelf and auditwheel append a segment behind all sections: the loader maps it by pages of the file."""
    with opened(build(tmp_path, USUAL)) as library:
        tables = read(library)
        end = len(library.data)
    change = RangeChange(start=end, end=end + 3 * tables.page + 32)
    if is_followed:
        last = tables.loaded[-1]._replace(offset=change.end, address=change.end, size=8, memory=8)
        tables = replace(tables, segments=(*tables.segments, last))
    start, stop = hole(tables, change)
    assert start == end
    assert stop - start == (3 * tables.page if is_followed else 3 * tables.page + 32)


def test_on_aarch64_whole_pages_of_64_kb_go(tmp_path: Path) -> None:
    library = build(tmp_path, USUAL, flags=["-Wl,-z,max-page-size=0x10000"])
    data = bytearray(library.read_bytes())
    struct.pack_into("<H", data, 18, 183)  # as that machine's linker would write it
    with library.open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".rela.dyn")
        assert table is not None
        for at in range(table["sh_offset"], table["sh_offset"] + table["sh_size"], 24):
            if struct.unpack_from("<Q", data, at + 8) == (8,):
                struct.pack_into("<Q", data, at + 8, 1027)
    library.write_bytes(data)
    done, small = slimmed(library, "sm_120")
    assert compacted(small)
    assert done.gpu_code >= sum(map(len, USUAL)) - sum(map(len, FOR_120)) - 2 * 0x10000
    with small.open("rb") as stream:
        file = ELFFile(stream)
        loaded = [one for one in file.iter_segments("PT_LOAD") if one["p_filesz"]]
        assert all((one["p_vaddr"] - one["p_offset"]) % 0x10000 == 0 for one in loaded)
        assert all(one["p_align"] >= 0x10000 for one in loaded)
        assert file["e_phoff"] >= max(one["p_offset"] + one["p_filesz"] for one in loaded)


@pytest.mark.parametrize(("part", "size"), [(SM[90], 1 << 40), (USUAL[0], len(USUAL[0]) - 116)])
def test_a_fat_binary_with_a_wrong_size_is_not_touched(part: bytes, size: int, tmp_path: Path) -> None:
    library = build(tmp_path, USUAL)
    data = bytearray(library.read_bytes())
    struct.pack_into("<Q", data, data.index(part) + 8, size)
    library.write_bytes(data)
    _, small = slimmed(library, "sm_120", symbols=False)
    start, end = data.index(USUAL[0][:8]), data.index(USUAL[1][:8])
    assert not small.exists() or bytes(data[start:end]) in small.read_bytes()


def test_what_only_begins_like_a_fat_binary_is_data(tmp_path: Path) -> None:
    looks = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 60_000) + random.Random(1).randbytes(60_000)
    done, _ = slimmed(build(tmp_path, [], looks), "sm_120", symbols=False)
    assert (done.before, done.trouble) == (done.after, "")


def test_whatever_is_damaged_nothing_breaks(tmp_path: Path) -> None:
    library = build(tmp_path, USUAL, b"".join(RESOURCES))
    whole = library.read_bytes()
    (tables,) = struct.unpack_from("<Q", whole, 40)
    chance = random.Random(20261122)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            at = chance.choice([chance.randrange(16, 1200), chance.randrange(tables, len(whole))])
            data[at] = chance.choice([0, 1, 0x7F, 0xFF, chance.randrange(256)])
        library.write_bytes(data)
        library.with_name("slimmed.so").unlink(missing_ok=True)
        slimmed(library, "sm_120")
