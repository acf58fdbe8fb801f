"""The report as a user and a script see it: Markdown, JSON, what changed, gates, the text between two markers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from audit_samples import MADE, asks, has, pinned, report, switch, vendors, wheel
from msgspec import structs

from command_line.audit import package_names, source_names, status_names
from command_line.main import megabuild
from command_line.run_command import Invocation, outcome
from groundwork.errors import (
    ChangesError,
    IncomparableError,
    UnknownError,
    UsageError,
    VerdictError,
)
from pin_audit.constraints import Status
from pin_audit.facts import AnyFact, RecipePin, Scope, UpstreamArchs
from pin_audit.markdown import BEGIN, END, insert, markdown
from pin_audit.name_map import names, plain
from pin_audit.report_file import Report, compare, read, result, text, write
from pin_audit.run_sources import OWN, SOURCES

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
    switch("USE_SYSTEM_NCCL", "1"),
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def call(invocation: Invocation) -> Callable[..., int]:
    def run(*arguments: str) -> int:
        words = ["audit", *arguments]
        return outcome(lambda: megabuild.main(words, standalone_mode=False, obj=invocation), invocation)

    return run


@pytest.fixture
def of(call: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Audit some facts instead of what sources say."""

    def run(facts: Sequence[AnyFact], *arguments: str) -> int:
        with monkeypatch.context() as patch:
            patch.setattr("pin_audit.command.make", lambda *_, **__: (report(*facts), ()))
            return call(*arguments)

    return run


def saved(folder: Path, *facts: AnyFact, name: str = "report.json") -> str:
    path = folder / name
    write(text(result(report(*facts))), path)
    return str(path)


def test_markdown_has_a_row_for_everything_to_compare() -> None:
    made = markdown(report(*FINDINGS))
    assert "made 2026-11-21" in made
    assert "| sympy | [`>=1.13.3`][pytorch-1] (wheel) | `>=1.13.3` | | in step |" in made
    assert "[pytorch-1]: https://index.example/torch/2.13.0/" in made
    assert "`<2.29` \\[cuda129\\]<br>`2.*` \\[cuda130\\]" in made
    assert "| fmt |" not in made  # nobody acts on it: the JSON has it
    assert "libuv" in made
    assert made == markdown(report(*reversed(FINDINGS)))
    folded = markdown(report(*FINDINGS), folded=True)
    assert "| typing_extensions |" in folded
    assert "| sympy |" not in folded


def test_markdown_has_no_line_numbers_and_nothing_that_breaks_a_page() -> None:
    assert ":12" not in markdown(report(*CONFLICT))
    assert ":12" in markdown(report(*CONFLICT), folded=True)
    made = markdown(
        report(wheel("x", "<5|>=6"), asks("x", "<5|>=6.*"), vendors("third_party/a\x1b[2Jb\n|c", "v1"))
    )
    assert "`<5\\|>=6`" in made
    assert "\x1b" not in made


def test_json_has_the_origin_of_every_value_and_can_be_read_again(tmp_path: Path) -> None:
    made = report(*FINDINGS, troubles={"channel": "no answer"})
    path = tmp_path / "audit.json"
    write(text(result(made)), path)
    document = json.loads(path.read_text())
    assert (document["format"], document["format_version"], document["made"]) == ("megabuild/audit", 3, MADE)
    package = document["packages"][0]
    sources = {source["source"]: source.get("facts", []) for source in package["sources"]}
    assert {(one["where"]["file"], one["where"]["line"]) for one in sources["wheel_metadata"]} == {
        ("METADATA", 7)
    }
    assert "fmt" in {row["name"] for row in package["rows"]}
    (nccl,) = [row for row in package["rows"] if row["name"] == "nccl"]
    cells = {
        column: [sources[place.split("/")[0]][int(place.split("/")[1])]["value"] for place in places]
        for column, places in nccl["cells"].items()
    }
    assert cells == {"upstream": [], "recipe": ["<2.29", "2.*"], "conda-forge": ["2", "2.30.1"]}
    assert read(path) == made


@pytest.mark.parametrize("content", [
    "{", "[]", '{"packages": []}', '{"format": "megabuild/audit", "format_version": 4, "packages": []}',
    '{"format": "megabuild/slim", "format_version": 3}',
    '{"format": "megabuild/audit", "format_version": 3, "made": "yesterday", "packages": []}',
    '{"format": "megabuild/audit", "format_version": 3, "made": "2026-11-21", "packages": [{"package": "x"}]}',
])  # fmt: skip
def test_what_is_no_report_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(UsageError):
        read(tmp_path / "x.json")


