"""A cross build of an extension takes the headers of the libtorch that it links, not of the one that it imports."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from small_files import write

NAME = "0003-headers-and-libraries-of-the-environment.patch"


@pytest.fixture(params=["official", "debian"])
def patch(request: pytest.FixtureRequest, repository: Path) -> str:
    return (repository / "recipe" / "patches" / str(request.param) / NAME).read_text()


def first_folders(patch: str, torch_include: Path, environment: Path) -> list[str]:
    """Call the function that the patch adds to cpp_extension."""
    added = "\n".join(line[1:] for line in patch.splitlines() if line.startswith("+"))
    (source,) = re.findall(r"^def _headers_of_other_libtorch.*?\n(?=\n\n)", added, re.MULTILINE | re.DOTALL)
    module = {"os": os, "List": list, "_ENVIRONMENT_INCLUDE": str(environment)}
    exec(source, module)
    found = module["_headers_of_other_libtorch"](str(torch_include))  # type: ignore[operator]
    assert isinstance(found, list)
    return found


def environment(root: Path, blas: int) -> Path:
    """Lay out libtorch's headers, and the links that torch has to them; return torch's folder of headers."""
    write(root / "include" / "ATen" / "Config.h", f"#define AT_BLAS {blas}\n")
    write(root / "include" / "torch" / "csrc" / "api" / "include" / "torch" / "torch.h", "")
    torch = root / "lib" / "python3.13" / "site-packages" / "torch" / "include"
    torch.mkdir(parents=True)
    for name in ("ATen", "torch"):
        (torch / name).symlink_to(os.path.relpath(root / "include" / name, torch))
    return torch


def test_the_patches_call_it_before_all_other_folders(patch: str) -> None:
    assert "    paths[:0] = _headers_of_other_libtorch(lib_include)\n" in patch


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_a_cross_build_includes_the_host_environments_config(patch: str, tmp_path: Path) -> None:
    imported = environment(tmp_path / "build_env", blas=1)
    environment(tmp_path / "host_env", blas=2)
    include = tmp_path / "host_env" / "include"
    folders = [*first_folders(patch, imported, include), str(imported), str(include)]
    options = [f"-I{folder}" for folder in folders]
    write(tmp_path / "a.cpp", "#include <ATen/Config.h>\n#include <torch/torch.h>\nint blas = AT_BLAS;\n")
    text = subprocess.check_output(["g++", "-E", *options, str(tmp_path / "a.cpp")], text=True)
    assert "int blas = 2;" in text
    assert "build_env" not in text


def test_a_native_build_searches_the_same_folders_as_before(patch: str, tmp_path: Path) -> None:
    torch = environment(tmp_path, blas=1)
    assert first_folders(patch, torch, tmp_path / "include") == []
    assert first_folders(patch, torch, tmp_path / "no-libtorch" / "include") == []
