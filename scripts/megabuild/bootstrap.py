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
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from megabuild.errors import IntegrityError, MegabuildError, PreflightError, ProviderError

LOCKS = {"run": "requirements.lock", "dev": "requirements-dev.lock"}
STAMP = "complete"

_HASHED = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement")


def run_inside(root: str, program: str, module: str) -> None:
    """Call ``main()`` of a module inside the private environment, after starting this program there if need be.

    Parameters
    ----------
    root:
        The repository.
    program:
        The file or folder that Python was started with, started again with the environment's Python.
    module:
        What needs the environment.
    """
    open_streams()
    try:
        python = ensure(Path(root), "run")
        if not _is_inside(python):
            os.execv(python, [str(python), "-I", program, *sys.argv[1:]])
        _hold(python)
        main = _imported(module)
    except MegabuildError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"  {error.remedy}\n" if error.remedy else ""))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; the next start sets the environment up anew\n")
        sys.exit(130)
    main()


def ensure(root: Path, use: str) -> Path:
    """Return the Python of a complete environment, which is made first if there is none.

    Parameters
    ----------
    root:
        The repository.
    use:
        ``run``, or ``dev`` for an environment that has the test tools too.

    Raises
    ------
    ProviderError
        Neither uv nor venv and pip could make it; the message ends with what they said.
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
                _make(environment, lock, digest)
                _remove_unused(environment)
    return _python(environment)


def _home(root: Path) -> Path:
    """Return where to make environments: in the repository, or in the user's cache where that cannot be written to.

    Raises
    ------
    PreflightError
        There is no such place.
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


def _is_inside(python: Path) -> bool:
    return os.path.samefile(sys.prefix, python.parent.parent)


def _is_complete(environment: Path, digest: str) -> bool:
    try:
        # The stamp is written last. Python is a link to the one it was made with, which may be gone since.
        return (environment / STAMP).read_text() == digest and _python(environment).exists()
    except OSError:
        return False


def _hold(python: Path) -> None:
    """Mark the environment as in use until this process ends, however it ends."""
    descriptor = os.open(python.parent.parent / STAMP, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)


def mistrust() -> None:
    """Have the next start set up the environment this process runs in anew, because something in it is not whole."""
    (Path(sys.prefix) / STAMP).unlink(missing_ok=True)


def _imported(module: str) -> Callable[[], None]:
    try:
        found: Callable[[], None] = importlib.import_module(module).main
    except Exception as error:  # a damaged module raises whatever its remains happen to mean
        damaged = damaged_part(error)
        if not damaged:
            raise
        mistrust()
        raise IntegrityError(
            f"{damaged} is missing from .venv or damaged", "start again: that sets it up anew"
        ) from error
    return found


def damaged_part(error: Exception) -> str:
    """Return the module or file of the private environment that an import failed for; empty for a fault of ours."""
    if isinstance(error, ModuleNotFoundError):
        return "" if (error.name or "").startswith("megabuild") else str(error.name)
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
    """Let one start at a time make environments.

    The lock is passed on to pip: after a kill -9 of this process, the next start waits for an orphaned pip to end.
    """
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write("another start is setting up .venv; waiting for it\n")
            fcntl.flock(file, fcntl.LOCK_EX)
        os.set_inheritable(file.fileno(), True)
        yield


def _make(environment: Path, lock: Path, digest: str) -> None:
    started = time.monotonic()
    again = "again " if environment.exists() else ""
    sys.stderr.write(f"setting up a private environment in .venv {again}(only now, from {lock.name}) ... ")
    sys.stderr.flush()
    said = ""
    for commands in _ways(environment, lock):
        shutil.rmtree(environment, ignore_errors=True)
        environment.parent.mkdir(parents=True, exist_ok=True)
        (environment.parent / ".gitignore").write_text("*\n")
        problem = next(filter(None, map(_call, commands)), "")
        if not problem:
            break
        said = said or problem
    else:
        shutil.rmtree(environment, ignore_errors=True)
        sys.stderr.write("failed\n")
        raise ProviderError(
            f"the environment could not be made; the last words were:\n{said}",
            "check that `python3 -m venv` works (Debian: apt-get install python3-venv) and that pip reaches its index",
        )
    partial = environment / (STAMP + ".partial")
    partial.write_text(digest)
    partial.replace(environment / STAMP)
    sys.stderr.write(f"done in {time.monotonic() - started:.0f} s\n")


def _ways(environment: Path, lock: Path) -> Iterator[list[list[str]]]:
    """Yield commands that make an environment: venv and pip, which know the machine's mirrors; uv needs neither."""
    place, python, locked = str(environment), str(_python(environment)), [*_HASHED, str(lock)]
    pip = [python, "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *locked]
    yield [[sys.executable, "-I", "-m", "venv", place], pip]
    if uv := shutil.which("uv"):
        os.environ.setdefault("UV_SYSTEM_CERTS", "1")
        install = [uv, "--quiet", "pip", "install", "--python", python, *locked]
        yield [[uv, "--quiet", "venv", "--python", sys.executable, place], install]


def _call(command: list[str]) -> str:
    """Return what a command said when it failed, else an empty string."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, close_fds=False
    )
    if done.returncode == 0:
        return ""
    return "\n".join(done.stdout.strip().splitlines()[-8:]) or f"{command[0]} exited with {done.returncode}"


def _remove_unused(environment: Path) -> None:
    """Remove environments for the same use and Python that another lock made and no process runs in."""
    family = environment.name.rpartition("-")[0]
    for other in environment.parent.glob(f"{family}-*"):
        if other == environment:
            continue
        try:
            with (other / STAMP).open("rb") as stamp:
                fcntl.flock(stamp, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
