"""The private environment: made from a hashed lock on first use, entered on every start. Standard library only.

It is ``.venv/<use>-<python>-<first digits of the lock's sha256>``, or below the user's cache where the checkout cannot
be written to. A changed lock makes another one, so that a build that runs for hours keeps the one it started in. Only
one with a ``complete`` file, which is written last, is entered.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from groundwork.errors import (
    LOCKLESS,
    IntegrityError,
    MegabuildError,
    PreflightError,
    ProviderError,
    of_system,
)
from groundwork.user_folders import cache_folder

LOCKS = {"run": "requirements.lock", "dev": "requirements-dev.lock"}
STAMP = "complete"
#: pip's variables that would install elsewhere, or nothing; its indexes, proxies and certificates are the user's.
_ELSEWHERE = {"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_DRY_RUN", "PIP_PYTHON", "PIP_REQUIREMENT"}
_PIP = ("-I", "-m", "pip", "install", "--disable-pip-version-check", "--require-hashes", "--no-deps")
_PACKAGES_A_DOT = 4
#: What helps where a module of the environment cannot be imported.
DELETE = f"delete the private environment and start again: rm -r {sys.prefix}"


def run_inside(root: str, program: str, module: str) -> None:
    """Call ``main()`` of a module inside the private environment, after starting this program there if need be.

    `program`: the file or folder that Python was started with, started again with the environment's Python.
    """
    open_streams()
    try:
        python = ensure(Path(root), "run")
        if not os.path.samefile(sys.prefix, python.parent.parent):
            os.execv(python, [str(python), "-I", program, *sys.argv[1:]])
        _flock(os.open(Path(sys.prefix, STAMP), os.O_RDONLY), fcntl.LOCK_SH)  # in use until this process ends
        main = _import_main(module)
    except (MegabuildError, OSError) as error:
        told = of_system(error) if isinstance(error, OSError) else error
        if told is None:
            raise
        sys.stderr.write(f"error: {told.message}\n" + (f"  {told.remedy}\n" if told.remedy else ""))
        sys.exit(told.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; the next start makes the environment from scratch\n")
        sys.exit(130)
    main()


def _import_main(module: str) -> Callable[[], None]:
    try:
        main: Callable[[], None] = importlib.import_module(module).main
    except Exception as error:  # a damaged module raises whatever its remains mean
        raise IntegrityError(
            f"{module} cannot be imported: {type(error).__name__}: {error}", DELETE
        ) from error
    return main


def ensure(root: Path, use: str) -> Path:
    """Return the Python of a complete environment, which is made first if there is none.

    `use`: ``run``, or ``dev`` for an environment that has the test tools too.

    Raises PreflightError: There is no place for it, or somebody else could have changed it.
    Raises ProviderError: venv and pip could not make it; the message ends with their output.
    """
    lock = root / LOCKS[use]
    try:
        text = lock.read_bytes()
    except OSError as error:
        raise IntegrityError(
            f"cannot read {lock}: {error.strerror}", f"git checkout -- {lock.name}"
        ) from error
    version = f"{sys.implementation.name}-{sys.version_info[0]}.{sys.version_info[1]}"
    environment = _folder(root, f"{use}-{version}-{hashlib.sha256(text).hexdigest()[:12]}")
    python, stamp = environment / "bin" / "python", environment / STAMP
    if stamp.exists() and python.exists():  # Python is a link to the one it was made with
        return python
    with _exclusive(lock):
        if not (stamp.exists() and python.exists()):  # another start may have been faster
            _make(environment, lock)
            stamp.touch()
            _remove_unused(environment)
    return python


def _folder(root: Path, name: str) -> Path:
    """Return where an environment is or will be: where nobody but this user, root and the checkout's owner writes."""
    venv, trusted = root / ".venv", {os.getuid(), 0, root.stat().st_uid}
    if os.path.lexists(venv) and not venv.is_dir():
        raise PreflightError(f"{venv} is not a folder", f"delete it: rm {venv}")
    above = []
    if not (venv / name / STAMP).exists() and not os.access(venv if venv.exists() else root, os.W_OK):
        cache = cache_folder(os.environ)
        venv, trusted, above = cache / "venv", {os.getuid(), 0}, [cache]
    remedy = "set MEGABUILD_CACHE to a folder of your own, or use a checkout of your own"
    try:
        for folder in (*above, venv, venv / name):
            if os.path.lexists(folder) and (owner := folder.stat().st_uid) not in trusted:
                raise PreflightError(f"{folder} belongs to another user (id {owner})", remedy)
        venv.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PreflightError(f"{error.filename}: {error.strerror}", remedy) from error
    return venv / name


