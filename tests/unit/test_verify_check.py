"""The verdict about a whole package: every library counts, and so does what metadata say of it."""

from __future__ import annotations

import _ctypes
import io
import json
import tarfile
from pathlib import Path

import pytest
from wheel_files import make_wheel

from gpu_tools.verify.check import verify
from gpu_tools.verify.expectation import Expectation


def wheel(folder: Path, build: str, **libraries: bytes) -> Path:
    """A wheel of a module that the table of extensions does not know."""
    members = {f"other/{name}.so": content for name, content in libraries.items()}
    return make_wheel(folder, f"other-1.0+{build}-cp312-cp312-linux_x86_64.whl", members)


@pytest.mark.parametrize(
    ("build", "accelerator", "said"),
    [
        ("pt213cu130", "cpu", "built for CUDA 13.0"),
        ("pt213cpu", "cuda130", "built for the CPU"),
        ("pt213cu126", "cuda130", "built for CUDA 12.6"),
    ],
)
def test_a_build_for_another_processor_is_refused_whatever_its_libraries_hold(
    build: str, accelerator: str, said: str, tmp_path: Path
) -> None:
    path = wheel(tmp_path, build, good=Path(_ctypes.__file__).read_bytes())
    verdict = verify(path, expect=Expectation(accelerator=accelerator))
    assert not verdict.ok
    assert said in verdict.libraries[0].reason


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
