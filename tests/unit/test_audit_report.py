"""The report as a user and a script see it: Markdown, JSON, gates, the text between two markers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import psutil
import pytest
from audit_samples import MADE, asks, build, has, pinned, report, target, vendors, wheel
from calling import call
from click.testing import Result
from import_path import packages_path
from msgspec import structs

from command_line.audit import fit_tables
from command_line.run_command import Invocation
from groundwork.errors import UnknownError, UsageError, VerdictError
from pin_audit import command
from pin_audit.audit_options import AuditOptions
from pin_audit.audit_report import BEGIN, END, insert, markdown, table, to_document
from pin_audit.cells import cells
from pin_audit.facts import (
    AnyFact,
    AuditTarget,
    CiPin,
    Column,
    Fact,
    Newest,
    Place,
    Scope,
    SourceOutcome,
    UpstreamArchs,
    UpstreamVersion,
)
from pin_audit.name_map import names, plain
from pin_audit.rows import AuditRow
from pin_audit.run_sources import SOURCES
from pin_audit.statuses import Status
from pin_audit.table import tabulate
from pin_audit.targets import packages

CONFLICT = (wheel("sympy", "==1.13.1"), asks("sympy", ">=1.13.3"))
FINDINGS = (
    wheel("sympy", ">=1.13.3"),
    wheel("typing-extensions", ">=4.10.0"),
    asks("sympy", ">=1.13.3"),
    asks("typing_extensions", ">=4.9"),
    asks("nccl", "<2.29", configs=("linux_64_cuda129",)),
    asks("nccl", "2.*", configs=("linux_64_cuda130", "linux_aarch64_cuda130")),
    asks("libuv", "*"),
    vendors("third_party/fmt", "12.1.0-3-gabc1234", commit="abc1234" + "0" * 33),
    pinned("nccl", "2"),
    has("nccl", "2.30.1"),
    UpstreamArchs(name="archs", archs=("9.0", "12.0+PTX"), holds=Scope(cuda=("13.0",))),
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def of(invocation: Invocation, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Audit some facts instead of what sources say."""

    def run(facts: Sequence[AnyFact], *arguments: str) -> Result:
        made = replace(report(*facts), warnings=("a stale copy",))
        with monkeypatch.context() as patch:
            patch.setattr("pin_audit.command.make", lambda *_, **__: made)
            return call(invocation, "audit", *arguments)

    return run


def test_markdown_has_a_row_for_everything_to_compare() -> None:
    made = markdown(report(*FINDINGS))
    assert "Upstream's v2.13.0. This table was made on 2026-11-21." in made
    assert "| sympy | [`>=1.13.3`][pytorch-1] (wheel) | `>=1.13.3` | | in step |" in made
    assert "[pytorch-1]: https://index.example/torch/2.13.0/" in made
    assert "`<2.29` \\[cuda129\\]<br>`2.*` \\[cuda130\\]" in made
    assert "| fmt |" not in made  # nobody acts on it: the JSON has it
    assert made == markdown(report(*reversed(FINDINGS)))


def test_markdown_has_what_to_do_and_nothing_that_breaks_a_page() -> None:
    assert "==1.13.1 (recipe/recipe.yaml:12)" in markdown(report(*CONFLICT))
    assert ":12" not in markdown(report(*CONFLICT), lines=False)
    made = markdown(
        report(wheel("x", "<5|>=6"), asks("x", "<5|>=6.*"), vendors("third_party/a\x1b[2Jb\n|c", "v1"))
    )
    assert "`<5\\|>=6`" in made
    assert "\x1b" not in made


