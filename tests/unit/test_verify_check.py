"""The verdict about a package of libtorch, whose files have a version on Debian."""

from __future__ import annotations

import _ctypes
import io
import json
import tarfile
from pathlib import Path

import pytest

from gpu_tools.verify.check import verify
from gpu_tools.verify.expectation import Expectation


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