def _make(environment: Path, lock: Path) -> None:
    started = time.monotonic()
    sys.stderr.write(f"setting up a private environment in {environment.parent} (once, from {lock.name}) .")
    sys.stderr.flush()
    shutil.rmtree(environment, ignore_errors=True)
    (environment.parent / ".gitignore").write_text("*\n")
    python = environment / "bin" / "python"
    install = [python, *_PIP, "--only-binary", ":all:", "--requirement", lock]
    for command in (
        [sys.executable, "-I", "-m", "venv", environment],
        install,
        [python, "-I", "-c", "import click"],
    ):
        output = _output_of_failure([str(part) for part in command])
        if output:
            shutil.rmtree(environment, ignore_errors=True)
            sys.stderr.write(" failed\n")
            raise ProviderError(
                f"the environment could not be made; the last output was:\n{output}",
                "check that `python3 -m venv` works (Debian: apt-get install python3-venv) and that pip reaches its "
                "index (pip config list; a company's certificates: PIP_CERT=FILE)",
            )
    sys.stderr.write(f" done in {time.monotonic() - started:.0f} s\n")


def _output_of_failure(command: list[str]) -> str:
    """Run a command, with a dot for every few packages; return its last output if it failed, else an empty string."""
    environ = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE} | {
        "PIP_USER": "0"
    }
    last, collected = deque[str](maxlen=8), 0
    # the lock's descriptor stays open in there: after a kill -9 of this process the next start waits for pip's end
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", close_fds=False,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            last.append(line)
            collected += line.startswith("Collecting ")
            if line.startswith("Collecting ") and collected % _PACKAGES_A_DOT == 0:
                sys.stderr.write(".")
                sys.stderr.flush()
    return (
        "".join(last).strip() or f"{command[0]} exited with {process.returncode}"
        if process.returncode
        else ""
    )


@contextmanager
def _exclusive(lock: Path) -> Iterator[None]:
    """Make environments in one process at a time; where the file system has no locks, unprotected."""
    with lock.open("rb") as file:
        os.set_inheritable(file.fileno(), True)
        try:
            if not _flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB):
                sys.stderr.write("this file system has no locks: do not start twice before .venv is set up\n")
        except BlockingIOError:
            sys.stderr.write("another start is setting up .venv; waiting for it\n")
            _flock(file.fileno(), fcntl.LOCK_EX)
        yield


def _flock(descriptor: int, how: int) -> bool:
    """Lock a file; return False where its file system has no locks."""
    try:
        fcntl.flock(descriptor, how)
    except OSError as error:
        if error.errno not in LOCKLESS:
            raise
        return False
    return True


def _remove_unused(environment: Path) -> None:
    """Remove environments for the same use and Python that another lock made and no process runs in."""
    for other in environment.parent.glob(f"{environment.name.rpartition('-')[0]}-*"):
        with suppress(OSError), (other / STAMP).open("rb") as stamp:
            if other != environment and _flock(stamp.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB):
                shutil.rmtree(other, ignore_errors=True)


def open_streams() -> None:
    """Give this process the standard streams that it was started without (``<&-``, ``>&-``), leading nowhere.

    Otherwise the next file that is opened becomes standard output, and build scripts write into it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


if __name__ == "__main__":  # prints the Python of an environment, for scripts
    try:
        print(ensure(Path(__file__).resolve().parent.parent.parent, sys.argv[1]))
    except MegabuildError as failure:
        sys.stderr.write(f"error: {failure.message}\n  {failure.remedy}\n")
        sys.exit(failure.exit_code)
