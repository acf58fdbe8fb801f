"""`megabuild sizes` as a user and a script see it."""

from __future__ import annotations

import json
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


def test_the_table_fits_a_terminal_and_names_architectures(wheel: Path, invocation: Invocation) -> None:
    done = call(invocation, "sizes", str(wheel))
    lines = done.stdout.splitlines()
    assert done.exit_code == 0
    assert max(map(len, lines)) <= 80
    rows = {line.split("  ")[0] or line.strip().rpartition("  ")[0].split("  ")[0]: line for line in lines}
    assert rows["torch 2.0"].endswith("kB")
    assert any(row.startswith("    sm_90a") for row in lines)
    assert any(row.startswith("not attributed: ") for row in lines)


def test_json_adds_up_at_every_level(wheel: Path, invocation: Invocation) -> None:
    document = json.loads(call(invocation, "sizes", "--json", str(wheel)).stdout)
    assert document["installed"] == sum(part["bytes"] for part in document["parts"])
    (package,) = document["packages"]
    assert package["installed"] == sum(part["bytes"] for part in package["parts"]) == document["installed"]
    (library,) = package["libraries"]
    assert library["path"] == "torch/lib/libx.so"
    assert library["installed"] == sum(part["bytes"] for part in library["parts"])
    assert {"kind": "GPU code", "arch": "sm_80", "bytes": 1064} in library["parts"]
    assert (document["kind"], package["download"]) == ("wheel", wheel.stat().st_size)


@pytest.mark.parametrize("subject", ["missing.whl", "torch==", "a b", "", __file__])
def test_a_mistake_is_a_sentence_with_a_remedy(subject: str, invocation: Invocation) -> None:
    done = call(invocation, "sizes", subject)
    message, remedy = done.stderr.splitlines()[:2]
    assert done.exit_code == 2
    assert message.startswith("error: ")
    assert remedy.startswith("hint: ")
