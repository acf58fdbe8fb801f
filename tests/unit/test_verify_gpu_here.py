"""The GPUs of this machine, for which `slim --arch-list native` keeps code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_tools.verify.gpu_probe import archs_here


def test_nvidia_smi_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nprintf '12.0\\n9.0\\n12.0\\n'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert archs_here() == "9.0;12.0"
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'; exit 9\n")
    assert archs_here() == ""


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_without_nvidia_smi_the_driver_is_asked(tmp_path: Path) -> None:
    source = tmp_path / "driver.c"
    source.write_text(
        "int cuInit(unsigned f) { return 0; }\n"
        "int cuDeviceGetCount(int *n) { *n = 2; return 0; }\n"
        "int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? 8 + d : 6 * (1 - d); return 0; }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", source], check=True)
    code = "from gpu_tools.verify.gpu_probe import archs_here; print(archs_here())"
    environ = {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path), "PATH": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "8.6;9.0\n"
