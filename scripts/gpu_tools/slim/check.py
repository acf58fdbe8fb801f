"""Whether an environment still works: all that can be imported before it is slimmed is imported afterwards, too.

The environment's own Python does it, in a temporary folder and home, without writing byte code. GPUs stay visible: what
a package opens as it is imported depends on them, and is to be tried. Several modules share a process, as long as they
bear one another; one that fails there is tried alone.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from gpu_tools.slim.listing import Contents, Note
from groundwork.errors import UsageError, VerdictError

#: Seconds for one module, which reads gigabytes from a cold disk; afterwards more, lest a busy machine undo anything.
_TIMEOUT, _LONG_TIMEOUT = 120.0, 600.0
#: Seconds for all of them before; what has no turn by then is not looked at afterwards either.
_TOGETHER = 900.0
_SITE = re.compile(r"(?:.*/)?(?:site|dist)-packages/")
_MODULE = re.compile(r"([A-Za-z_]\w*)(?:\.py|(?:\.cpython-[\w-]+|\.abi3)?\.so)")
_CHILD = """
import importlib, os, sys
out, names, sys.argv = os.fdopen(int(sys.argv[1]), "w"), sys.argv[2:], [""]
for name in names:
    out.write("> %s\\n" % name)
    out.flush()
    try:
        importlib.import_module(name)
        answer = "+"
    except BaseException as error:
        answer = ("- %s: %s" % (type(error).__name__, error)).replace("\\n", " ")[:400]
    out.write(answer.encode("ascii", "backslashreplace").decode() + "\\n")
    out.flush()
os._exit(0)
"""


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What was tried: how many modules, None for none with the reason; the names of those that failed before."""

    modules: int | None
    why: str = ""
    failed_before: tuple[str, ...] = ()
    commands: int = 0


