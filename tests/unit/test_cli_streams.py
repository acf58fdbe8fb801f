"""Output to a terminal, and runs whose terminal or reader is gone."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
import subprocess
import sys
import termios
from pathlib import Path
from typing import TextIO, cast

import pytest
from import_path import packages_path
from rich.console import Console
from rich.style import Style
from rich.text import Text

from command_line.output_stream import Output
from command_line.progress_display import Screen
from command_line.run_command import Invocation, outcome
from groundwork.errors import BuildError
from groundwork.redact import Mask
from megabuild.run.logfile import LogFile

#: Output of a hostile build script: a window title, the clipboard (OSC 52), a line over the former one.
HOSTILE = "\x1b]0;title\x07 \x1b]52;c;ZXZpbA==\x07 \x1b[1A\x1b[2K\rdone \x9b31m \u202edeb"
_STEERING = ("\x1b", "\x07", "\r", "\x9b", "\u202e")


def test_foreign_commands_reach_neither_log_nor_screen(
    tmp_path: Path, invocation: Invocation, capsys: pytest.CaptureFixture[str]
) -> None:
    with LogFile(tmp_path, "x", Mask({})) as log:
        shown = log.write("staging", f"a{HOSTILE}z\tof")
    text = log.path.read_text()

    def fail() -> object:
        raise BuildError(f"it failed:\nx{HOSTILE}", HOSTILE)

    outcome(fail, invocation)
    screen = io.StringIO()
    Screen(Console(file=screen)).note(f"! {HOSTILE}")
    for told in (text, shown, capsys.readouterr().err, screen.getvalue()):
        assert not any(sign in told for sign in _STEERING)
        assert "52;c;ZXZpbA==" in told  # shown, not executed
    assert shown.endswith("z of")


def test_one_place_prints(repository: Path) -> None:
    """Elsewhere nothing would mask secrets, replace terminal commands and fold lines."""
    modules = (repository / "src" / "command_line").glob("*.py")
    printing = {
        path.name
        for path in modules
        if re.search(r"(?<![.\w])print\(|click\.echo\(|sys\.std\w+\.write\(", path.read_text())
    }
    assert printing == {"run_command.py"}


def test_no_output_can_write_the_clipboard() -> None:
    screen = io.StringIO()
    print(HOSTILE, file=cast(TextIO, Output(screen, Mask({}))))
    assert not any(sign in screen.getvalue() for sign in ("\x1b]", "\x07", "\x9b", "\u202e"))


@pytest.mark.parametrize("on_github", [True, False])
def test_output_of_a_build_is_no_github_command(on_github: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build could print one in the name of an object."""
    monkeypatch.setenv("GITHUB_ACTIONS", str(on_github).lower())
    screen = io.StringIO()
    Output(screen, Mask({})).writelines(["1/2, 3 s: ##[stop-commands]x.cpp\n", "  ::set-output name=x::y\n"])
    assert ("##[" not in screen.getvalue()) == on_github
    assert (not any(line.strip().startswith("::") for line in screen.getvalue().splitlines())) == on_github


def test_own_styles_links_and_redrawn_lines_stay() -> None:
    screen = io.StringIO()
    output = cast(TextIO, Output(screen, Mask({})))
    console = Console(file=output, force_terminal=True, color_system="truecolor", width=80)
    console.print(Text("red", Style(color="red", bold=True, link="https://example.org/x")))
    with console.status("working"):
        pass
    assert ";https://example.org/x\x1b\\\x1b[1;31mred\x1b[0m\x1b]8;;\x1b\\\n" in screen.getvalue()
    assert all(command in screen.getvalue() for command in ("\x1b[?25l", "\x1b[?25h", "\x1b[2K"))
    assert "?" not in screen.getvalue().replace("[?25", "")


_PROGRAM = """
import signal, sys, time
from pathlib import Path
import click
from command_line.run_command import Invocation, run
from groundwork.errors import BuildError

@click.command()
def command():
    {prepare}
    print("ready", flush=True)
    {wait}
    try:
        raise BuildError("the build script failed")
    finally:  # like the table of packages
        print("a table", flush=True)

run(command, name="x", invocation=Invocation(log_folder=Path({logs!r})))
"""


#: Waits until no other process has the terminal or reads the pipe any more.
_READER_GONE = "import select; poll = select.poll(); poll.register(1, select.POLLIN); poll.poll()"


