"""A part that fails makes the whole fail: a test of a recipe, a library, a package, a record of a store."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from small_files import shared_library, write
from test_run_places import started
from test_run_places import tiny as tiny
from tiny import Tiny

import check_staged
import verify_package
from groundwork.errors import BuildError, IntegrityError
from megabuild.engine.job import Outcome
from megabuild.isolation.base import Host
from megabuild.run import session, store_transfer
from megabuild.run.attempt import Attempt
from megabuild.run.pytorch import PyTorchBuild
from megabuild.run.shelf import Shelf
from megabuild.run.summary import Summary
from megabuild.status.status import Status

RECIPE = Path(__file__).parents[2] / "recipe"
TORCH = """
def device(name): return name
def manual_seed(seed): pass
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [("pass", 0), ("assert False", 1), ("raise SystemExit(0)", 1), ("raise SystemExit", 1), ("1 / 0", 1)],
)
def test_a_failed_test_of_operators_fails_the_package(end: str, code: int, tmp_path: Path) -> None:
    write(tmp_path / "torch.py", TORCH)
    tests = f"def test_a(device): pass\ndef test_b(device): {end}\ndef test_c(device): pass\n"
    write(tmp_path / "operators.py", tests)
    command = [sys.executable, str(RECIPE / "pyg/common/run_operators.py"), str(tmp_path / "operators.py")]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, check=False)
    assert done.returncode == code, done.stderr


def test_a_library_that_cannot_be_read_fails_the_verification(tmp_path: Path) -> None:
    write(tmp_path / "torch_scatter" / "_scatter_cpu.so", b"\x7fELF\x02\x01" + b"\xff" * 90)
    faults = verify_package.check(tmp_path, "torch_scatter", "cpu", (), "3.12")
    assert [fault for fault in faults if fault.startswith("torch_scatter/_scatter_cpu.so: ")]


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
@pytest.mark.parametrize(
    ("body", "fits"), [("", True), ("_exit(3);", False), ("kill(getpid(), 9);", False), ("missing();", False)]
)
def test_a_library_that_ends_its_process_is_not_loadable(body: str, fits: bool, tmp_path: Path) -> None:
    head = "#include <signal.h>\n#include <unistd.h>\nvoid missing(void);\n"
    source = f"{head}__attribute__((constructor)) void start(void) {{ {body} }}"
    assert check_staged.is_loadable(shared_library(tmp_path / "lib.so", source)) == fits


def test_a_build_without_all_of_its_packages_has_failed(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """rattler-build ends with success, and has made none of them."""
    monkeypatch.setattr(Attempt, "follow", lambda *_, **__: Outcome(ok=True, kind="", message=""))
    with started(tiny, Host()) as run:
        build = PyTorchBuild(run, Shelf(run.plan.options.state, cast(Any, None)))
        result = build.work.run(1, threading.Event())
        planned = {item.package.file_name for item in run.plan.items}
    assert isinstance(result.error, BuildError)
    assert result.error.packages == planned


@pytest.mark.parametrize(("ok", "end", "code"), [(True, "done", 0), (False, "failed", BuildError.exit_code)])
def test_a_run_that_lacks_packages_has_failed(
    ok: bool, end: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --keep-going, a run ends without an error of its own."""
    summary = Summary(ok=ok, config="x", packages=(), seconds=1.0, log=tmp_path / "log", channel=tmp_path)

    class Driver(SimpleNamespace):
        def __init__(self, *_: object) -> None:
            super().__init__(go=lambda: None, summary=lambda _: summary, note_channels=lambda: None)

    monkeypatch.setattr(session, "Driver", Driver)
    options = SimpleNamespace(output=tmp_path, state=tmp_path / "x", run_name="x")
    status = Status("x", tmp_path / "x")
    session.execute(cast(Any, SimpleNamespace(options=options)), status)
    assert (status.record.status, status.record.exit_code) == (end, code)
    assert summary.result(rehearsal=False).exit_code == code


def test_a_damaged_record_of_a_store_is_not_a_stored_file() -> None:
    def find(key: str) -> object:
        raise IntegrityError("damaged")

    assert not store_transfer._has_record(cast(Any, SimpleNamespace(find=find)), "key")
    assert not store_transfer._has_record(cast(Any, SimpleNamespace(find=lambda key: None)), "key")
    assert store_transfer._has_record(cast(Any, SimpleNamespace(find=lambda key: key)), "key")
