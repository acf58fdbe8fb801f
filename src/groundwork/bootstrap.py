"""Makes the private environment from a hashed lock on first use, and enters it. Standard library only.

It is ``.venv/<use>-<python>-<first digits of the key>``. A changed lock gets a new environment, so that a build of
hours keeps its own, and machines that share a checkout have one each. An environment is entered only if it has the
file ``complete``, which is written last.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from groundwork import pip_output, pip_settings
from groundwork.build_path import check_build_path
from groundwork.debian_packages import install_command
from groundwork.errors import (
    IntegrityError,
    MegabuildError,
    OutOfSpaceError,
    PreflightError,
    ProviderError,
    of_system,
    of_text,
)
from groundwork.folding import folded
from groundwork.keys import Key

_LOCKS = {"run": "requirements.lock", "dev": "requirements-dev.lock"}
#: Minor version of the newest Python 3 for which scripts/update-locks finds wheels of all packages.
_NEWEST = 14
STAMP = "complete"
#: Modules that Python's build leaves out if a library is missing, with the library's package in Debian.
_OPTIONAL_MODULES = {"ctypes": "libffi-dev", "ssl": "libssl-dev", "zlib": "zlib1g-dev"}
#: Without byte code: pip would compile all modules, Python compiles those that are imported.
_INSTALL = (
    "install", "-q", "--disable-pip-version-check", "--require-hashes", "--no-compile", "--no-deps", "--only-binary",
    ":all:", "--requirement",
)  # fmt: skip
#: The folder of ``cuda_code``, which belongs to recipes: their packages' tests have copies.
_RECIPE_PACKAGES = os.path.join("recipe", "pyg", "common")
#: The remedy for a module of the environment that cannot be imported.
_DELETE = f"delete the private environment and start again: rm -r {shlex.quote(sys.prefix)}"


@dataclass(frozen=True, kw_only=True)
class VirtualEnvironment(Key):
    """Everything that the environment's packages depend on."""

    use: str
    version: str  #: ``cpython-3.12``
    abi: str  #: system, machine, and ``t`` for a free-threaded Python
    lock: str  #: sha256


def run_inside(root: str, program: str, module: str) -> None:
    """Call ``main()`` of a module in the private environment; outside it, restart the program there first.

    `program`: the file that Python was started with.
    """
    open_streams()
    with _explained():
        check_python()
        if not os.path.lexists(os.path.join(root, ".venv")):
            _check_place(root, module)
        python = ensure(Path(root), "run")
        if not os.path.samefile(sys.prefix, python.parent.parent):
            os.execv(python, [str(python), "-I", program, *sys.argv[1:]])
        sys.path.append(os.path.join(root, _RECIPE_PACKAGES))
        try:
            main = importlib.import_module(module).main
        except Exception as error:  # a damaged module can raise any exception
            reason = f"{module} cannot be imported: {type(error).__name__}: {error}"
            raise IntegrityError(reason, _DELETE) from error
    main()


def _check_place(root: str, module: str) -> None:
    """Raise PreflightError if a build would refuse the path of its output folder later.

    Options that name another folder, or only print a text, are left to the command.
    """
    words = sys.argv[1:]
    is_build = module == "command_line.build" or words[:1] == ["build"]
    left = any(word.startswith(("-o", "--output", "-h", "--help", "--version")) for word in words)
    if is_build and not left:
        check_build_path(os.path.join(root, "output"))


def check_python() -> None:
    """Raise PreflightError if this Python was built without a module that pip or megabuild needs."""
    for module, library in _OPTIONAL_MODULES.items():
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise PreflightError(
                f"{sys.executable}: this Python has no module {module} ({error})",
                f"use another Python, or build this one again with {library} installed",
            ) from error


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except MegabuildError as error:
        _exit_with(error)
    except OSError as error:
        failure = of_system(error)
        if failure is None:
            raise
        _exit_with(failure)
    except KeyboardInterrupt:
        sys.stderr.write("\nerror: interrupted by Ctrl-C\nhint: run the same command again\n")
        sys.exit(130)


def _exit_with(error: MegabuildError) -> NoReturn:
    """Print an error as command_line.run_command does, which needs the environment."""
    text = f"error: {error.message}\n"
    if error.remedy:
        text += f"hint: {error.remedy}\n"
    sys.stderr.write(folded(text, sys.stderr))
    sys.exit(error.exit_code)


def virtual_environment(lock: Path, use: str) -> VirtualEnvironment:
    """Return the key of this Python's environment. Raises IntegrityError: The lock cannot be read."""
    try:
        digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    except OSError as error:
        raise IntegrityError(f"{lock}: {error.strerror}", f"run: git checkout -- {lock.name}") from error
    return VirtualEnvironment(
        use=use,
        version=f"{sys.implementation.name}-{sys.version_info[0]}.{sys.version_info[1]}",
        abi=f"{sys.platform} {os.uname().machine} {getattr(sys, 'abiflags', '')}",
        lock=digest,
    )


def ensure(root: Path, use: str) -> Path:
    """Return the Python of the environment; make the environment first if it is missing or incomplete.

    `use`: ``run``, or ``dev`` for an environment with test tools.
    """
    lock = root / _LOCKS[use]
    key = virtual_environment(lock, use)
    environment = _folder(root, f"{use}-{key.version}-{key.digest[:12]}")
    python = environment / "bin" / "python"
    stamp = environment / STAMP
    if stamp.exists() and python.exists():  # a broken link if its base Python was removed
        return python
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write("waiting for another start, which is setting up .venv\n")
            with _seconds_shown():
                fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            pass
        if not (stamp.exists() and python.exists()):
            _make(environment, lock, file.fileno())
    return python


