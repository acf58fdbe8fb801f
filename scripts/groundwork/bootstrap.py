"""The private environment: made from a hashed lock on first use, entered on every start. Standard library only.

It is ``.venv/<use>-<python>-<first digits of the lock's sha256>``. A changed lock makes another one, so that a build
that runs for hours keeps the one it started in. Only one with a ``complete`` file, which is written last, is entered.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from groundwork.errors import IntegrityError, MegabuildError, PreflightError, ProviderError, of_system

_LOCKS = {"run": "requirements.lock", "dev": "requirements-dev.lock"}
STAMP = "complete"
#: pip's variables that would install elsewhere, or nothing; its indexes, proxies and certificates are the user's.
_ELSEWHERE = {"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_DRY_RUN", "PIP_PYTHON", "PIP_REQUIREMENT"}
_PIP = ("-I", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--require-hashes", "--no-deps")
#: What helps where a module of the environment cannot be imported.
DELETE = f"delete the private environment and start again: rm -r {sys.prefix}"


def run_inside(root: str, program: str, module: str) -> None:
    """Call ``main()`` of a module inside the private environment, after starting this program there if need be.

    `program`: the file or folder that Python was started with, started again with the environment's Python.
    """
    open_streams()
    with _explained():
        python = ensure(Path(root), "run")
        if not os.path.samefile(sys.prefix, python.parent.parent):
            os.execv(python, [str(python), "-I", program, *sys.argv[1:]])
        main = _import_main(module)
    main()


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (MegabuildError, OSError) as error:
        failure = of_system(error) if isinstance(error, OSError) else error
        if failure is None:
            raise
        sys.stderr.write(f"error: {failure.message}\n" + (f"  {failure.remedy}\n" if failure.remedy else ""))
        sys.exit(failure.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; the next start makes the environment from scratch\n")
        sys.exit(130)


def _import_main(module: str) -> Callable[[], None]:
    try:
        main: Callable[[], None] = importlib.import_module(module).main
    except Exception as error:  # a damaged module raises whatever its remains mean
        reason = f"{module} cannot be imported: {type(error).__name__}: {error}"
        raise IntegrityError(reason, DELETE) from error
    return main


def ensure(root: Path, use: str) -> Path:
    """Return the Python of a complete environment, which is made first if there is none.

    `use`: ``run``, or ``dev`` for an environment that has the test tools too.
    """
    lock = root / _LOCKS[use]
    try:
        digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    except OSError as error:
        reason = f"cannot read {lock}: {error.strerror}"
        raise IntegrityError(reason, f"git checkout -- {lock.name}") from error
    version = f"{sys.implementation.name}-{sys.version_info[0]}.{sys.version_info[1]}"
    environment = _folder(root, f"{use}-{version}-{digest[:12]}")
    python, stamp = environment / "bin" / "python", environment / STAMP
    if stamp.exists() and python.exists():  # Python is a link to the one it was made with
        return python
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write("another start is setting up .venv; waiting for it\n")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            pass
        if not (stamp.exists() and python.exists()):
            _make(environment, lock, file.fileno())
    return python


def _folder(root: Path, name: str) -> Path:
    """Return where an environment is or will be: where nobody but this user, root and the checkout's owner writes."""
    venv, trusted = root / ".venv", {os.getuid(), 0, root.stat().st_uid}
    if os.path.lexists(venv) and not venv.is_dir():
        raise PreflightError(f"{venv} is not a folder", f"delete it: rm {venv}")
    for folder in (venv, venv / name):
        if os.path.lexists(folder) and (owner := folder.stat().st_uid) not in trusted:
            raise PreflightError(
                f"{folder} belongs to another user (id {owner})", "use a checkout of your own"
            )
    return venv / name


def _make(environment: Path, lock: Path, held: int) -> None:
    sys.stderr.write(f"setting up a private environment in {environment.parent} (once, about a minute)\n")
    shutil.rmtree(environment, ignore_errors=True)
    environment.parent.mkdir(exist_ok=True)
    (environment.parent / ".gitignore").write_text("*\n")
    python = environment / "bin" / "python"
    environ = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    install = [python, *_PIP, "--only-binary", ":all:", "--requirement", lock]
    for command in ([sys.executable, "-I", "-m", "venv", environment], install):
        # they hold the lock as well: after a kill -9 of this process the next start waits for pip's end
        done = subprocess.run(
            list(map(str, command)), env={**environ, "PIP_USER": "0"}, stdin=subprocess.DEVNULL, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", pass_fds=[held],
        )  # fmt: skip
        if done.returncode:
            shutil.rmtree(environment, ignore_errors=True)
            output = "\n".join(done.stdout.splitlines()[-8:])
            raise ProviderError(
                f"the environment could not be made; the last output was:\n{output}",
                "check that `python3 -m venv` works (Debian: apt-get install python3-venv) and that pip reaches its "
                "index (pip config list; a company's certificates: PIP_CERT=FILE)",
            )
    (environment / STAMP).touch()


def open_streams() -> None:
    """Give this process the standard streams that it was started without (``<&-``, ``>&-``), leading nowhere.

    Otherwise the next file that is opened becomes standard output, and build scripts write into it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        with suppress(OSError):
            os.fstat(number)
            continue
        os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
        os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


if __name__ == "__main__":  # prints the Python of an environment, for scripts
    with _explained():
        print(ensure(Path(__file__).resolve().parent.parent.parent, sys.argv[1]))