class Check:
    """Tries an environment before and after it is slimmed, and notes what it is doing.

    Commands are the shell's, and must succeed as well, with the environment's programs first in PATH.
    """

    def __init__(self, root: Path, commands: Sequence[str], note: Note) -> None:
        self._root = root.absolute()
        self._commands = commands
        self._note = note
        self._names: tuple[str, ...] = ()
        self.result = CheckResult(modules=None, why="there was nothing to take away")

    def before(self, contents: Contents, gone: Iterable[str]) -> None:
        """Find out what works; modules of which nothing will be left are not tried.

        Raises UsageError: A command fails already.
        """
        for command in self._commands:
            if failed := self._fails(command):
                raise UsageError(f"`{command}` fails before anything is slimmed: {failed}", "correct --check")
        wanted = _modules(contents, frozenset(gone))
        failed_before: tuple[str, ...] = ()
        why = "" if wanted else "nothing in it can be imported"
        if not (self._root / "bin" / "python").exists():
            why = f"there is no Python in {self._root}/bin"
        elif wanted:
            try:
                answers = dict(self._answers(wanted, _TIMEOUT, time.monotonic() + _TOGETHER))
            except OSError as error:  # to root's, the environment's owner has no way, for one
                answers = {wanted[0]: f"bin/python: {error.strerror}"}
            self._names = tuple(name for name, error in answers.items() if error is None)
            failed_before = tuple(name for name in wanted if name not in self._names)
            if not self._names:
                why = f"no module can be imported ({next(iter(answers.values()), 'no time')})"
        self.result = CheckResult(
            modules=None if why else len(self._names),
            why=why,
            failed_before=failed_before,
            commands=len(self._commands),
        )

    def after(self) -> None:
        """Try it again.

        Raises VerdictError: Something that worked before does not.
        """
        for name, error in self._answers(self._names, _LONG_TIMEOUT):
            if error is not None:
                raise self._too_far(f"`import {name}` failed, which worked before ({error})")
        for command in self._commands:
            if failed := self._fails(command):
                raise self._too_far(f"`{command}` failed, which worked before ({failed})")

    def _too_far(self, what: str) -> VerdictError:
        return VerdictError(
            f"{self._root}: when it was slimmed, {what}; it was undone",
            "find the step that takes what this needs, and leave it out: --keep STEP (slim without --apply lists them)",
        )

    def _answers(
        self, names: Sequence[str], timeout: float, until: float = float("inf")
    ) -> Iterator[tuple[str, str | None]]:
        """Import modules, and return for each how it failed, None if it did not."""
        left = list(names)
        while left and time.monotonic() < until:
            done = 0
            for name, error in self._imported(left, timeout):
                done += 1
                if error is not None and len(names) > 1:
                    (error,) = [alone for _, alone in self._imported([name], timeout)]
                yield name, error
                if error is None:
                    self._note(f"importing {len(names) - len(left) + done}/{len(names)}: {name}")
                if time.monotonic() > until:
                    return
            del left[:done]

    def _imported(self, names: Sequence[str], timeout: float) -> Iterator[tuple[str, str | None]]:
        """Import modules in one process, up to the first that ends it or takes too long."""
        reading, writing = os.pipe()
        command = [str(self._root / "bin/python"), "-I", "-B", "-c", _CHILD, str(writing), *names]
        with (
            os.fdopen(reading, "rb") as stream,
            selectors.DefaultSelector() as selector,
            self._started(command, pass_fds=(writing,)) as process,
        ):
            os.close(writing)
            selector.register(stream, selectors.EVENT_READ)
            text, current, told = b"", names[0], 0
            deadline = time.monotonic() + timeout
            while told < len(names):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    yield current, f"takes longer than {timeout:.0f} s"
                    return
                block = os.read(reading, 1 << 16)
                if not block:
                    yield current, _ended(process.wait())
                    return
                *lines, text = (text + block).split(b"\n")
                for line in lines:
                    deadline = time.monotonic() + timeout
                    if line.startswith(b"> "):
                        current = line[2:].decode()
                    else:
                        told += 1
                        yield current, None if line == b"+" else line[2:].decode()

    def _fails(self, command: str) -> str | None:
        """Run a command of the user's; return how it failed."""
        self._note(f"running {command}")
        with (
            tempfile.TemporaryFile() as output,
            self._started(["/bin/sh", "-c", command], output=output.fileno(), cwd=None) as process,
        ):
            status = process.wait()
            output.seek(0)
            last = output.read()[-2000:].decode(errors="replace").strip().splitlines()[-1:]
        return f"{_ended(status)}{': ' if last else ''}{''.join(last)}" if status else None

    @contextmanager
    def _started(
        self,
        command: Sequence[str],
        *,
        output: int = subprocess.DEVNULL,
        cwd: str | None = "",
        pass_fds: Sequence[int] = (),
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run a process in a group of its own, which ends with the context; as the environment's owner."""
        with tempfile.TemporaryDirectory(prefix="megabuild-check-") as home:
            status = self._root.stat()
            owner: Mapping[str, Any] = {}
            if os.geteuid() == 0 and status.st_uid:
                owner = {"user": status.st_uid, "group": status.st_gid, "extra_groups": []}
                os.chown(home, status.st_uid, status.st_gid)
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=home if cwd == "" else cwd,
                env=self._environ(home if cwd == "" else None),
                pass_fds=pass_fds,
                start_new_session=True,
                **owner,
            )
            try:
                yield process
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _environ(self, home: str | None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        path = f"{self._root / 'bin'}{os.pathsep}{kept.get('PATH', os.defpath)}"
        environ = {**kept, "PATH": path, "VIRTUAL_ENV": str(self._root), "PYTHONDONTWRITEBYTECODE": "1"}
        return {**environ, "HOME": home, "XDG_CACHE_HOME": home, "TMPDIR": home} if home else environ


def _ended(status: int) -> str:
    if status < 0:
        return f"ended by signal {-status} ({signal.strsignal(-status)})"
    return f"ended with exit code {status}"


def _modules(contents: Contents, gone: frozenset[str]) -> list[str]:
    """Return the topmost modules and packages of an environment that something is left of, by the names to import."""
    packages: dict[tuple[str, ...], str] = {}
    modules: dict[str, str] = {}
    for path in contents.owners:
        site = _SITE.match(path)
        place = PurePosixPath(path[site.end() :] if site else path)
        if not site and (contents.root / "bin").is_dir():
            continue
        if place.name == "__init__.py" and all(part.isidentifier() for part in place.parts[:-1]):
            packages[place.parts[:-1]] = path
        elif len(place.parts) == 1 and (module := _MODULE.fullmatch(place.name)):
            modules[module[1]] = path
    for parts, path in packages.items():
        if not any(parts[:end] in packages for end in range(1, len(parts))):
            modules[".".join(parts)] = path
    return sorted(name for name, path in modules.items() if path not in gone)
