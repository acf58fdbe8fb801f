"""The miniature cross-compiled for ARM on x86-64, in a Debian root with cross compilers; qemu runs its tests."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import kept_sentences

from groundwork.errors import ProviderError
from groundwork.machine import machine_platform
from groundwork.user_folders import cache_folder
from megabuild.configs.config import load
from megabuild.plan.options import Options
from megabuild.plan.plan import Plan
from megabuild.plan.planning import make_plan
from megabuild.run.outlook import look_ahead
from megabuild.run.plan_report import plan_lines
from megabuild.run.session import execute
from megabuild.run.summary import Summary
from megabuild.status.status import Status
from megabuild.store.published import records

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("mmdebstrap") is None, reason="mmdebstrap is not installed"),
    pytest.mark.skipif(machine_platform() != "linux-64", reason="Debian's cross compilers run on x86-64"),
]
#: e_machine of ARM's ELF files
AARCH64 = 183
BINFMT = Path("/proc/sys/fs/binfmt_misc")


@pytest.fixture(scope="module")
def options(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Options:
    return Options(
        config=load(repository, "linux_aarch64_cpu"),
        root=repository,
        output=tmp_path_factory.mktemp("cross"),
        cache=cache_folder(os.environ),
        rehearse=True,
        cpu_count=len(os.sched_getaffinity(0)),
    )


@pytest.fixture(scope="module")
def plan(options: Options) -> Plan:
    try:
        return make_plan(options, print)
    except ProviderError as error:
        pytest.skip(error.message)


def build(plan: Plan) -> Summary:
    outlook = look_ahead(plan, {}, print)
    return execute(outlook, Status(plan.options.run_name, plan.options.state))


def libraries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.so*") if path.is_file() and not path.is_symlink()]


def machine(path: Path) -> int:
    head = path.read_bytes()[:20]
    assert head.startswith(b"\x7fELF"), path
    return int.from_bytes(head[18:], "little")


def test_the_miniature_is_compiled_for_arm_and_its_packages_run_under_qemu(plan: Plan) -> None:
    shown = plan_lines(look_ahead(plan, {}, print))
    assert "for linux-aarch64, compiled on linux-64" in shown[0]
    before = sorted(os.listdir(BINFMT)) if BINFMT.is_dir() else []
    with kept_sentences() as seen:
        summary = build(plan)
    assert (summary.ok, summary.error) == (True, "")
    swaps = {python: swap["core"] for python, swap in summary.swaps.items()}
    assert set(swaps.values()) == {0}
    assert len(swaps) >= 1
    assert all(Path(row.path).parent.name == "linux-aarch64" for row in summary.packages)
    found = libraries(plan.options.state / "tree")
    assert found
    assert {machine(path) for path in found} == {AARCH64}
    if not plan.untested:
        tested = {record.getMessage().split()[1] for record in seen if ": tested in" in record.getMessage()}
        assert {"libtorch", "pytorch", "pytorch-cpu"} <= tested
        assert all(record.is_tested for record in records(plan.options.packages).values())
    assert (sorted(os.listdir(BINFMT)) if BINFMT.is_dir() else []) == before, "the machine stays as it was"


def test_the_same_command_builds_nothing_again(plan: Plan) -> None:
    assert {row.status.value for row in build(plan).packages} == {"skipped"}
    assert "nothing to build: all packages exist" in plan_lines(look_ahead(plan, {}, print))


def test_a_native_rehearsal_shares_no_tree_and_no_package(options: Options, plan: Plan) -> None:
    native = replace(options, config=load(options.root, "linux_64_cpu"))
    made = make_plan(native, print)
    assert made.staging.compilers != plan.staging.compilers
    assert not set(made.file_names) & set(plan.file_names)
    assert plan.staging.compilers["compiling platform"] == "linux-64"
    assert "compiling platform" not in made.staging.compilers