def test_json_has_the_origin_of_every_value(of: Callable[..., Result]) -> None:
    done = of(FINDINGS, "--json")
    assert (done.exit_code, "a stale copy" in done.stderr) == (0, True)
    document = json.loads(done.stdout)
    assert (document["format"], document["format_version"], document["made"]) == ("megabuild/audit", 5, MADE)
    package = document["packages"][0]
    sources = {source["source"]: source.get("facts", []) for source in package["sources"]}
    assert {(fact["where"]["file"], fact["where"]["line"]) for fact in sources["wheel_metadata"]} == {
        ("METADATA", 7)
    }
    rows = {row["name"]: row for row in package["rows"]}
    assert (rows["typing_extensions"]["status"], "fmt" in rows) == ("recipe older", True)
    assert {*rows["sympy"]} == {"name", "status", "sentence", "cells"}
    assert {*rows["typing_extensions"]} - {*rows["sympy"]} == {"todo"}
    assert {*rows["fmt"]} - {*rows["sympy"]} == {"use"}
    cells = {
        column: [sources[place.split("/")[0]][int(place.split("/")[1])]["value"] for place in places]
        for column, places in rows["nccl"]["cells"].items()
    }
    assert cells == {"upstream": [], "recipe": ["<2.29", "2.*"], "conda-forge": ["2", "2.30.1"]}
    assert [row["name"] for row in package["archs"]] == ["CUDA 13.0"]
    assert "no answer" in json.dumps(to_document(report(troubles={"channel": "no answer"})))


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_only_what_is_between_the_markers_changes(tmp_path: Path, line_end: str) -> None:
    path = tmp_path / "README.md"
    path.write_bytes(line_end.join(["a", BEGIN, "old", END, "b", ""]).encode())
    (tmp_path / "link").symlink_to("README.md")
    assert insert(tmp_path / "link", "new\n")
    assert (tmp_path / "link").is_symlink()
    assert path.read_bytes() == line_end.join(["a", BEGIN, "", "new", "", END, "b", ""]).encode()
    assert not insert(path, "new\n")
    for broken in ("none\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{BEGIN}\n{END}\n", f"x {BEGIN}\n{END}\n"):
        path.write_text(broken)
        with pytest.raises(UsageError):
            insert(path, "new\n")
        assert path.read_text() == broken


def test_gates_have_exit_codes_of_their_own(
    of: Callable[..., Result], invocation: Invocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert of(CONFLICT).exit_code == 0
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    written = of(CONFLICT, "--write", str(page), "--fail-on", "conflict")
    assert written.exit_code == VerdictError.exit_code
    codes = [of(CONFLICT, "--fail-on", word).exit_code for word in ("conflict", "recipe-newer", "confict")]
    assert codes == [VerdictError.exit_code, 0, 2]
    silent = {name: lambda _, name=name: SourceOutcome(source=name, trouble="no answer") for name in SOURCES}
    monkeypatch.setattr("pin_audit.command.READERS", silent)
    assert call(invocation, "audit", "--fail-on", "conflict").exit_code == UnknownError.exit_code


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        (CONFLICT, "conflict"),
        ((UpstreamArchs(name="archs", archs=("9.0",), holds=Scope(cuda=("13.2",))),), "recipe-older"),
    ],
    ids=["a dependency", "a CUDA version"],
)
def test_a_row_of_either_table_closes_the_gate_of_its_status(
    facts: Sequence[AnyFact], status: str, of: Callable[..., Result]
) -> None:
    words = [one.value.replace(" ", "-") for one in Status if not one.settled]
    closed = [word for word in words if of(facts, "--fail-on", word).exit_code == VerdictError.exit_code]
    assert closed == [status]
    (((found, _), rows),) = report(*facts).audits[0].findings().items()
    assert found.value.replace(" ", "-") == status
    assert [f"{', '.join(rows)}: " in line for line in of(facts).stdout.splitlines()].count(True) == 1


@pytest.mark.parametrize(("words", "reason"), [
    (("--package", "pytorch_scater"), "pytorch_scatter"), (("--package", "all", "--release", "2.0"), "--release"),
    (("--release", "v2.0"), "not a version"),
])  # fmt: skip
def test_a_mistake_is_explained(invocation: Invocation, words: tuple[str, ...], reason: str) -> None:
    done = call(invocation, "audit", "--offline", *words)
    assert (done.exit_code, reason in done.stderr) == (2, True)


