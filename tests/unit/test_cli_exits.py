"""Exit codes and messages."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TextIO, cast

import click
import pytest
import zstandard
from import_path import packages_path

from command_line import run_command
from command_line.main import megabuild
from command_line.output_stream import Output
from command_line.run_command import CRASHED, PIPE_CLOSED, Invocation, _keep_utf8, outcome
from groundwork import errors
from groundwork.damage import reading
from groundwork.network import certificates
from groundwork.redact import Mask
from groundwork.result import Result


class PanicException(BaseException):
    """What pyo3 raises."""


def raising(error: BaseException) -> Callable[[], object]:
    def action() -> object:
        raise error

    return action


def test_an_error_is_message_hint_log_and_code(
    invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(raising(errors.BuildError("it broke", "mend it")), invocation) == 8
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "error: it broke\nhint: mend it\n")
    invocation.log = Path("/state/logs/run.log")
    outcome(raising(errors.BuildError("it broke")), invocation)
    assert "log: /state/logs/run.log" in capsys.readouterr().err
    outcome(raising(errors.BuildError("it broke, see /state/logs/run.log")), invocation)
    assert capsys.readouterr().err.count("run.log") == 1


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (errors.BusyError("busy", "wait"), "BusyError", 11),
        (click.UsageError("no such option"), "UsageError", 2),
        (PermissionError(13, "Permission denied", "/x"), "PreflightError", 4),
        (FileExistsError(17, "File exists", "/x"), "PreflightError", 4),
        (OSError(errno.EFBIG, "File too large", "/x"), "OutOfSpaceError", 12),
        (MemoryError(), "PreflightError", 4),
        (zstandard.ZstdError("cannot decompress: not enough memory"), "PreflightError", 4),
        (ImportError("rattler.abi3.so: failed to map segment from shared object"), "PreflightError", 4),
        (RuntimeError("can't start new thread"), "PreflightError", 4),
        (RuntimeError("Symlink loop from '/x'"), "PreflightError", 4),
        (OSError(errno.EIO, "Input/output error"), "PreflightError", 4),
        (OSError(errno.ENOLCK, "No locks available"), "PreflightError", 4),
        (OSError(errno.EMFILE, "Too many open files"), "PreflightError", 4),
        (shutil.Error([("/a/x", "/b/x", "[Errno 1] Operation not permitted: '/a/x'")]), "PreflightError", 4),
        (shutil.Error([("/a/x", "/b/x", "[Errno 28] No space left on device")]), "OutOfSpaceError", 12),
        (shutil.Error("a message"), "Error", CRASHED),
        (ValueError("Unexpected at write => Too many open files (os error 24)"), "PreflightError", 4),
        (ValueError('Os { code: 28, message: "No space left on device" }'), "OutOfSpaceError", 12),
        (RecursionError("maximum recursion depth exceeded"), "RecursionError", CRASHED),
        (KeyboardInterrupt(), "Interrupted", 130),
        (PanicException("called `Result::unwrap()`"), "PanicException", CRASHED),
        (ZeroDivisionError("by zero"), "ZeroDivisionError", CRASHED),
    ],
)
def test_with_json_an_error_is_a_document_too(
    invocation: Invocation,
    capsys: pytest.CaptureFixture[str],
    error: BaseException | Callable[[], object],
    kind: str,
    code: int,
) -> None:
    invocation.json = True
    assert outcome(raising(error) if isinstance(error, BaseException) else error, invocation) == code
    document = json.loads(capsys.readouterr().out)["error"]
    assert (document["kind"], document["exit_code"], document["log"]) == (kind, code, None)


@pytest.mark.parametrize("number", [n for n in sorted(errno.errorcode) if n not in (errno.ENOENT,)])
@pytest.mark.parametrize("path", ["/a", None])
def test_an_error_of_disks_and_limits_is_no_bug_of_megabuild(number: int, path: str | None) -> None:
    outside = {
        "EIO",
        "ESTALE",
        "EMFILE",
        "ENFILE",
        "EAGAIN",
        "ENOMEM",
        "ENOLCK",
        "ENOSYS",
        "EOPNOTSUPP",
        "ENOTSUP",
    }
    of_a_path = {"EACCES", "EPERM", "EROFS", "ENOTDIR", "EISDIR", "ENAMETOOLONG", "ELOOP", "ENXIO", "EEXIST"}
    shown = errors.of_system(OSError(number, os.strerror(number), path))
    name = errno.errorcode[number]
    if name in ("ENOSPC", "EDQUOT", "EFBIG"):
        assert type(shown) is errors.OutOfSpaceError
    elif name in outside or (path and name in of_a_path):
        assert type(shown) is errors.PreflightError
    else:
        assert shown is None


def test_a_tree_that_cannot_be_copied_is_named_by_its_first_file() -> None:
    failures = [("/a/x", "/b/x", "[Errno 1] Operation not permitted: 'y' -> '/b/x'"), ("/a/z", "/b/z", "z")]
    shown = errors.of_system(shutil.Error(failures))
    assert shown is not None
    assert shown.message == "/b/x: Operation not permitted"


@pytest.mark.parametrize(
    ("words", "message", "remedy"),
    [
        (["--nope"], "no such option '--nope'", "run: python3 "),
        (["--pla"], "no such option '--pla'", "did you mean --plan? run: python3 "),
        ([], "CONFIG: missing argument", "choose from linux_64_cpu, "),
        (
            ["--pyg", "x"],
            "invalid value for '--pyg': 'x' is not one of 'auto', 'source', 'prebuilt', 'none'",
            "run: python3 ",
        ),
        (["--jobs", "0"], "invalid value for '--jobs' / '-j': 0 is not in the range x>=1", "run: python3 "),
        (["--torch"], "option '--torch' requires an argument", "add --help"),
    ],
)
def test_a_wrong_option_is_an_error_with_a_hint(
    words: list[str], message: str, remedy: str, invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    from command_line.build import build

    command = partial(build.main, words, prog_name="build-locally.py", standalone_mode=False, obj=invocation)
    assert outcome(command, invocation) == errors.UsageError.exit_code
    first, hint = capsys.readouterr().err.splitlines()
    assert first == f"error: {message}"
    assert hint.startswith(f"hint: {remedy}")
    assert ("build-locally.py --help" in hint.split("scripts")[0]) == remedy.endswith("python3 ")


def test_only_text_in_utf8_stays_in_variables() -> None:
    environ = {b"PATH": b"/bin:/\xff:/usr/bin", b"A\xff": b"a", b"LATIN": b"\xe9", b"HOME": "/é".encode()}
    _keep_utf8(environ)
    assert environ == {b"PATH": b"/bin:/usr/bin", b"LATIN": b"", b"HOME": "/é".encode()}


@pytest.mark.parametrize(
    "read",
    [
        lambda: json.loads("[" * 100_000),
        lambda: int("9" * 5000),
        lambda: b"\xff".decode(),
        lambda: zlib.decompress(b"x"),
        lambda: zipfile.ZipFile(io.BytesIO(b"x")),
        lambda: struct.unpack("<H", b""),
    ],
    ids=["nested", "number", "text", "zlib", "zip", "struct"],
)
def test_a_file_that_its_reader_rejects_is_named(
    read: Callable[[], object], invocation: Invocation, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def read_file() -> None:
        with reading(tmp_path / "file"):
            read()

    assert outcome(read_file, invocation) == errors.IntegrityError.exit_code
    first, hint = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {tmp_path / 'file'}: damaged: ")
    assert hint == "hint: replace the file"


def test_a_limit_of_the_machine_is_no_damage(tmp_path: Path) -> None:
    with pytest.raises(errors.PreflightError), reading(tmp_path / "file"):
        raise zstandard.ZstdError("cannot decompress: not enough memory")
    with pytest.raises(ZeroDivisionError), reading(tmp_path / "file"):
        _ = 1 / 0


@pytest.mark.parametrize(
    "bug",
    [
        lambda: json.loads("{own text"),
        lambda: b"\xff".decode(),
        lambda: int("1" * 5000),
        lambda: struct.unpack("<H", b""),
    ],
    ids=["json", "text", "number", "struct"],
)
def test_a_bug_is_not_blamed_on_a_file_at_hand(
    bug: Callable[[], object], invocation: Invocation, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def work(path: Path) -> object:
        return bug()

    assert outcome(partial(work, tmp_path / "thesis.tex"), invocation) == os.EX_SOFTWARE
    shown = capsys.readouterr().err
    assert "report this bug" in shown
    assert "thesis.tex" not in shown


RESULT = Result(format="slim", document={"freed": 3}, lines=["✓ done", "\x07bell"], exit_code=14)


def test_a_result_is_lines_or_a_document_with_its_format(
    invocation: Invocation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outcome(lambda: RESULT, invocation) == 14
    assert capsys.readouterr().out.splitlines() == ["✓ done", "?bell"]
    invocation.json = True
    assert outcome(lambda: RESULT, invocation) == 14
    expected = {"format": "megabuild/slim", "format_version": 1, "freed": 3}
    assert json.loads(capsys.readouterr().out) == expected
    invocation.json, stream = False, io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(stream, encoding="ascii"))
    outcome(lambda: RESULT, invocation)
    assert stream.getvalue().startswith(b"+ done\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_closed_streams_do_not_matter(closed: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, click\n"
        "from command_line.run_command import Invocation, run\n"
        "from pathlib import Path\n"
        "@click.command()\n"
        "def command():\n"
        "    sys.stdin.isatty()\n"
        "    click.echo('said')\n"
        "    with open(path, 'w') as file:\n"
        "        assert file.fileno() > 2\n"
        "        assert os.system('echo a child') == 0\n"
        "        file.write('written')\n"
        "path = sys.argv.pop()\n"
        "run(command, name='x', invocation=Invocation(log_folder=Path(path + '.logs')))\n"
    )
    paths = os.pathsep.join(path for path in sys.path if path)
    words = f'"{sys.executable}" "{script}" "{tmp_path}/file" {closed}'
    done = subprocess.run(["sh", "-c", words], env={**os.environ, "PYTHONPATH": paths})
    assert done.returncode == 0
    assert (tmp_path / "file").read_text() == "written"


def test_the_package_is_a_program(repository: Path) -> None:
    environment = os.environ | {"PYTHONPATH": packages_path(repository)}
    command = [sys.executable, "-m", "megabuild", "--version"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert shown.startswith("megabuild, version ")


def test_without_a_writable_log_folder_a_crash_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    invocation = Invocation(log_folder=tmp_path / "file" / "logs")
    assert outcome(raising(ZeroDivisionError("by zero")), invocation) == CRASHED
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("talk", ["print('x' * 80)", "return Result(lines=['x' * 80])"])
def test_a_closed_pipe_is_not_a_crash(repository: Path, tmp_path: Path, talk: str) -> None:
    program = (
        "import sys; from pathlib import Path; from command_line.run_command import Invocation, outcome\n"
        "from groundwork.result import Result\n"
        f"def talk():\n    {talk}\n"
        f"sys.exit(outcome(talk, Invocation(log_folder=Path({str(tmp_path)!r}))))"
    )
    environment = os.environ | {"PYTHONPATH": packages_path(repository)}
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=environment)
    os.close(writer)
    assert (done.stderr, done.returncode) == (b"", PIPE_CLOSED)


def test_a_crash_file_has_also_a_message_that_is_no_utf8(
    invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of a bug with a file whose name is in Latin-1."""
    assert outcome(raising(ZeroDivisionError(os.fsdecode(b"caf\xe9"))), invocation) == CRASHED
    (crash,) = invocation.log_folder.glob("crash-*")
    assert str(crash) in capsys.readouterr().err
    assert "ZeroDivisionError: caf" in crash.read_text()


