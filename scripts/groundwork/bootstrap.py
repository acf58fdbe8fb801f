"""The private environment: made from a hashed lock on first use, entered on every start. Standard library only.

Environments lie in ``.venv/<use>-<python>-<first digits of the lock's sha256>/``, or in the user's cache where the
repository cannot be written to. A changed lock makes another one, so that a build that runs for hours keeps the one it
started in; an environment nobody runs in is then removed. What makes one trusted is a stamp written last: without it,
whatever lies there is what a killed set-up left.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from groundwork.errors import LOCKLESS, IntegrityError, MegabuildError, PreflightError

LOCKS = {"run": "requirements.lock", "dev": "requirements-dev.lock"}
STAMP = "complete"
#: Import packages of this repository: a missing one is our bug, not a damaged environment.
OURS = (
    "command_line",
    "conda_wheels",
    "cuda_code",
    "gpu_tools",
    "groundwork",
    "megabuild",
    "pin_audit",
    "pyg_extensions",
)
#: Beside the stamp: by path below the environment, the sizes in bytes of files that a processor runs.
SIZES = "sizes.json"


def run_inside(root: str, program: str, module: str) -> None:
    """Call ``main()`` of a module inside the private environment, after starting this program there if need be.

    `program`: the file or folder that Python was started with, started again with the environment's Python.
    """
    open_streams()
    try:
        python = ensure(Path(root), "run")
        if not os.path.samefile(sys.prefix, python.parent.parent):
            os.execv(python, [str(python), "-I", program, *sys.argv[1:]])
        _hold(python)
        main: Callable[[], None] = import_whole(module).main
    except MegabuildError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"  {error.remedy}\n" if error.remedy else ""))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; the next start sets the environment up anew\n")
        sys.exit(130)
    main()


def ensure(root: Path, use: str) -> Path:
    """Return the Python of a complete environment, which is made first if there is none.

    `use`: ``run``, or ``dev`` for an environment that has the test tools too.

    Raises ProviderError: Neither uv nor venv and pip could make it; the message ends with their output.
    """
    lock = root / LOCKS[use]
    try:
        digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    except OSError as error:
        raise IntegrityError(
            f"cannot read {lock}: {error.strerror}", "restore it: git checkout -- " + lock.name
        ) from error
    version = f"{sys.implementation.name}-{sys.version_info[0]}.{sys.version_info[1]}"
    name = f"{use}-{version}-{digest[:12]}"
    environment = root / ".venv" / name
    if not _is_complete(environment, digest):
        environment = _home(root) / name
    if not _is_complete(environment, digest):
        with _alone(lock):
            if not _is_complete(environment, digest):  # another start may have been faster
                from groundwork.create_venv import make  # not before: hardly any start needs it

                make(environment, lock, environment / SIZES)
                _stamp(environment, digest)
                _remove_unused(environment)
    return _python(environment)


def _home(root: Path) -> Path:
    """Return where to make environments: in the repository, or in the user's cache where that cannot be written to.

    Raises PreflightError: There is no such place.
    """
    inside = root / ".venv"
    usual = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = Path(os.environ.get("MEGABUILD_CACHE") or os.path.join(usual, "megabuild"))
    home = inside if os.access(inside if inside.exists() else root, os.W_OK) else cache / "venv"
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PreflightError(
            f"neither {root} nor {home} can be written to: {error.strerror}",
            "set MEGABUILD_CACHE to a folder that can",
        ) from error
    return home


def _python(environment: Path) -> Path:
    return environment / "bin" / "python"


def _is_complete(environment: Path, digest: str) -> bool:
    try:
        # The stamp is written last. Python is a link to the one it was made with, which may be gone since.
        stamped = (environment / STAMP).read_text() == digest and _python(environment).exists()
    except OSError:
        return False
    return stamped and not _damaged(environment)


def _damaged(environment: Path) -> str:
    """Return a native file whose size has changed since its installation, or nothing; takes less than a millisecond.

    A truncated library ends the process that loads it with SIGBUS, before any error message.
    """
    try:
        sizes = json.loads((environment / SIZES).read_text())
    except FileNotFoundError:
        return ""  # made before sizes were noted
    except (OSError, ValueError):
        return SIZES
    for path, size in sizes.items():
        try:
            if os.stat(environment / path).st_size != size:
                return str(path)
        except OSError:
            return str(path)
    return ""


def _stamp(environment: Path, digest: str) -> None:
    partial = environment / (STAMP + ".partial")
    partial.write_text(digest)
    partial.replace(environment / STAMP)


def _hold(python: Path) -> None:
    """Mark the environment as in use until this process ends, however it ends."""
    _flock(os.open(python.parent.parent / STAMP, os.O_RDONLY), fcntl.LOCK_SH)


def _flock(descriptor: int, how: int) -> bool:
    """Lock a file; return False where its file system has no locks, and everybody goes on unprotected."""
    try:
        fcntl.flock(descriptor, how)
    except OSError as error:
        if error.errno not in LOCKLESS:
            raise
        return False
    return True


def mistrust() -> None:
    """Invalidate the environment that this process runs in: the next start makes it anew."""
    (Path(sys.prefix) / STAMP).unlink(missing_ok=True)


def import_whole(module: str) -> ModuleType:
    """Import a module of ours.

    Raises IntegrityError: Something that it needs is damaged in the private environment, which the next start sets up
        anew.
    """
    try:
        return importlib.import_module(module)
    except Exception as error:  # a damaged module raises whatever its remains happen to mean
        damaged = damaged_part(error)
        if not damaged:
            raise
        mistrust()
        raise IntegrityError(
            f"{damaged} is missing from .venv or damaged", "start again: that sets it up anew"
        ) from error


def damaged_part(error: Exception) -> str:
    """Return the module or file of the private environment that an import failed for; empty for a bug of ours."""
    if not (Path(sys.prefix) / STAMP).is_file():
        return ""  # an environment of the user's
    if isinstance(error, ModuleNotFoundError):
        return "" if (error.name or "").partition(".")[0] in OURS else str(error.name)
    if isinstance(error, SyntaxError) and not error.filename:
        return "a module"  # one with null bytes in it has no name
    deepest = error.__traceback__
    while deepest is not None and deepest.tb_next is not None:
        deepest = deepest.tb_next
    places = [
        getattr(error, "filename", None),  # of a SyntaxError, of a file that is gone
        getattr(error, "path", None),  # of an ImportError
        getattr(getattr(error, "obj", None), "__file__", None),  # of an AttributeError
        deepest.tb_frame.f_code.co_filename if deepest is not None else None,
    ]
    inside = os.path.join(sys.prefix, "lib")
    return next((place for place in places if isinstance(place, str) and place.startswith(inside)), "")


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


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Make environments in one process at a time.

    The lock is passed on to the guard: after a kill -9 of this process, the next start waits until it has ended pip.
    """
    with lock.open("rb") as file:
        try:
            if not _flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB):
                sys.stderr.write("this file system has no locks: do not start twice before .venv is set up\n")
        except BlockingIOError:
            sys.stderr.write("another start is setting up .venv; waiting for it\n")
            fcntl.flock(file, fcntl.LOCK_EX)
        os.set_inheritable(file.fileno(), True)
        yield


def _remove_unused(environment: Path) -> None:
    """Remove environments for the same use and Python that another lock made and no process runs in."""
    family = environment.name.rpartition("-")[0]
    for other in environment.parent.glob(f"{family}-*"):
        if other == environment:
            continue
        try:
            with (other / STAMP).open("rb") as stamp:
                if _flock(stamp.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB):
                    shutil.rmtree(other, ignore_errors=True)
        except FileNotFoundError:  # a set-up that was killed
            shutil.rmtree(other, ignore_errors=True)
        except BlockingIOError:
            pass  # somebody runs in it


if __name__ == "__main__":  # prints the Python of an environment, for scripts
    try:
        print(ensure(Path(__file__).resolve().parent.parent.parent, sys.argv[1]))
    except MegabuildError as failure:
        sys.exit(f"error: {failure.message}\n  {failure.remedy}")