@pytest.mark.parametrize(("words", "release", "requests"), [
    ((), "", [("pytorch", None)]),
    (("scatter", "pyg-lib", "torch-scatter"), "", [("pytorch_scatter", None), ("pyg-lib", None)]),
    (("pyg-lib",), "newest", [("pyg-lib", "the newest pyg-lib")]),
])  # fmt: skip
def test_each_package_is_audited_once_whatever_it_is_called(
    words: tuple[str, ...], release: str, requests: Sequence[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "newest_version", lambda request: f"the newest {request[0]}")
    session = SimpleNamespace(foreign=False, request=lambda package, version: (package.name, version))
    options = AuditOptions(package_words=words, release=release or None)
    assert command._requests(options, cast(Any, session)) == requests


@pytest.mark.parametrize("local", [True, False])
def test_a_request_has_the_configs_of_its_target_and_local_files_of_one_version_only(
    local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = [
        SimpleNamespace(name=name, follows_conda_forge=follows)
        for name, follows in (
            ("linux_64_cpu", True),
            ("linux_64_cuda130", True),
            ("linux_64_cpu_wheel", False),
        )
    ]
    monkeypatch.setattr(command, "_load_configs", lambda *_, **__: configs)
    audited = target(configs=["linux_64_cuda130", "linux_64_cpu_wheel"])
    chosen: list[str] = []

    def choose(_: object, among: Sequence[Any], *__: object, **___: object) -> AuditTarget:
        chosen.extend(config.name for config in among)
        return audited

    monkeypatch.setattr(command, "target", choose)
    options = AuditOptions(tree=tmp_path / "tree", pinning=tmp_path / "pins")
    session = command.Session(options, tmp_path, print, foreign=False)
    asked = session.request(packages()[0], None, local=local)
    assert chosen == ["linux_64_cpu", "linux_64_cuda130"]
    assert [config.name for config in asked.configs] == ["linux_64_cuda130"]
    files = (options.tree, options.pinning) if local else (None, None)
    assert (asked.local_tree, asked.local_pinning) == files


def test_a_page_names_what_was_not_read_and_single_values_that_were_not_found() -> None:
    outcomes = [
        SourceOutcome(
            source="channel", facts=(Newest(name="fmt", trouble="x"), has("zlib", "1")), trouble="no answer"
        ),
        SourceOutcome(source="ci_pins", facts=(CiPin(name="cudss", trouble="no such script"),)),
        SourceOutcome(source="pinning", facts=(pinned("zlib", "1"),)),
        SourceOutcome(source="recipe_archs", trouble="for pytorch only", applies=False),
    ]
    troubles = tabulate(target(), outcomes, names()).troubles()
    assert troubles == {"channel": "no answer; not found: fmt", "ci_pins": "not found: cudss"}


def test_help_names_the_statuses(invocation: Invocation) -> None:
    text = call(invocation, "audit", "--help").stdout
    assert not [status for status in Status if status.value.replace(" ", "-") not in text]


def test_names_of_the_mapping() -> None:
    known = names()
    assert known.by_name("nvidia-cudnn-cu13") == "cudnn"
    assert known.by_name("typing-extensions") == known.by_name("typing_extensions")
    assert known.by_submodule("third_party/nccl/nccl") == "nccl"
    every = [plain(name) for entry in known.entries.values() for name in {entry.name, *entry.conda}]
    assert len(every) == len({*every})
    assert {entry.follows for entry in known.entries.values() if entry.follows} <= known.entries.keys()


def test_ctrl_c_ends_it_at_once_and_quietly(tmp_path: Path, repository: Path) -> None:
    """A server that takes connections and says nothing stands for a slow network."""
    program = (
        "import socket, sys, threading\n"
        "server = socket.create_server(('127.0.0.1', 0)); port = server.getsockname()[1]\n"
        "threading.Thread(target=lambda: (server.accept(), print('asked', flush=True)), daemon=True).start()\n"
        "url = f'http://127.0.0.1:{port}/x.git'\n"
        "sys.argv[1:] = ['audit', '--upstream', url, '--ref', 'v1']\n"
        "from command_line.main import main\n"
        "main()\n"
    )
    environment = {**os.environ, "PYTHONPATH": packages_path(repository), "MEGABUILD_CACHE": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        encoding="utf-8", start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        left = [child for child in psutil.Process().children(recursive=True) if child.pid != process.pid]
    assert process.returncode == 130
    assert not [child for child in left if "git" in child.name()]
    assert "Traceback" not in errors


@pytest.mark.parametrize(("width", "tables"), [(80, False), (200, True)])
def test_a_terminal_too_narrow_for_a_table_gets_a_list_with_whole_words(width: int, tables: bool) -> None:
    path = "recipe/a_rather_long_folder_name/recipe.yaml:123"
    command = "scripts/test tests/integration/test_render_table.py --renew-names"
    text = table(("location", "old", "reason"), [(path, "1 \\| 2", command), ("b", "", "c")])
    shown = fit_tables(f"# Head\n\n{text}\n\nend\n", width)
    assert (text in shown) == tables
    assert path in shown
    assert command in shown
    assert shown.startswith("# Head\n\n")
    assert shown.endswith("\nend\n")


MIXED = (
    *CONFLICT,
    wheel("alpha", "==1.0"),
    asks("alpha", "==1.0"),
    asks("beta", "*"),
    *FINDINGS[1:2],
    FINDINGS[3],
)


def test_the_rows_that_need_a_decision_come_first_and_the_others_are_counted() -> None:
    made = markdown(report(*MIXED), every=False)
    assert [line.split("|")[1].strip() for line in made.splitlines() if line.startswith("| ")] == [
        "package", "sympy", "typing_extensions",
    ]  # fmt: skip
    assert "1 conflict, 1 recipe older, 1 upstream unpinned, 1 in step." in made
    facts = (*MIXED, asks("boost", "*"), pinned("boost", "1"))
    findings = report(*facts).audits[0].findings()
    assert [status for status, _ in findings] == [Status.CONFLICT, Status.OLDER, Status.MISSING], (
        "the gravest first"
    )
    assert "2 rows with status 'in step' and 'upstream unpinned' not shown: add --all." in made
    assert "not shown" not in markdown(report(*MIXED))


@pytest.mark.parametrize(
    ("columns", "words", "all_rows"),
    [(80, (), False), (80, ("--all",), True), (200, (), True), (0, (), True)],
)
def test_a_narrow_terminal_shows_what_needs_a_decision(
    columns: int,
    words: tuple[str, ...],
    all_rows: bool,
    of: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns or 80))
    monkeypatch.setattr(
        "command_line.audit.sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: columns))
    )
    shown = of(MIXED, *words).stdout
    assert "sympy" in shown
    assert ("beta" in shown, "not shown: add --all" in shown) == (all_rows, not all_rows)


def test_a_gate_closes_on_a_terminal_too(of: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "command_line.audit.sys", SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True))
    )
    assert of(CONFLICT).exit_code == 0
    assert of(CONFLICT, "--fail-on", "conflict").exit_code == VerdictError.exit_code