def test_a_bug_leaves_a_crash_file_and_no_secret_leaves_the_process(
    invocation: Invocation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INDEX_PASS", "hunter22")
    monkeypatch.setattr(
        sys, "argv", ["build-locally.py", "--pyg-index", "https://me:hunter23@host.example/x"]
    )
    outcome(raising(ZeroDivisionError("at https://me:hunter23@host.example/x")), invocation)
    (crash,) = invocation.log_folder.glob("crash-*")
    shown = capsys.readouterr().err
    assert (str(crash) in shown, "Traceback" in shown) == (True, False)
    assert "ZeroDivisionError: at" in crash.read_text()
    assert "hunter" not in crash.read_text()
    assert "https://***@host.example/x" in crash.read_text()
    stream = io.StringIO()
    masked = Output(stream, Mask(os.environ))
    print("index: https://me:hunter23@host.example/x, hunter22", file=cast(TextIO, masked))
    assert stream.getvalue() == "index: https://***@host.example/x, ***\n"
    masked.writelines(["again hunter22\n"])
    assert stream.getvalue().endswith("again ***\n")
    assert masked.isatty() is False


@pytest.mark.parametrize(("word", "hint"), [("--plan", "run: "), ("--aply", "run: ")])
def test_a_harmless_word_is_never_answered_with_an_option_that_acts(
    word: str, hint: str, invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    command = partial(megabuild.main, ["slim", word, "x"], standalone_mode=False, obj=invocation)
    assert outcome(command, invocation) == errors.UsageError.exit_code
    assert capsys.readouterr().err.splitlines()[1].startswith(f"hint: {hint}")


@pytest.mark.parametrize("failed", [0, errors.BuildError.exit_code])
@pytest.mark.parametrize(
    "printing", [None, OSError(errno.ENOSPC, "full", "/x"), errors.UsageError("x")], ids=repr
)
def test_a_document_that_cannot_be_printed_fails_a_success_and_hides_no_failure(
    printing: Exception | None, failed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def print_document(_: object) -> None:
        if printing is not None:
            raise printing

    monkeypatch.setattr(run_command, "_print_document", print_document)
    invocation = Invocation(log_folder=tmp_path, json=True)
    code = outcome(lambda: Result(format="x", exit_code=failed), invocation)
    expected = failed
    if not failed and printing is not None:
        expected = getattr(printing, "exit_code", errors.OutOfSpaceError.exit_code)
    assert code == expected


class EndedError(Exception):
    """Raised in place of the process's end."""


@pytest.mark.parametrize(
    ("ended", "full", "expected"),
    [
        (0, "", 0),
        (0, "stdout", errors.OutOfSpaceError.exit_code),
        (0, "stderr", errors.OutOfSpaceError.exit_code),
        (errors.BuildError.exit_code, "stdout", errors.BuildError.exit_code),
        (KeyboardInterrupt(), "", errors.Interrupted.exit_code),
        (KeyboardInterrupt(), "stderr", errors.Interrupted.exit_code),
    ],
    ids=repr,
)
def test_a_stream_on_a_full_disk_fails_a_success_and_a_second_signal_is_an_interrupt(
    ended: int | BaseException, full: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(_: object, invocation: Invocation) -> int:
        assert invocation.json is bool(full), "also if another option is wrong"
        if full:
            cast(Output, getattr(sys, full)).is_incomplete = True
        if isinstance(ended, BaseException):
            raise ended
        return ended

    codes: list[int] = []

    def end_process(code: int) -> None:
        codes.append(code)
        raise EndedError

    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.StringIO())
    prepared: list[str] = []
    for place in (
        "certificates.share_with_programs",
        "interrupts.ignore_signals",
        "open_streams",
        "_keep_utf8",
        "replace_home",
    ):
        monkeypatch.setattr(
            f"command_line.run_command.{place}", lambda *_, place=place: prepared.append(place)
        )
    monkeypatch.setattr(sys, "argv", ["x", "--wrong", *(["--json"] if full else [])])
    monkeypatch.setattr(run_command, "outcome", end)
    monkeypatch.setattr(run_command, "end_process", end_process)
    with pytest.raises(EndedError):
        run_command.run(click.Command("x"), name="x", invocation=Invocation(log_folder=tmp_path))
    assert codes == [expected]
    streams_first, *others = prepared
    assert streams_first == "open_streams", "messages of the others need them"
    assert sorted(others) == [
        "_keep_utf8", "certificates.share_with_programs", "interrupts.ignore_signals", "replace_home"
    ]  # fmt: skip


def test_an_error_s_document_has_its_failure_and_the_remedy_of_an_untrusted_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = errors.BuildError("build of a: failed", "look at the log")
    error.failure = errors.FailureDetails(kind=errors.FailureKind.NETWORK, package="a")
    shown = run_command._report(error, Invocation(log_folder=tmp_path, log=tmp_path / "a.log")).document
    assert shown is not None
    assert cast(Any, shown["error"])["failure"] == error.failure.to_dict()
    assert f"hint: look at the log\nlog: {tmp_path}/a.log" in capsys.readouterr().err
    refused = errors.ProviderError("a: SSL: CERTIFICATE_VERIFY_FAILED", "check the network")
    run_command._report(refused, Invocation(log_folder=tmp_path))
    assert f"hint: {certificates.REMEDY}" in capsys.readouterr().err
