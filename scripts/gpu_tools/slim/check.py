"""Whether an environment still works: all that can be imported before it is slimmed is imported afterwards, too.

The environment's own Python does it, a process for each module, in a temporary folder and home, without writing byte
code. GPUs stay visible: what a package opens as it is imported depends on them, and is to be tried.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from gpu_tools.slim.contents import Contents, Note
from groundwork.errors import UsageError, VerdictError

#: Seconds for one module, which reads gigabytes from a cold disk; afterwards more, lest a busy machine undo anything.
_TIMEOUT, _LONG_TIMEOUT = 120.0, 600.0
_AT_ONCE = 4
_SITE = re.compile(r"(?:.*/)?(?:site|dist)-packages/")
_MODULE = re.compile(r"([A-Za-z_]\w*)(?:\.py|(?:\.cpython-[\w-]+|\.abi3)?\.so)")
#: A module may end its process, with any status that it likes.
_IMPORTED = 77
_CHILD = f"import importlib, os, sys; importlib.import_module(sys.argv.pop()); os._exit({_IMPORTED})"


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

    def before(self, contents: Contents, gone: Collection[str]) -> None:
        """Find out what works; modules of which nothing will be left are not tried.

        Raises UsageError: A command fails already.
        """
        for command in self._commands:
            if failed := self._run_command(command):
                raise UsageError(f"`{command}` fails before anything is slimmed: {failed}", "correct --check")
        errors: dict[str, str] = {}
        why = f"there is no Python in {self._root}/bin"
        if (self._root / "bin" / "python").exists():
            errors = self._import(sorted(_find_modules(contents, gone)), _TIMEOUT)
            why = f"no module can be imported ({next(iter(errors.values()), 'there is none')})"
        self._names = tuple(name for name, error in errors.items() if not error)
        self.result = CheckResult(
            modules=len(self._names) if self._names else None,
            why="" if self._names else why,
            failed_before=tuple(name for name, error in errors.items() if error),
            commands=len(self._commands),
        )

    def after(self) -> None:
        """Try it again.

        Raises VerdictError: Something that worked before does not.
        """
        for name, error in self._import(self._names, _LONG_TIMEOUT).items():
            if error:
                raise self._too_far(f"`import {name}` failed, which worked before ({error})")
        for command in self._commands:
            if failed := self._run_command(command):
                raise self._too_far(f"`{command}` failed, which worked before ({failed})")

    def _too_far(self, what: str) -> VerdictError:
        return VerdictError(
            f"{self._root}: when it was slimmed, {what}; it was undone",
            "find the step that takes what this needs, and leave it out: --keep STEP (slim without --apply lists them)",
        )

    def _import(self, names: Sequence[str], timeout: float) -> dict[str, str]:
        """Import modules, and return how each failed, an empty string if it did not."""

        def import_module(name: str) -> str:
            command = [str(self._root / "bin/python"), "-I", "-B", "-c", _CHILD, name]
            with tempfile.TemporaryDirectory(prefix="megabuild-check-") as home:
                return self._run(command, timeout=timeout, home=home, success=_IMPORTED)

        errors: dict[str, str] = {}
        pool = ThreadPoolExecutor(_AT_ONCE)
        try:
            for name, error in zip(names, pool.map(import_module, names), strict=True):
                errors[name] = error
                self._note(f"importing {len(errors)}/{len(names)}: {name}")
        finally:
            pool.shutdown(cancel_futures=True)
        return errors

    def _run_command(self, command: str) -> str:
        """Run a command of the user's; return how it failed."""
        self._note(f"running {command}")
        return self._run(["/bin/sh", "-c", command])

    def _run(
        self,
        command: Sequence[str],
        *,
        timeout: float | None = None,
        home: str | None = None,
        success: int = 0,
    ) -> str:
        """Run a program as the environment's owner, and return how it failed, with the last line that it wrote.

        Nothing that it starts outlives it. A home is its current folder, too.
        """
        status = self._root.stat()
        owner: Mapping[str, Any] = {}
        if os.geteuid() == 0 and status.st_uid:
            owner = {"user": status.st_uid, "group": status.st_gid, "extra_groups": []}
            if home:
                os.chown(home, status.st_uid, status.st_gid)
        with tempfile.TemporaryFile() as output:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=home,
                    env=self._environ(home),
                    start_new_session=True,
                    **owner,
                )
            except OSError as error:  # to root's, the environment's owner has no way, for one
                return f"{command[0]}: {error.strerror}"
            try:
                returned = process.wait(timeout)
            except subprocess.TimeoutExpired:
                return f"takes longer than {timeout:.0f} s"
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(max(0, output.seek(0, os.SEEK_END) - 2000))
            last = output.read().decode(errors="replace").strip().splitlines()[-1:]
        if returned == success:
            return ""
        ended = f"ended by signal {-returned}" if returned < 0 else f"ended with exit code {returned}"
        return ": ".join([ended, *last])

    def _environ(self, home: str | None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        path = f"{self._root / 'bin'}{os.pathsep}{kept.get('PATH', os.defpath)}"
        environ = {**kept, "PATH": path, "VIRTUAL_ENV": str(self._root), "PYTHONDONTWRITEBYTECODE": "1"}
        return {**environ, "HOME": home, "XDG_CACHE_HOME": home, "TMPDIR": home} if home else environ


def _find_modules(contents: Contents, gone: Collection[str]) -> Iterator[str]:
    """Return the topmost modules and packages of an environment that something is left of, by the names to import."""
    packages: dict[tuple[str, ...], str] = {}
    modules: dict[str, str] = {}
    for path in contents.owners:
        site = _SITE.match(path)
        inside = PurePosixPath(path[site.end() :] if site else path)
        if not site and (contents.root / "bin").is_dir():
            continue
        if inside.name == "__init__.py" and all(part.isidentifier() for part in inside.parts[:-1]):
            packages[inside.parts[:-1]] = path
        elif len(inside.parts) == 1 and (module := _MODULE.fullmatch(inside.name)):
            modules[module[1]] = path
    for parts, path in packages.items():
        if not any(parts[:end] in packages for end in range(1, len(parts))):
            modules[".".join(parts)] = path
    return (name for name, path in modules.items() if path not in gone)
