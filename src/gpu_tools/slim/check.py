"""Checks that a slimmed environment still works: modules that were importable before must be importable afterwards.

The environment's own Python imports each module in its own process, in a temporary folder and home, without writing
byte code. GPUs stay visible: the libraries that a package loads on import depend on them.
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
from pathlib import Path, PurePosixPath
from typing import Any

from gpu_tools.contents import Contents
from groundwork.errors import UsageError, VerdictError
from groundwork.process import describe_end
from groundwork.progress import Notes

#: Seconds per import before slimming: a cold disk reads gigabytes.
_TIMEOUT = 120.0
#: Seconds per import after slimming: a busy machine must not cause an undo.
_LONG_TIMEOUT = 600.0
_AT_ONCE = 4
_SITE = re.compile(r"(?:.*/)?(?:site|dist)-packages/")
_PACKAGE = "__init__.py"
_MODULE = re.compile(r"([A-Za-z_]\w*)(?:\.py|(?:\.cpython-[\w-]+|\.abi3)?\.so)")
#: Exit code of a successful import: a module may end its process with 0 or any usual code.
_IMPORTED = 77
_CHILD = f"import importlib, os, sys; importlib.import_module(sys.argv.pop()); os._exit({_IMPORTED})"


class Check:
    """Checks an environment before and after slimming, and reports progress to ``note``.

    ``commands`` run in /bin/sh with the environment's programs first in PATH, and must succeed too.
    """

    def __init__(self, root: Path, commands: Sequence[str], note: Notes) -> None:
        self._root = root.absolute()
        self.commands = commands
        self._note = note
        self.modules: list[str] = []  #: Modules that can be imported before slimming.
        self.failed_before: list[str] = []  #: Modules that cannot.

    def before(self, contents: Contents, gone: Collection[str]) -> None:
        """Record which modules can be imported; modules that slimming removes are skipped.

        Raises UsageError: A command already fails.
        """
        for command in self.commands:
            failed = self._run_command(command)
            if failed:
                raise UsageError(
                    f"--check: `{command}` fails before slimming: {failed}", "correct the command"
                )
        errors = self._import(sorted(_find_modules(contents, gone)), _TIMEOUT)
        self.modules = [name for name, error in errors.items() if not error]
        self.failed_before = [name for name, error in errors.items() if error]

    def after(self) -> None:
        """Repeat the imports and commands.

        Raises VerdictError: An import or command that worked before fails.
        """
        errors = self._import(self.modules, _LONG_TIMEOUT)
        for name, error in errors.items():
            self._require_success(f"import {name}", error)
        for command in self.commands:
            self._require_success(command, self._run_command(command))

    def _require_success(self, check: str, error: str) -> None:
        if error:
            raise VerdictError(
                f"{self._root}: `{check}` failed after slimming ({error})",
                "skip the step that removes a needed file: --keep STEP (slim without --apply lists the steps)",
            )

    def to_json(self) -> dict[str, Any]:
        """Return this as JSON values."""
        return {
            "modules": len(self.modules),
            "failed_before": self.failed_before,
            "commands": len(self.commands),
        }

    def _import(self, names: Sequence[str], timeout: float) -> dict[str, str]:
        """Import modules; return each module's error, or an empty string."""

        def import_module(name: str) -> str:
            command = [str(self._root / "bin/python"), "-I", "-B", "-c", _CHILD, name]
            with tempfile.TemporaryDirectory(prefix="megabuild-check-") as home:
                return self._run(command, timeout=timeout, home=home, success=_IMPORTED)

        errors: dict[str, str] = {}
        pool = ThreadPoolExecutor(_AT_ONCE)
        try:
            for name, error in zip(names, pool.map(import_module, names), strict=True):
                errors[name] = error
                self._note(f"importing modules: {len(errors)} of {len(names)} ({name})")
        finally:
            pool.shutdown(cancel_futures=True)
        return errors

    def _run_command(self, command: str) -> str:
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
        """Run a program as the environment's owner; return how it failed and its last line, or an empty string.

        Its process group is killed at the end. ``home`` is also the current folder.
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
            except OSError as error:  # e.g. the owner may not enter a folder of root's
                return f"{command[0]}: {error.strerror}"
            try:
                returned = process.wait(timeout)
            except subprocess.TimeoutExpired:
                return f"no result after {timeout:.0f} s"
            finally:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(max(0, output.seek(0, os.SEEK_END) - 2000))
            last = output.read().decode(errors="replace").strip().splitlines()[-1:]
        if returned == success:
            return ""
        return ": ".join([describe_end(returned), *last])

    def _environ(self, home: str | None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        path = f"{self._root / 'bin'}{os.pathsep}{kept.get('PATH', os.defpath)}"
        environ = {**kept, "PATH": path, "VIRTUAL_ENV": str(self._root), "PYTHONDONTWRITEBYTECODE": "1"}
        if home:
            environ |= {"HOME": home, "XDG_CACHE_HOME": home, "TMPDIR": home}
        return environ


def _find_modules(contents: Contents, gone: Collection[str]) -> Iterator[str]:
    """Yield the import names of top-level modules and packages that slimming does not remove."""
    modules: dict[tuple[str, ...], str] = {}
    is_target_folder = not (contents.root / "bin").is_dir()  # of pip install --target
    for path in contents.owners:
        site = _SITE.match(path)
        if site:
            name = _name_module(PurePosixPath(path[site.end() :]))
        elif is_target_folder:
            name = _name_module(PurePosixPath(path))
        else:
            continue
        if name:
            modules[name] = path
    for name, path in modules.items():
        is_inside_another = any(name[:end] in modules for end in range(1, len(name)))
        if path not in gone and not is_inside_another and all(map(str.isidentifier, name)):
            yield ".".join(name)


def _name_module(path: PurePosixPath) -> tuple[str, ...]:
    """Return the parts of the name of a package or top-level module; empty for another file."""
    *folders, name = path.parts
    if name == _PACKAGE:
        return tuple(folders)
    module = _MODULE.fullmatch(name)
    if folders or module is None:
        return ()
    return (module[1],)
