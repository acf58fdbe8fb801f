"""Compiling for linux-aarch64 on x86-64, for real: the model of PyTorch, tested under qemu; the CI-sized proof."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tiny import kept_sentences

from groundwork.errors import ProviderError
from groundwork.files import cache_folder
from megabuild.configs.config import load
from megabuild.plan.options import Options
from megabuild.plan.planning import make_plan
from megabuild.providers.environment import machine_platform
from megabuild.run.session import execute

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="mmdebstrap is not installed"),
    pytest.mark.skipif(machine_platform() != "linux-64", reason="compiles for another processor than x86-64"),
]
_AARCH64 = 183  # e_machine


def test_the_model_is_compiled_for_aarch64_and_its_packages_run_there(
    repository: Path, tmp_path: Path
) -> None:
    options = Options(
        config=load(repository, "linux_aarch64_cpu_debian"),
        root=repository,
        output=tmp_path,
        cache=cache_folder(os.environ),
        rehearse=True,
        cpu_count=len(os.sched_getaffinity(0)),
    )
    registered = sorted(os.listdir("/proc/sys/fs/binfmt_misc"))
    try:
        made = make_plan(options, print)
    except ProviderError as error:
        pytest.skip(error.message)
    with kept_sentences() as seen:
        summary = execute(made)
    assert summary.ok
    assert {name: swap["core"] for name, swap in summary.swaps.items()} == {"3.11": 0, "3.13": 0}
    tested = {text.split()[1] for record in seen if ": tested in" in (text := record.getMessage())}
    assert tested == {"libtorch", "pytorch", "pytorch-cpu"}
    assert all("linux-aarch64" in str(row.path) for row in summary.packages)
    libraries = [path for path in (options.state / "tree").rglob("*.so") if not path.is_symlink()]
    assert libraries
    for path in libraries:
        assert int.from_bytes(path.read_bytes()[18:20], "little") == _AARCH64, path
    assert sorted(os.listdir("/proc/sys/fs/binfmt_misc")) == registered, "the machine itself stays as it was"
