"""`megabuild sizes` as a user and a script see it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from calling import call
from sizes_files import GPU_CODE, elf
from wheel_files import make_wheel

from command_line.run_command import Invocation


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    library = elf([(".text", b"t" * 3000), (".nv_fatbin", GPU_CODE)])
    files = {"torch/lib/libx.so": library, "torch/x.py": b"x" * 900, "small.md": b"d"}
    return make_wheel(tmp_path, "torch-2.0-cp312-cp312-linux_x86_64.whl", files)


def test_the_table_fits_a_terminal_and_json_adds_up(wheel: Path, invocation: Invocation) -> None:
    lines = call(invocation, "sizes", str(wheel)).stdout.splitlines()
    assert max(len(line) for line in lines if "  " in line.strip()) <= 80  # tables
    assert any(line.startswith("torch 2.0") and line.endswith("kB") for line in lines)
    assert any(line.startswith("    sm_90a") for line in lines)
    document = json.loads(call(invocation, "sizes", "--json", str(wheel)).stdout)
    (package,) = document["packages"]
    (library,) = package["libraries"]
    for level in (document, package, library):
        assert level["installed"] == sum(part["bytes"] for part in level["parts"])
    assert package["installed"] == document["installed"]
    with zipfile.ZipFile(wheel) as archive:
        assert document["installed"] == sum(member.file_size for member in archive.infolist())
    assert (library["path"], package["version"]) == ("torch/lib/libx.so", "2.0")
    assert {"kind": "GPU code", "arch": "sm_80", "bytes": 1064} in library["parts"]
    assert (document["kind"], package["download"]) == ("wheel", wheel.stat().st_size)


@pytest.mark.parametrize("subject", ["missing.whl", "torch==", "a b", "", __file__])
def test_a_mistake_is_a_sentence_with_a_remedy(subject: str, invocation: Invocation) -> None:
    done = call(invocation, "sizes", subject)
    message, remedy = done.stderr.splitlines()[:2]
    assert done.exit_code == 2
    assert message.startswith("error: ")
    assert remedy.startswith("hint: ")
