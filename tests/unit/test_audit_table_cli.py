"""`megabuild audit` as a user and a script see it."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from audit_samples import asks, ci_has, report, vendors, wheel

from command_line.audit import package_names, source_names, status_names
from command_line.main import megabuild
from command_line.run_command import Invocation, outcome
from pin_audit.claims import Status
from pin_audit.facts import AnyFact, Holds, RecipeArchs
from pin_audit.gather import OWN, SOURCES
from pin_audit.report import jsonfile
from pin_audit.report.blocks import report_blocks
from pin_audit.report.jsonfile import Report
from pin_audit.report.terminal import text_lines

CONFLICT = (wheel("sympy", "==1.13.1"), asks("sympy", ">=1.13.3"))
LONG = (
    *CONFLICT,
    asks("a-name-that-is-much-longer-than-its-column-is-wide", ">=1.2.3.4.5.6.7.8.9,<2,!=1.3.3,!=1.3.4.5.6"),
    ci_has("cusparselt", "0.8.1.1", "13.0"),
    vendors("third_party/a/third_party/bb/third_party/ccc/third_party/dddd", "v2.1.0-705-ga6bfc23"),
    RecipeArchs(
        name="CUDA 13.0",
        archs=("7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "11.0", "12.0+PTX"),
        holds=Holds(cuda=("13.0",)),
        recipe="pytorch",
    ),
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEGABUILD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def call(invocation: Invocation) -> Callable[..., int]:
    def run(*arguments: str) -> int:
        words = ["audit", *arguments]
        return outcome(lambda: megabuild.main(words, standalone_mode=False, obj=invocation), invocation)

    return run


def saved(folder: Path, *facts: AnyFact, name: str = "report.json") -> str:
    path = folder / name
    jsonfile.write(jsonfile.text(report(*facts)), path)
    return str(path)


def shown(made: Report, *, width: int = 100) -> list[str]:
    return text_lines(report_blocks(made, ages=True), width)


@pytest.mark.parametrize("width", [80, 100])
def test_the_table_fits_the_terminal(width: int) -> None:
    lines = shown(report(*LONG), width=width)
    assert max(map(len, lines)) <= width
    assert "conflict" in "\n".join(lines)
    assert "12.0+PTX" in "\n".join(lines)
    unbroken = "".join(line.strip() for line in shown(report(*LONG), width=400))
    assert "a-name-that-is-much-longer-than-its-column-is-wide" in unbroken


def test_the_width_is_that_of_the_terminal(
    tmp_path: Path,
    call: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    assert call("--from", saved(tmp_path, *LONG)) == 0
    widest = max(map(len, capsys.readouterr().out.splitlines()))
    assert 60 < widest <= 70


def test_the_table_is_ascii_where_the_stream_is(
    tmp_path: Path, call: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(taken, encoding="ascii"))
    assert call("--from", saved(tmp_path, *CONFLICT)) == 0
    assert b"x conflict" in taken.getvalue()


def test_a_value_that_the_stream_cannot_show_does_not_end_the_program(
    tmp_path: Path, repository: Path
) -> None:
    path = saved(tmp_path, wheel("sympy", ">=1"), asks("sympy", "=1é"))
    program = "from command_line.main import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(repository / "scripts"), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", program, "audit", "--from", path],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"=1" in done.stdout


def test_a_report_is_shown_again_without_asking_anybody(
    tmp_path: Path, call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--from", saved(tmp_path, *CONFLICT)) == 0
    text = capsys.readouterr().out
    assert "no version satisfies both" in text
    assert "\x1b" not in text


def test_fail_on_has_an_exit_code_of_its_own(
    tmp_path: Path, call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path, *CONFLICT)
    assert call("--from", path, "--fail-on", "conflict") == 14
    assert "pytorch: sympy" in capsys.readouterr().err
    assert call("--from", path, "--fail-on", "recipe-older,pin-missing") == 0
    assert call("--from", path, "--fail-on", "conflicts") == 2
    assert "did you mean conflict?" in capsys.readouterr().err


def test_a_gate_whose_sources_were_not_read_fails(
    tmp_path: Path, call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    words = (
        "--offline",
        "--filter",
        "linux_64_cpu",
        "--package",
        "pytorch_spline_conv",
        "--fail-on",
        "conflict",
    )
    assert call(*words) == 19
    complaints = capsys.readouterr().err
    assert all(name in complaints for name in ("channel", "pinning", "submodules", "upstream_commit"))
    assert "rows could not be judged" in complaints
    skipped = [word for name in SOURCES if name not in OWN for word in ("--skip", name)]
    assert call(*words, *skipped) == 0  # whoever leaves them out knows


def test_a_finding_is_one_whatever_else_was_not_read(tmp_path: Path, call: Callable[..., int]) -> None:
    path = tmp_path / "report.json"
    jsonfile.write(jsonfile.text(report(*CONFLICT, troubles={"channel": "no network"})), path)
    assert call("--from", str(path), "--fail-on", "conflict") == 14
    assert call("--from", str(path), "--fail-on", "recipe-older") == 19
    assert call("--from", str(path), "--fail-on", "recipe-older", "--skip", "channel") == 0


def test_nothing_to_compare_has_an_exit_code_of_its_own(
    tmp_path: Path, call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    old = saved(tmp_path, *CONFLICT)
    words = ("--offline", "--no-snapshots", "--filter", "linux_64_cpu", "--skip", "wheel_metadata")
    assert call(*words, "--compare", old) == 19
    assert "error: nothing from outside" in capsys.readouterr().err


def test_compare_tells_what_changed_and_says_so_to_scripts(
    tmp_path: Path, call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    old = saved(tmp_path, *CONFLICT, name="old.json")
    new = saved(tmp_path, wheel("sympy", ">=1.13.3"), CONFLICT[1], name="new.json")
    assert call("--from", new, "--compare", old) == 14
    text = capsys.readouterr().out
    assert re.search(r"sympy\s+status\s+conflict\s+in step", text)
    assert call("--from", new, "--compare", new) == 0
    assert "nothing changed since 2026-11-21" in capsys.readouterr().out
    assert call("--from", new, "--compare", old, "--fail-on", "in-step") == 14


def test_json_is_one_document_on_standard_output(
    tmp_path: Path, call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--from", saved(tmp_path, *CONFLICT), "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["format"], document["format_version"]) == ("megabuild/audit", 3)
    assert [row["status"] for row in document["packages"][0]["rows"]] == ["conflict"]


def test_output_names_its_form_by_its_ending(tmp_path: Path, call: Callable[..., int]) -> None:
    path = saved(tmp_path, *CONFLICT)
    for name, begins in (("x.md", "## pytorch 2.13.0"), ("x.json", "{")):
        assert call("--from", path, "--output", str(tmp_path / name)) == 0
        assert (tmp_path / name).read_text().startswith(begins)


def test_write_puts_the_table_between_the_markers(tmp_path: Path, call: Callable[..., int]) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- audit:begin -->\n<!-- audit:end -->\nafter\n")
    assert call("--from", saved(tmp_path, *CONFLICT), "--write", str(readme)) == 0
    text = readme.read_text()
    assert text.startswith("before\n<!-- audit:begin -->\n\n### pytorch 2.13.0\n")
    assert text.endswith("\n\n<!-- audit:end -->\nafter\n")
    readme.write_text("no markers\n")
    assert call("--from", saved(tmp_path, *CONFLICT), "--write", str(readme)) == 2
    assert readme.read_text() == "no markers\n"


def test_only_the_recipe_is_read_anew_from_a_report(
    tmp_path: Path, call: Callable[..., int], repository: Path
) -> None:
    path = saved(tmp_path, wheel("sympy", "==1.0"), asks("sympy", "==1.0"))
    target = tmp_path / "again.json"
    words = ("--from", path, "--source", "recipe_*", "--filter", "linux_64_cpu", "--output", str(target))
    assert call(*words) == 0
    package = json.loads(target.read_text())["packages"][0]
    (row,) = [row for row in package["rows"] if row["name"] == "sympy"]
    assert row["status"] == Status.CONFLICT.value  # the old report's wheel, this repository's recipe


def test_nothing_cached_and_no_network_is_a_table_all_the_same(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--offline", "--all-rows", "--filter", "linux_64_cpu", "--package", "pytorch_spline_conv")
    assert call(*words) == 0
    text = capsys.readouterr().out
    assert "--offline" in text
    assert "==2.13.0" in text


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--package", "pytorch_scater"), "did you mean pytorch_scatter"),
        (("--all", "--release", "2.0"), "--release is about one package"),
        (("--all", "--package", "pyg-lib"), "exclude each other"),
        (("--source", "pypi"), "is not a source of the audit"),
        (("--source", "channel", "--skip", "channel"), "every source is left out"),
        (("--release", "v2.0"), "is not a version"),
        (("--filter", "linux_65*"), "no config matches"),
    ],
)
def test_a_mistake_is_explained(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    assert call("--offline", *words) == 2
    assert reason in capsys.readouterr().err


def test_help_names_every_exit_code_and_status(
    call: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("--help") == 0
    text = capsys.readouterr().out
    for code in ("0 ", "2 ", "5 ", "14 ", "19 ", "130 "):
        assert code in text
    for status in Status:
        assert status.value.replace(" ", "-") in text


def test_names_are_completed() -> None:
    import click

    context = click.Context(megabuild)
    parameter = click.Option(["--x"])
    assert [item.value for item in package_names(context, parameter, "pyg")] == ["pyg-lib"]
    assert [item.value for item in source_names(context, parameter, "ci")] == ["ci_pins"]
    assert [item.value for item in status_names(context, parameter, "conflict,recipe-o")] == [
        "conflict,recipe-older"
    ]


def test_ctrl_c_ends_it_at_once_and_quietly(tmp_path: Path, repository: Path) -> None:
    """A server that takes connections and says nothing stands for a slow network."""
    program = (
        "import socket, sys, threading\n"
        "server = socket.create_server(('127.0.0.1', 0)); port = server.getsockname()[1]\n"
        "threading.Thread(target=lambda: (server.accept(), print('asked', flush=True)), daemon=True).start()\n"
        "sys.argv[1:] = ['audit', '--source', 'submodules', '--repository', f'http://127.0.0.1:{port}/x.git']\n"
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
    assert "interrupted" in errors
    assert "Traceback" not in errors