def test_files_are_written_whole_through_links_and_devices_stay_devices(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    (tmp_path / "link").symlink_to("x")
    write("new", tmp_path / "link")
    assert ((tmp_path / "x").read_text(), (tmp_path / "link").is_symlink()) == ("new", True)
    write("x", Path(os.devnull))
    assert not Path(os.devnull).is_file()
    with pytest.raises(UsageError):
        write("x", tmp_path / "x" / "y")


def test_only_what_both_have_read_can_have_changed() -> None:
    old, new = report(*CONFLICT, has("fmt", "1")), report(wheel("sympy", "==1.13.3"), CONFLICT[1])
    changes = {(row, column) for row, column, *_ in compare(old, new).changes}
    assert changes >= {("sympy", "upstream"), ("sympy", "status")}
    unread = compare(report(*CONFLICT), report(CONFLICT[1], troubles={"wheel_metadata": "no answer"}))
    assert (unread.changes, "wheel_metadata" in unread.unread) == ((), True)
    assert compare(report(*CONFLICT), report(*CONFLICT)).changes == ()
    nothing = report(troubles={source: "no network" for source in SOURCES if source not in OWN})
    assert compare(nothing, nothing).empty
    assert compare(old, Report(made=MADE, audits=())).unmatched == ("pytorch",)


def test_what_one_package_lacks_is_named_though_another_has_it() -> None:
    whole = report(*CONFLICT).audits
    (torch,) = report(CONFLICT[1], troubles={"wheel_metadata": "no answer"}).audits
    other = replace(whole[0], target=structs.replace(whole[0].target, package="pyg-lib"))
    found = compare(Report(made=MADE, audits=(*whole, other)), Report(made=MADE, audits=(torch, other)))
    assert (found.changes, found.unread) == ((), ("wheel_metadata",))


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_only_what_is_between_the_markers_changes(tmp_path: Path, line_end: str) -> None:
    path = tmp_path / "README.md"
    path.write_bytes(line_end.join(["a", BEGIN, "old", END, "b", ""]).encode())
    assert insert(path, "new\n")
    assert path.read_bytes() == line_end.join(["a", BEGIN, "", "new", "", END, "b", ""]).encode()
    assert not insert(path, "new\n")
    for broken in ("none\n", f"{END}\n{BEGIN}\n", f"{BEGIN}\n{BEGIN}\n{END}\n", f"x {BEGIN}\n{END}\n"):
        path.write_text(broken)
        with pytest.raises(UsageError):
            insert(path, "new\n")
        assert path.read_text() == broken


def test_gates_have_exit_codes_of_their_own(
    tmp_path: Path, of: Callable[..., int], call: Callable[..., int]
) -> None:
    path = saved(tmp_path, *CONFLICT)
    assert of(CONFLICT) == 0
    assert of(CONFLICT, "--fail-on", "conflict") == VerdictError.exit_code
    assert of(CONFLICT, "--fail-on", "recipe-newer", "--skip", "*_archs") == 0
    assert of(CONFLICT, "--fail-on", "confict") == 2
    assert of(CONFLICT, "--compare", path) == 0
    assert of((*CONFLICT, asks("zlib", "1.*")), "--compare", path) == ChangesError.exit_code
    unread = ("--offline", "--no-snapshots", "--source", "submodules")
    assert call(*unread, "--fail-on", "conflict") == UnknownError.exit_code
    assert call(*unread, "--compare", path) == IncomparableError.exit_code


def test_every_form(tmp_path: Path, of: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert of(CONFLICT, "--json") == 0
    assert [row["status"] for row in json.loads(capsys.readouterr().out)["packages"][0]["rows"]] == [
        "conflict"
    ]
    assert of(CONFLICT) == 0
    shown = capsys.readouterr().out
    assert "no version satisfies both" in shown
    assert "\x1b" not in shown
    for name, begins in (("x.md", "## pytorch 2.13.0"), ("x.json", "{")):
        assert of(CONFLICT, "--output", str(tmp_path / name)) == 0
        assert (tmp_path / name).read_text().startswith(begins)


@pytest.mark.parametrize(("words", "reason"), [
    (("--package", "pytorch_scater"), "pytorch_scatter"), (("--all", "--release", "2.0"), "--release"),
    (("--all", "--package", "pyg-lib"), "exclude"), (("--source", "pypi"), "not a source"),
    (("--source", "channel", "--skip", "channel"), "left out"), (("--release", "v2.0"), "not a version"),
    (("--filter", "linux_65*"), "no config"),
])  # fmt: skip
def test_a_mistake_is_explained(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    assert call("--offline", *words) == 2
    assert reason in capsys.readouterr().err


def test_help_and_completion(call: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    import click

    assert call("--help") == 0
    told = capsys.readouterr().out
    for word in ("130 ", *(s.value.replace(" ", "-") for s in Status)):
        assert word in told
    context, parameter = click.Context(megabuild), click.Option(["--x"])
    assert [item.value for item in package_names(context, parameter, "pyg")] == ["pyg-lib"]
    assert [item.value for item in source_names(context, parameter, "ci")] == ["ci_pins"]
    assert [item.value for item in status_names(context, parameter, "x,recipe-o")] == ["x,recipe-older"]


def test_names_of_the_mapping() -> None:
    known = names()
    assert known.by_distribution("nvidia-cudnn-cu13") == "cudnn"
    assert known.by_conda("typing-extensions") == known.by_conda("typing_extensions")
    assert known.by_submodule("third_party/nccl/nccl") == "nccl"
    every = [plain(name) for entry in known.entries.values() for name in {entry.name, *entry.conda}]
    assert len(every) == len({*every})
    assert {entry.follows for entry in known.entries.values() if entry.follows} <= known.entries.keys()
    assert RecipePin in {type(one) for one in FINDINGS}


def test_ctrl_c_ends_it_at_once_and_quietly(tmp_path: Path, repository: Path) -> None:
    """A server that takes connections and says nothing stands for a slow network."""
    program = (
        "import socket, sys, threading\n"
        "server = socket.create_server(('127.0.0.1', 0)); port = server.getsockname()[1]\n"
        "threading.Thread(target=lambda: (server.accept(), print('asked', flush=True)), daemon=True).start()\n"
        "url = f'http://127.0.0.1:{port}/x.git'\n"
        "sys.argv[1:] = ['audit', '--source', 'submodules', '--upstream', url, '--ref', 'v1']\n"
        "from command_line.main import main\n"
        "main()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(repository / "scripts"), "MEGABUILD_CACHE": str(tmp_path)}
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
