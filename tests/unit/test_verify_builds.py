"""Wheels without torch: libraries with device code beside others, and builds for several versions of CUDA."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from test_verify_judge import PLAIN, unit

from cuda_code.library_facts import LibraryFacts
from gpu_tools.verify import check
from gpu_tools.verify.check import LibraryVerdict, verify
from gpu_tools.verify.expectation import Expectation

NEW, OLD = unit("sm_90", "sm_120"), unit("sm_75", "sm_90")
#: Of 12.0, with machine code.
ASKED = Expectation(archs=("12.0",))


def verdicts(
    folder: Path, code: Mapping[str, object], expect: Expectation, monkeypatch: pytest.MonkeyPatch
) -> dict[str, LibraryVerdict]:
    """Verify a wheel of libraries with some device code, or none; return the verdicts by file name."""
    wheel = folder / "thing-1.0-py3-none-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        archive.writestr("thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        archive.writestr("thing-1.0.dist-info/RECORD", "")
        for path in code:
            archive.writestr(path, b"")

    def read(file: Path, path: str) -> LibraryFacts:
        units = (code[path],) if code[path] else ()
        return replace(PLAIN, path=path, needed=(), machine="x86_64", units=units)  # type: ignore[arg-type]

    monkeypatch.setattr(check, "read", read)
    return {item.path.rpartition("/")[2]: item for item in verify(wheel, expect=expect).libraries}


def test_device_code_answers_for_the_libraries_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = {"thing/lib/libthing.so": NEW, "thing.libs/libgomp.so": None}
    found = verdicts(tmp_path, code, ASKED, monkeypatch)
    assert {name: item.ok for name, item in found.items()} == {"libthing.so": True, "libgomp.so": True}


def test_a_fat_binary_without_the_architecture_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = {"thing/lib/libthing.so": NEW, "thing/lib/libother.so": OLD}
    found = verdicts(tmp_path, code, ASKED, monkeypatch)
    assert (found["libthing.so"].ok, found["libother.so"].ok) == (True, False)


def test_without_device_code_the_question_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = verdicts(tmp_path, {"thing/lib/libthing.so": None}, ASKED, monkeypatch)
    assert found["libthing.so"].unknown


BUILDS = {
    "thing/libthing_cuda118.so": OLD,
    "thing/libthing_cuda128.so": NEW,
    "thing/libthing_cuda130.so": NEW,
}


@pytest.mark.parametrize(
    ("accelerator", "failing", "remark"),
    [
        ("", [], "no code for sm_120"),  # the note names the builds that have it
        ("cuda128", [], "not judged: CUDA 12.8 loads the build for CUDA 12.8"),
        ("cuda118", ["libthing_cuda118.so"], ""),
    ],
)
def test_one_of_several_builds_is_judged(
    accelerator: str, failing: list[str], remark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = verdicts(tmp_path, BUILDS, replace(ASKED, accelerator=accelerator), monkeypatch)
    assert [name for name, item in found.items() if not item.ok] == failing
    assert [item.cuda for item in found.values()] == ["11.8", "12.8", "13.0"]
    old = found["libthing_cuda118.so"].reason
    assert remark in old
    if not accelerator:
        assert "; the builds for CUDA 12.8, 13.0 are as expected: pass the CUDA of your torch" in old


def test_builds_that_all_lack_the_architecture_are_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = dict.fromkeys(BUILDS, OLD)
    assert [item.ok for item in verdicts(tmp_path, code, ASKED, monkeypatch).values()] == [False] * 3


def test_builds_of_each_library_are_judged_for_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = {
        "x/liba_cuda118.so": OLD,
        "x/liba_cuda128.so": NEW,
        "x/libb_cuda118.so": OLD,
        "x/libb_cuda128.so": OLD,
    }
    found = verdicts(tmp_path, code, ASKED, monkeypatch)
    assert [name for name, item in found.items() if not item.ok] == ["libb_cuda118.so", "libb_cuda128.so"]
