"""What the recipe does for users of the packages, tried on the files of official PyTorch 2.13.0 wheels."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import built_libraries
import pytest

import split_wheel

pytestmark = pytest.mark.long
TARGET = "targets/x86_64-linux"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """CUDA laid out as conda-forge does, with libtorch's files of the wheel beside it."""
    torch = built_libraries.torch_wheel("torch==2.13.0", "3.12").site_packages / "torch"
    home, prefix = built_libraries.cuda().home, tmp_path / "env"
    libraries = prefix / TARGET / "lib"
    libraries.mkdir(parents=True)
    (prefix / TARGET / "include").symlink_to(home / "include")
    for name in ("libcudart_static.a", "libcudadevrt.a"):
        (libraries / name).symlink_to(home / "lib" / name)
    (libraries / "libcudart.so").symlink_to(home / "lib" / "libcudart.so.13")
    (libraries / "libnvrtc.so").touch()  # only looked for: nothing is linked here
    shutil.copytree(home / "bin", prefix / "bin")
    (prefix / "nvvm").symlink_to(home / "nvvm")
    profile = prefix / "bin" / "nvcc.profile"
    profile.write_text(profile.read_text().replace("$(TOP)/$(_TARGET_DIR_)", f"$(TOP)/{TARGET}"))
    shutil.copytree(torch / "share", prefix / "share")
    for name in ("include", "lib"):
        (prefix / name).symlink_to(torch / name)
    return prefix


def configure(repository: Path, prefix: Path) -> subprocess.CompletedProcess[str]:
    build = prefix.with_name("build")
    shutil.rmtree(build, ignore_errors=True)
    command = [
        "cmake",
        "-S",
        str(repository / "recipe/cmake_test"),
        "-B",
        str(build),
        f"-DCMAKE_PREFIX_PATH={prefix}",
    ]
    path = {"PATH": f"{prefix / 'bin'}:{os.environ['PATH']}"}
    return subprocess.run(
        [*command, "-DTORCH_CUDA_ARCH_LIST=9.0"], env=os.environ | path, capture_output=True, text=True
    )


def test_a_project_finds_torch_and_cuda_below_targets(repository: Path, environment: Path) -> None:
    before = configure(repository, environment)
    assert before.returncode != 0
    assert "Could NOT find CUDA (missing: CUDA_INCLUDE_DIRS" in before.stdout
    split_wheel.settle_cmake(environment / "share" / "cmake")
    after = configure(repository, environment)
    assert after.returncode == 0, after.stderr
    assert f"Found CUDA: {environment}" in after.stdout
    assert "-gencode;arch=compute_90,code=sm_90" in after.stdout