def _folder(root: Path, name: str) -> Path:
    """Return an environment's folder. Raises PreflightError if it belongs to a user who is not trusted.

    Trusted are this user, root and the owner of the checkout.
    """
    venv = root / ".venv"
    trusted = {os.getuid(), 0, root.stat().st_uid}
    if os.path.lexists(venv) and not venv.is_dir():
        raise PreflightError(f"{venv}: not a folder", f"run: rm {shlex.quote(str(venv))}")
    for folder in (venv, venv / name):
        if os.path.lexists(folder) and (owner := folder.stat().st_uid) not in trusted:
            raise PreflightError(
                f"{folder} belongs to another user (id {owner})",
                "clone the repository, and use your own clone",
            )
    return venv / name


def _make(environment: Path, lock: Path, held: int) -> None:
    sys.stderr.write(f"setting up an environment (once, about a minute):\n  {environment.parent}\n")
    shutil.rmtree(environment, ignore_errors=True)
    try:
        environment.parent.mkdir(exist_ok=True)
        (environment.parent / ".gitignore").write_text("*\n")
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES):
            raise
        raise PreflightError(
            f"{environment.parent}: {error.strerror}, but the private environment is in the checkout",
            "clone the repository to a folder of yours, or let its owner start it once",
        ) from error
    try:
        _fill(environment, lock, held)
    except MegabuildError:
        shutil.rmtree(environment, ignore_errors=True)
        raise
    (environment / STAMP).touch()


def _fill(environment: Path, lock: Path, held: int) -> None:
    """Make a virtual environment and install the lock into it; raises ProviderError."""
    failed = f"{environment.parent}: cannot set up the private environment:"
    wheel = _bundled_pip()
    options = ["--without-pip"] if wheel else []
    made = _run([sys.executable, "-I", "-m", "venv", *options, str(environment)], held, os.environ)
    if made.returncode:
        _refuse_full_disk(environment, made.stdout)
        last = "\n".join(made.stdout.splitlines()[-8:])
        remedy = f"install venv; in Debian, run: {install_command('python3-venv')}"
        raise ProviderError(f"{failed}\n{last}", remedy)
    if wheel:
        _unpack(wheel, environment)
    pip = (str(environment / "bin" / "python"), "-I", "-m", "pip")
    # neither a user's target nor a user's constraint applies: the environment and the lock are megabuild's own
    settings = pip_settings.read(pip, os.environ)
    done = _run([*pip, *_INSTALL, str(lock)], held, settings.environ(os.environ))
    if done.returncode == 0:
        return
    _refuse_full_disk(environment, done.stdout)
    remedy = "check the network and pip's index (pip config list; PIP_CERT=FILE for a company's certificates)"
    if sys.version_info.minor > _NEWEST and "Retrying (" not in done.stdout:
        remedy = f"start with Python 3.10 to 3.{_NEWEST}; some packages have no wheels for a newer one yet"
    raise ProviderError(f"{failed} {pip_output.explain(done.stdout)}", remedy)


def _refuse_full_disk(environment: Path, printed: str) -> None:
    """Raise OutOfSpaceError if a program that failed in the environment reports a full disk."""
    for line in printed.splitlines():
        failure = of_text(line, str(environment))
        if isinstance(failure, OutOfSpaceError):
            raise failure


def _bundled_pip() -> Path | None:
    """Return the wheel from which this Python's venv installs pip; None where it has another one, as in Debian's."""
    found = importlib.util.find_spec("ensurepip")
    if found is None or found.origin is None:
        return None
    wheels = sorted(Path(found.origin).with_name("_bundled").glob("pip-*.whl"))
    return wheels[-1] if wheels else None


def _unpack(wheel: Path, environment: Path) -> None:
    """Unpack pip, which installs the lock and is then replaced by the lock's own.

    venv would install and compile all of it: a quarter of the first start's CPU time.
    """
    import zlib  # missing in some Pythons, which check_python refuses first

    (modules,) = environment.glob("lib/*/site-packages")
    try:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(modules)
    except (zipfile.BadZipFile, zlib.error) as error:
        raise PreflightError(
            f"{wheel}: this Python's own pip is damaged ({error})",
            "use another Python, or install this one again",
        ) from error


def _run(command: Sequence[str], held: int, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program that inherits the lock: after a kill -9 of this process, the next start waits for it."""
    with _seconds_shown():
        return subprocess.run(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=[held],
            check=False,
        )


@contextmanager
def _seconds_shown() -> Iterator[None]:
    """Show on a terminal how long a step lasts, in a line that is erased at the end."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    ended = threading.Event()

    def show() -> None:
        seconds = 0
        while not ended.wait(1.0):
            seconds += 1
            sys.stderr.write(f"\r  {seconds} s so far")
            sys.stderr.flush()

    clock = threading.Thread(target=show, daemon=True)
    clock.start()
    try:
        yield
    finally:
        ended.set()
        clock.join()
        sys.stderr.write("\r\x1b[K")


def open_streams() -> None:
    """Connect standard streams that were closed at the start (``<&-``, ``>&-``) to /dev/null.

    Otherwise the next opened file becomes standard output, and build scripts write into it.
    """
    modes = {"stdin": "r", "stdout": "w", "stderr": "w"}
    for number, name in enumerate(modes):
        with suppress(OSError):
            os.fstat(number)
            continue
        os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
        os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, modes[name], closefd=False))


if __name__ == "__main__":  # for shell scripts: prints the path of the environment's Python
    with _explained():
        check_python()
        print(ensure(Path(__file__).resolve().parent.parent.parent, sys.argv[1]))
