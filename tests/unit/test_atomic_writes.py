"""Files that other processes read, or the next run believes, are replaced by renames: none is ever half written."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from small_files import write
from stop_at_write import watched
from tiny import make_package
from wheel_files import make_wheel

import sync_tree
import tree_dates
from cmake_python_swap import atomic_file, cmake_cache, python_headers
from conda_wheels import simple_index
from groundwork import files, in_use
from groundwork.channel import Channel
from groundwork.network import wheel_contents
from groundwork.network.cache import Cache
from groundwork.network.index import Configured
from groundwork.redact import Mask
from megabuild import environments
from megabuild.engine import output_folder, reproducible, worker
from megabuild.isolation.base import Host
from megabuild.plan import environment_record, last_run, tree_reuse, work_record
from megabuild.plan.fingerprint import Fingerprint
from megabuild.providers.local import package_store
from megabuild.run import failure_shell
from megabuild.run.log_archive import LogArchive
from megabuild.run.logfile import LogFile
from megabuild.run.summary import Summary
from megabuild.status import record
from megabuild.store import published
from megabuild.timeline import page
from pin_audit import audit_report, snapshots
from pin_audit.repositories import Clone
from tree_inputs import record as tree_record

SOURCES = Path(__file__).parents[2] / "src"


def status(folder: Path) -> None:
    record.write(folder, record.RunRecord(config="x"))


def isolation_of_the_work(folder: Path) -> None:
    work_record.write_record(folder, Host())


def stamp_of_a_tree(folder: Path) -> None:
    tree_reuse.write(folder, Fingerprint())


def duration_of_a_run(folder: Path) -> None:
    last_run.keep_last_runs(cast(Any, None), last_run.NO_RUNS)


def channels_of_packages(folder: Path) -> None:
    published.note_channels(folder, [Channel.parse("https://c.example/x")])


def sums(folder: Path) -> None:
    published.write_sums(folder)


def inputs_of_packages(folder: Path) -> None:
    output_folder.prepare_output(folder, inputs={"a.conda": "f"}, published=[], platform="linux-64")


def seals(folder: Path) -> None:
    write(folder / "out/build_cache/staging_1/metadata.json", "{}")
    output_folder.seal_stagings(folder / "out")


def program_after_a_failure(folder: Path) -> None:
    isolation = SimpleNamespace(environment=lambda _: {}, interactive=lambda *_, **__: ["true"])
    place = SimpleNamespace(isolation=isolation, mounts=(), state_inside="/x", name="x")
    failure_shell.write_program(folder / "enter", cast(Any, place), ["true"], name="x")


def summary(folder: Path) -> None:
    made = Summary(ok=True, config="x", packages=(), seconds=1.0, log=folder / "log", channel=folder)
    made.write(folder / "run.json")


def answer_of_a_server(folder: Path) -> None:
    Cache(folder).cached(Clone(address="a", only=""), 9.0, lambda: b"answer")


def contents_of_a_wheel(folder: Path) -> None:
    wheel = folder / "made/a-1-py3-none-any.whl"
    file = SimpleNamespace(sha256="", name=wheel.name, url=wheel.as_uri())
    wheel_contents.Contents(Configured(), folder).of(cast(Any, file))


def facts_of_a_release(folder: Path) -> None:
    snapshot = snapshots.Snapshot(package="a", version="1", made="2026-01-01T00:00:00Z", sources=())
    snapshots.save(snapshot, folder / "snapshots")


def output_in_use(folder: Path) -> None:
    in_use.note_output(folder, folder / "output")


def table_in_a_page(folder: Path) -> None:
    audit_report.insert(folder / "page.md", "text")


def activation(folder: Path) -> None:
    environments._write_activation(folder)


def index_of_wheels(folder: Path) -> None:
    wheel = folder / "made/a-1-py3-none-any.whl"
    digest = files.sha256(wheel)
    entry = simple_index.index_entry(wheel, project="a", python=None, package=digest, inputs=digest)
    simple_index.publish(folder, {entry: wheel})


def latest_log(folder: Path) -> None:
    with LogFile(folder, "run", Mask({})) as log:
        log.become_latest()


def index_of_a_local_channel(folder: Path) -> None:
    package_store._write_index(folder, [], ("linux-64",), {})


def normalised_package(folder: Path) -> None:
    reproducible.normalise(folder / "made/linux-64/a-1-0.conda", folder / "a-1-0.conda", 10**9, level=1)


def settings_of_cmake(folder: Path) -> None:
    cmake_cache.save(cmake_cache.load(folder / cmake_cache.NAME), folder / cmake_cache.NAME)


def first_settings_of_cmake(folder: Path) -> None:
    atomic_file.keep_original(folder / cmake_cache.NAME)


def headers_of_a_python(folder: Path) -> None:
    facts = SimpleNamespace(include="", numpy_include="", pybind11_include="")
    python_headers.record(folder, cast(Any, facts))


def names_of_a_trees_sources(folder: Path) -> None:
    sync_tree._write(folder, ["a.cpp"])


def log_of_ninja(folder: Path) -> None:
    tree_dates._write(folder / ".ninja_log", b"new", folder / tree_dates.SCRATCH)


def packages_of_environments(folder: Path) -> None:
    kept = environment_record.EnvironmentRecord(
        config="x", provider="local", planned=0.0, is_complete=False, pythons=(), channels=(), overrides={},
        packages=(),
    )  # fmt: skip
    environment_record.write(folder, kept)


def page_of_runs(folder: Path) -> None:
    page.write_page([], folder / "page.md", 0.0)


def outcome_of_a_worker(folder: Path) -> None:
    """Of one that was killed there is none."""
    job = write(folder / "job.json", json.dumps({"env": {}, "tests": [], "test": False}))
    worker.main([str(job), str(folder / "outcome.json")])


def archive_of_logs(folder: Path) -> None:
    logs = LogArchive(folder, [])
    write(folder / "logs/crash-1.txt")
    logs.write(["x: done"])


def inputs_of_a_tree(folder: Path) -> None:
    made = tree_record.Record(files={}, folders={}, checks=tree_record.Checks())
    tree_record.write(folder / tree_record.COMPLETE, made)


def linked(folder: Path) -> None:
    files.link(folder / "page.md", folder / "target")


def copied(folder: Path) -> None:
    files.copy(folder / "page.md", folder / "target")


def moved(folder: Path) -> None:
    files.move(folder / "page.md", folder / "target")


#: The file, below the folder, that each replaces.
WRITERS: dict[Callable[[Path], None], str] = {
    status: record.NAME,
    isolation_of_the_work: work_record._NAME,
    stamp_of_a_tree: tree_reuse.STAMP,
    duration_of_a_run: "duration",
    channels_of_packages: published._BESIDE,
    sums: "SHA256SUMS",
    inputs_of_packages: f"out/{output_folder.INPUTS}",
    seals: output_folder._SEALS,
    program_after_a_failure: "enter",
    summary: "run.json",
    answer_of_a_server: "entries/",
    contents_of_a_wheel: "contents/",
    facts_of_a_release: "snapshots/",
    output_in_use: "in-use/outputs/",
    table_in_a_page: "page.md",
    activation: environments.ACTIVATE,
    index_of_wheels: simple_index.SIMPLE,
    latest_log: "latest.log",
    index_of_a_local_channel: "linux-64/repodata.json",
    normalised_package: "a-1-0.conda",
    settings_of_cmake: cmake_cache.NAME,
    first_settings_of_cmake: f"{cmake_cache.NAME}.orig",
    headers_of_a_python: python_headers.RECORD,
    names_of_a_trees_sources: sync_tree.MANIFEST,
    log_of_ninja: ".ninja_log",
    packages_of_environments: environment_record.NAME,
    page_of_runs: "page.md",
    outcome_of_a_worker: "outcome.json",
    archive_of_logs: "logs/",
    inputs_of_a_tree: tree_record.COMPLETE,
    linked: "target",
    copied: "target",
    moved: "target",
}


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
def test_a_file_is_replaced_by_a_rename(
    writer: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_run, "_last_run_file", lambda _: tmp_path / "duration")
    write(tmp_path / "page.md", f"{audit_report.BEGIN}\nold\n{audit_report.END}\n")
    write(tmp_path / cmake_cache.NAME, "A:BOOL=ON\n")
    write(tmp_path / ".ninja_log", "old")
    write(tmp_path / "target", "old")
    (tmp_path / "out").mkdir()
    make_package(tmp_path / "made/linux-64", "a", "1", "0")
    make_wheel(tmp_path / "made", "a-1-py3-none-any.whl", {"a.py": b""})
    name = WRITERS[writer]
    with watched(tmp_path) as calls:
        writer(tmp_path)
    renames = []
    for call in calls:
        what, _, path = call.partition(" ")
        if what == "rename" and (path == name or (name.endswith("/") and path.startswith(name))):
            renames.append(path)
    assert len(renames) == 1, calls
    (path,) = renames
    before = calls[: calls.index(f"rename {path}")]
    assert f"open {path}" not in calls
    assert f"symlink {path}" not in calls
    assert f"remove {path}" not in before
    assert (tmp_path / path).exists()


#: Modules that write without a rename: into folders and streams that no other process reads yet, and files that users
#: alone read, or of which a half counts for nothing.
DIRECT = {
    "command_line/error_report.py", "command_line/member.py", "conda_wheels/simple_index.py",
    "conda_wheels/wheel_tree.py", "gpu_tools/slim/library.py", "gpu_tools/slim/plan.py", "gpu_tools/slim/repack.py",
    "groundwork/bootstrap.py", "groundwork/files.py", "groundwork/job_pool.py", "groundwork/network/client.py",
    "groundwork/wheel_file.py", "megabuild/configs/matrix.py", "megabuild/engine/reproducible.py",
    "megabuild/engine/worker.py", "megabuild/providers/debian/root.py", "megabuild/providers/local/compilers.py",
    "megabuild/providers/local/cross_python.py", "megabuild/providers/local/package.py",
    "megabuild/providers/local/package_store.py", "megabuild/providers/local/placeholder_packages.py",
    "megabuild/providers/local/python.py", "megabuild/providers/local_channel.py",
    "megabuild/providers/pypi/nvidia.py", "megabuild/providers/pypi/unpack.py", "megabuild/run/log_archive.py",
    "megabuild/run/logfile.py", "megabuild/store/server.py", "megabuild/store/tree_archive.py",
    "pin_audit/meta_yaml.py", "pin_audit/repositories.py", "pin_audit/sources/pinning.py",
    "pyg_extensions/install/compile_wheel.py", "pyg_extensions/install/installer.py",
    "pyg_extensions/install/toolchain.py",
}  # fmt: skip


def test_other_modules_write_by_renames() -> None:
    found = set()
    for path in SOURCES.rglob("*.py"):
        if any(map(_writes, ast.walk(ast.parse(path.read_text())))):
            found.add(path.relative_to(SOURCES).as_posix())
    assert found == DIRECT, (
        "write by groundwork/files.py, or name the module here if no process reads the file before it is whole"
    )


def _writes(node: ast.AST) -> bool:
    """Return whether a node opens a file for writing, or writes one."""
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    modes = [word.value for word in node.args if isinstance(word, ast.Constant)]
    opens = name == "open" and any(mode in ("w", "wb", "x", "xb", "a", "ab") for mode in modes)
    return opens or name in ("write_text", "write_bytes")