def _started(
    repository: Path, logs: Path, wait: str, output: int, *, prepare: str = "pass", **more: object
) -> subprocess.Popen[bytes]:
    program = _PROGRAM.format(prepare=prepare, wait=wait, logs=str(logs))
    environment = os.environ | {"PYTHONPATH": packages_path(repository)}
    process: subprocess.Popen[bytes] = subprocess.Popen(
        [sys.executable, "-c", program], stdin=output, stdout=output, stderr=output, env=environment, **more
    )  # type: ignore[call-overload]
    return process


def _on_a_terminal_that_closes(repository: Path, logs: Path, wait: str, prepare: str = "pass") -> int:
    ours, theirs = os.openpty()
    process = _started(
        repository, logs, wait, theirs, prepare=prepare, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    while b"ready" not in seen:
        seen += os.read(ours, 100)
    os.close(ours)
    return process.wait(60)


@pytest.mark.parametrize(
    ("wait", "prepare", "code"),
    [
        ("time.sleep(60)", "pass", 130),
        (_READER_GONE, "signal.signal(signal.SIGHUP, signal.SIG_IGN)", BuildError.exit_code),
    ],
    ids=["interrupted", "hangups ignored"],
)
def test_a_closed_terminal_is_no_crash(
    repository: Path, tmp_path: Path, wait: str, prepare: str, code: int
) -> None:
    assert _on_a_terminal_that_closes(repository, tmp_path / "logs", wait, prepare) == code
    assert not (tmp_path / "logs").exists()


_BUSY = "import threading; threading.Thread(target=time.sleep, args=(60,)).start()"


@pytest.mark.parametrize("prepare", ["pass", _BUSY], ids=["idle", "busy threads"])
def test_a_closed_pipe_does_not_replace_an_earlier_error(
    repository: Path, tmp_path: Path, prepare: str
) -> None:
    reading, writing = os.pipe()
    process = _started(repository, tmp_path / "logs", _READER_GONE, writing, prepare=prepare)
    os.close(writing)
    seen = b""
    while not seen.endswith(b"\n"):  # the newline may be a separate write
        seen += os.read(reading, 100)
    os.close(reading)
    assert process.wait(30) == BuildError.exit_code


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="Linux only")
@pytest.mark.parametrize(
    ("words", "out", "err", "code"),
    [
        ("configs", True, False, 12),
        ("configs --json", True, False, 12),  # longer than Python's buffer
        ("--help", True, False, 12),
        ("configs --json", True, True, 12),
        ("sizes /nonexistent", False, True, 2),
        ("sizes /nonexistent --json", True, True, 2),
    ],
)
def test_a_full_disk_below_the_output_has_its_code_and_no_traceback(
    repository: Path, words: str, out: bool, err: bool, code: int
) -> None:
    program = [sys.executable, "-c", "from command_line.main import main; main()", *words.split()]
    with FULL.open("wb") as full:
        done = subprocess.run(
            program, stdout=full if out else subprocess.DEVNULL, stderr=full if err else subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": packages_path(repository)}, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == code
    if not err:
        assert done.stderr.startswith("error: the output: No space left on device\nhint: free some space")
        assert len(done.stderr.splitlines()) == 2


class _Failing(io.StringIO):
    """A stream to which nothing can be written."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def write(self, _: str) -> int:
        raise OSError(self._number, os.strerror(self._number))


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO, errno.EBADF], ids=os.strerror)
def test_an_error_that_is_no_lost_terminal_ends_the_program(number: int) -> None:
    """A closed pipe, a file that cannot be written to, a closed descriptor."""
    with pytest.raises(OSError, match=re.escape(os.strerror(number))):
        Output(_Failing(number), Mask({})).write("x")


@pytest.mark.parametrize(
    ("number", "is_incomplete"), [(errno.EIO, False), (errno.ENOSPC, True), (errno.EDQUOT, True)]
)
def test_a_lost_terminal_ends_no_program_and_is_no_full_disk(
    number: int, is_incomplete: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "screen").open("wb") as screen:
        stream = _Failing(number)
        monkeypatch.setattr(stream, "fileno", screen.fileno)
        monkeypatch.setattr(stream, "isatty", lambda: True)
        output = Output(stream, Mask({}))
        output.write("x")
    assert output.is_incomplete == is_incomplete


def test_all_text_is_written_though_a_thread_still_runs(repository: Path) -> None:
    lines = ["import sys, time", _BUSY, "from command_line.run_command import end_process"]
    lines += ["print('a table')", "print('a warning', file=sys.stderr)", "end_process(7)"]
    environ = {**os.environ, "PYTHONPATH": packages_path(repository), "PYTHONUNBUFFERED": ""}
    program = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(program, env=environ, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (7, "a table\n", "a warning\n")
