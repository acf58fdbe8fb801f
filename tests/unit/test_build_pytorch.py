"""What build_pytorch.sh leaves of the wheel that it installs, and what its task does before."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from wheel_files import make_wheel

from groundwork.errors import PreflightError
from megabuild.run import preflight
from megabuild.run.pytorch import PyTorchWork


def test_the_record_names_what_is_there_and_nothing_names_the_folder_of_the_wheel(
    repository: Path, tmp_path: Path
) -> None:
    make_wheel(tmp_path / "dist", "torch-2.14.0a0+git1-py3-none-any.whl", {"torch/version.py": b"git = 1"})
    script = (repository / "recipe" / "build_pytorch.sh").read_text()
    install = re.search(r'^"\$PYTHON" -m pip install(?:.*\\\n)*.*', script, re.MULTILINE)
    assert install is not None
    site = tmp_path / "site"
    environment = {**os.environ, "PYTHON": sys.executable, "PIP_TARGET": str(site)}
    subprocess.run(["bash", "-euc", install[0]], cwd=tmp_path, env=environment, check=True)
    (info,) = site.glob("torch-*.dist-info")
    named = {row[0] for row in csv.reader((info / "RECORD").read_text().splitlines())}
    assert "torch/version.py" in named
    assert all((site / name).exists() for name in named)
    assert not (info / "direct_url.json").exists()


@pytest.mark.parametrize(("unpacked", "failures", "tries"), [(True, 1, 2), (True, 2, 2), (False, 1, 1)])
def test_packages_are_unpacked_again_once_where_the_compiler_does_not_work(
    unpacked: bool, failures: int, tries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a power cut leaves them, with files of no length."""
    packages = tmp_path / "rattler" / "config" / "pkgs"
    if unpacked:
        (packages / "gcc-1-0").mkdir(parents=True)
        (packages.parent / "repodata").mkdir()
    seen: list[bool] = []

    def toolchain(*_: object, **__: object) -> str:
        seen.append(packages.exists())
        if len(seen) <= failures:
            raise PreflightError("the toolchain cannot compile a small program")
        return "gcc"

    monkeypatch.setattr(preflight, "toolchain", toolchain)
    monkeypatch.setattr(preflight, "compilers", lambda packages: ["gxx_linux-64"])
    work: Any = object.__new__(PyTorchWork)
    options = SimpleNamespace(cache=tmp_path, cache_name="config")
    work._plan = SimpleNamespace(missing=[], options=options, stages=False, staging_decision=None)
    work._phase_began = work.tell = lambda *_: None
    if failures < tries:
        work.prepare(None, None, None)
    else:
        with pytest.raises(PreflightError):
            work.prepare(None, None, None)
    assert seen == [unpacked, False][:tries]
    assert not unpacked or (packages.parent / "repodata").is_dir()
