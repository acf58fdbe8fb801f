"""Verdicts: about libtorch, whose files have a version on Debian, and about several libraries."""

from __future__ import annotations

import _ctypes
import io
import itertools
import json
import tarfile
from pathlib import Path

import pytest

from gpu_tools.verify.check import LibraryVerdict, Verdict, verify
from gpu_tools.verify.expectation import Expectation
from gpu_tools.verify.verify_report import verdict_result
from groundwork.errors import UnknownError, VerdictError

STATES = ("right", "unknown", "wrong")


@pytest.mark.parametrize("version", ["", ".2.6.0"])
def test_libtorch_is_known_whether_or_not_its_files_have_a_version(version: str, tmp_path: Path) -> None:
    path, content = tmp_path / "libtorch-2.6.0-cuda124_h0_0.tar.bz2", Path(_ctypes.__file__).read_bytes()
    index = json.dumps({"name": "libtorch", "version": "2.6.0", "build": "cuda124_h0_0", "depends": []})
    members = {f"lib/lib{name}.so{version}": content for name in ("c10", "torch_cpu", "torch_cuda")}
    with tarfile.open(path, "w:bz2") as archive:
        for name, data in {**members, "info/index.json": index.encode()}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    verdict = verify(path, expect=Expectation(accelerator="", archs=("9.0",)))
    assert {one.module for one in verdict.libraries} == {"torch"}
    (wrong,) = (one for one in verdict.libraries if not one.ok)
    assert (wrong.path, wrong.unknown) == (f"lib/libtorch_cuda.so{version}", False)
    assert "device code" in wrong.reason


@pytest.mark.parametrize("states", [*itertools.product(STATES, repeat=3)], ids="-".join)
@pytest.mark.parametrize("in_one", [True, False], ids=["one subject", "a subject each"])
def test_a_wrong_library_outweighs_one_without_an_answer(states: tuple[str, ...], in_one: bool) -> None:
    libraries = tuple(
        LibraryVerdict(path="a.so", module="a", ok=state == "right", unknown=state == "unknown")
        for state in states
    )
    groups = [libraries] if in_one else [(library,) for library in libraries]
    verdicts = [Verdict(subject="a", libraries=group) for group in groups]
    code = 0
    if "wrong" in states:
        code = VerdictError.exit_code
    elif "unknown" in states:
        code = UnknownError.exit_code
    assert verdict_result(verdicts).exit_code == code
    if in_one:
        assert (verdicts[0].ok, verdicts[0].unknown) == (code == 0, code == UnknownError.exit_code)


@pytest.mark.parametrize(("state", "sign"), [("right", "!"), ("unknown", "?"), ("wrong", "✗")])
def test_a_remark_has_the_sign_of_its_verdict(state: str, sign: str) -> None:
    library = LibraryVerdict(
        path="x/a.so",
        module="a",
        ok=state == "right",
        unknown=state == "unknown",
        reason="why",
        remedy="what",
    )
    lines = [*verdict_result([Verdict(subject="a", libraries=(library,))]).lines]
    assert lines[-2:] == [f"{sign} a.so: why", "  what"]
