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
from gpu_tools.sizes.sizes_report import report_sizes
from gpu_tools.sizes.tree import ContentPart, Kind, Package, Sizes
from gpu_tools.subject_kind import SubjectKind


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


@pytest.mark.parametrize(
    ("downloads", "shown"), [((None, None), "-"), ((None, 2_000_000), "2.0 MB"), ((0, None), "0 B")], ids=str
)
@pytest.mark.parametrize("small", [False, True])
def test_a_download_of_unknown_size_is_not_one_of_no_bytes(
    downloads: tuple[int | None, ...], shown: str, small: bool
) -> None:
    """Of a package in its own row, and of several in the row of small ones."""
    packages = [Package(name="large", files={"a": {ContentPart(Kind.UNKNOWN): 10**9}}, download=5)]
    for number, download in enumerate(downloads):
        files = {str(number): {ContentPart(Kind.UNKNOWN): 10**3}}
        packages.append(Package(name=f"p{number}", files=files, download=download))
    sizes = Sizes(subject="x", kind=SubjectKind.ENVIRONMENT, packages=tuple(packages))
    lines = report_sizes(sizes, everything=not small).lines
    if small:
        (row,) = [line for line in lines if line.startswith("2 smaller packages")]
        assert row.endswith(f"  {shown}")
        return
    for number, download in enumerate(downloads):
        (row,) = [line for line in lines if line.startswith(f"p{number} ")]
        assert row.endswith("  -") == (download is None)


def test_an_environment_or_a_package_is_measured_alone(invocation: Invocation, tmp_path: Path) -> None:
    for subject in (tmp_path, Path(__file__)):
        done = call(invocation, "sizes", "torch==2.13.0", str(subject))
        assert (done.exit_code, f"error: {subject}: measured alone" in done.stderr) == (2, True)


@pytest.mark.parametrize("subject", ["missing.whl", "torch==", "a b", "", __file__])
def test_a_mistake_is_a_sentence_with_a_remedy(subject: str, invocation: Invocation) -> None:
    done = call(invocation, "sizes", subject)
    message, remedy = done.stderr.splitlines()[:2]
    assert done.exit_code == 2
    assert message.startswith("error: ")
    assert remedy.startswith("hint: ")