def test_a_device_is_no_file_for_the_table() -> None:
    with pytest.raises(UsageError, match="/dev/zero: not a file"):
        insert(Path("/dev/zero"), "table")


@pytest.mark.parametrize("kind", get_args(AnyFact))
def test_each_kind_of_fact_has_a_cell_in_its_column(kind: type[AnyFact]) -> None:
    lists: dict[str, Any] = {
        field.name: ("9.0",) for field in structs.fields(kind) if field.name in ("archs", "values")
    }
    builds = (build("linux_64_cuda130"),)
    row = AuditRow(
        name="x", facts=(kind(name="x", value="9.0", **lists),), builds=builds, entry=names().entry("x")
    )
    shown = {column: [part.text for part in parts] for column, parts in cells(row).items() if parts}
    assert shown == {kind.column: ["9.0"]}


def subclasses(kind: type[Fact]) -> set[type[Fact]]:
    found = set(kind.__subclasses__())
    return found.union(*map(subclasses, found))


def test_each_kind_of_fact_can_be_kept_and_has_a_place_in_the_table() -> None:
    kinds = subclasses(Fact) - {UpstreamVersion}
    assert kinds == set(get_args(AnyFact))
    assert {(type(kind.column), type(kind.place)) for kind in kinds} == {(Column, Place)}
    assert all(kind(name="x").claim for kind in kinds if issubclass(kind, UpstreamVersion))
