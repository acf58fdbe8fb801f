"""A root folder (for example Debian's, made by mmdebstrap) entered with bubblewrap.

bubblewrap starts in milliseconds, without a service or an image. It works as root, and as any user if the kernel
permits user namespaces. A build keeps the user's id, but not root's capabilities: it cannot remount read-only folders
or make device nodes. With bubblewrap 0.8 it cannot make a user namespace either, which would restore all capabilities.
So it can write only to folders mounted writable. This prevents accidents, not attacks on the kernel: system calls are
not filtered.

If the root folder is the machine's own, a build sees the system and installed software: no home folder, no /var, no
other top-level folder. Of /etc it sees only world-readable files, because its user id may own the others.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from groundwork.errors import IsolationError, MegabuildError
from groundwork.user_folders import home_folder
from megabuild.isolation import emulation
from megabuild.isolation.base import Isolation, Mount, ask, last_line, require_version
from megabuild.isolation.emulation import Emulator
from megabuild.isolation.engine import Engine

_OLDEST = "0.4"
#: Seconds in which an emulator starts a program, even on a machine that is busy with compiles.
_EMULATED = 60.0
_MACHINE = Path("/")
_ETC = Path("/etc")
_SYSTEM = re.compile(r"bin|sbin|lib\w*|usr|etc|opt|nix|gnu")
# Created inside; only /sys is the machine's own, because OpenBLAS and PyTorch's cpuinfo read the CPUs there.
_NOT_FROM_ROOT = frozenset({"dev", "proc", "run", "sys", "tmp"})
#: The kernel lets root write these without any capability. core_pattern names a program that it runs outside.
_OF_THE_KERNEL = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")
#: Permissions with which every user can read a folder's files.
_OPEN_FOLDER = stat.S_IROTH | stat.S_IXOTH
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REMEDY = "install bubblewrap (Debian: apt-get install bubblewrap), or choose another engine with --engine"


@dataclass(frozen=True, kw_only=True)
class Bubblewrap(Isolation):
    """Runs commands inside a root folder that they cannot change."""

    root: Path  #: Folder that becomes ``/``, read-only.
    network: bool = True  #: Whether the command may use the network.
    emulator: Emulator | None = None  #: Runs programs of another processor.
    engine: Engine = Engine.BUBBLEWRAP

    def check(self) -> None:
        """Check bubblewrap's version, the root folder, and whether this user may create namespaces."""
        require_version("bubblewrap", _run([_program(), "--version"]).stdout, _OLDEST)
        trial = _run(self._command(["/usr/bin/env"], (), "/", terminal=()))
        if trial.returncode != 0:
            raise IsolationError(
                f"bubblewrap: cannot create a namespace: {last_line(trial.stderr)}",
                "permit user namespaces (sudo sysctl kernel.unprivileged_userns_clone=1, on Ubuntu "
                "kernel.apparmor_restrict_unprivileged_userns=0), run as root, "
                "or choose another engine with --engine",
            )

    def runs(self, platform: str) -> bool:
        """Return whether commands can run the programs of a platform, by the emulator if it answers in time."""
        if self.emulator is None or self.emulator.platform != platform:
            return super().runs(platform)
        loader = self._command([emulation.LOADERS[platform], "--version"], (), "/", terminal=())
        try:
            return _run(loader, seconds=_EMULATED).returncode == 0
        except IsolationError:  # no answer in time: tests would hang as well
            return False

    def command(
        self, argv: Sequence[str], *, mounts: Sequence[Mount], env: Mapping[str, str], cwd: str, name: str
    ) -> list[str]:
        """Return the bwrap command; its processes end with the thread that started it."""
        return self._command(argv, mounts, cwd, terminal=())

    def interactive(
        self, argv: Sequence[str], *, mounts: Sequence[Mount], cwd: str, name: str
    ) -> Sequence[str]:
        """Return lines that run it in a terminal made by script(1); without script, it has none to type into."""
        own = shlex.join(self._command(argv, mounts, cwd, terminal=()))
        on_terminal = f"exec script -qec {shlex.quote(own)} /dev/null"
        without = shlex.join(self._command(argv, mounts, cwd, terminal=("--new-session",)))
        return [f"if [ -t 0 ] && command -v script >/dev/null; then {on_terminal}; fi", f"exec {without}"]

    def _command(
        self, argv: Sequence[str], mounts: Sequence[Mount], cwd: str, terminal: Sequence[str]
    ) -> list[str]:
        program = _program()
        command = [program, "--unshare-pid", *terminal, "--die-with-parent", "--cap-drop", "ALL"]
        command += no_user_namespaces(program)
        before: Sequence[str] = ()
        if self.emulator is not None:  # as the root user of a namespace: back to the caller's
            before = self.emulator.before
            command += ["--unshare-user", "--uid", str(os.getuid()), "--gid", str(os.getgid())]
        if not self.network:
            command.append("--unshare-net")
        command += self._root_options(mounts)
        command += ["--dev", "/dev", "--proc", "/proc", "--ro-bind", "/sys", "/sys"]
        for path in _OF_THE_KERNEL:
            command += ["--ro-bind-try", path, path]
        command += ["--tmpfs", "/run", "--tmpfs", "/tmp"]
        # Shorter targets first: a mount inside another must come after it.
        for mount in sorted(mounts, key=lambda mount: len(PurePosixPath(mount.target).parts)):
            option = "--bind" if mount.writable else "--ro-bind"
            command += [option, str(mount.source.resolve()), mount.target]
        return [*before, *command, "--remount-ro", "/", "--chdir", cwd, "--", *argv]

    def _root_options(self, mounts: Sequence[Mount]) -> list[str]:
        targets = [PurePosixPath(mount.target) for mount in mounts]
        try:
            options = list(_tree(self.root, PurePosixPath("/"), targets))
            if self.root == _MACHINE:
                options += _hidden()
        except OSError as error:
            remedy = f"delete {self.root}: the next build recreates this root folder as this user"
            if self.root == _MACHINE:
                remedy = "make it readable, or choose another engine with --engine"
            path = error.filename or self.root
            raise IsolationError(f"{path}: cannot be read: {error.strerror}", remedy) from error
        return options

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return ``env`` without the caller's environment, with defaults for PATH and HOME."""
        return {"PATH": _DEFAULT_PATH, "HOME": "/tmp", **env}

    def failure(self, returncode: int, *, output: str) -> MegabuildError | None:
        """Recognise a missing program and bwrap's own errors."""
        message = last_line(output)
        if returncode != 1 or not message.startswith("bwrap: "):
            return super().failure(returncode, output=output)
        if message.startswith("bwrap: execvp "):
            return super().failure(127, output=output)
        return IsolationError(f"bubblewrap: refused to start: {message}", _REMEDY)


def _tree(folder: Path, inside: PurePosixPath, targets: Sequence[PurePosixPath]) -> Iterator[str]:
    """Yield options that mount a root folder entry by entry, so that bwrap can create missing mount points.

    One read-only bind of the whole root would be shorter, but bwrap could not create mount points in it.
    """
    for entry in sorted(folder.iterdir()):
        target = inside / entry.name
        is_top = len(target.parts) == 2
        if is_top and entry.name in _NOT_FROM_ROOT:
            continue
        if folder == _MACHINE and not _SYSTEM.fullmatch(entry.name):
            continue
        if entry.is_symlink():
            yield from ("--symlink", str(entry.readlink()), str(target))
        elif entry.is_dir() and _lacks_mount_point(entry, target, targets):
            yield from ("--dir", str(target))
            yield from _tree(entry, target, targets)
        else:
            yield from ("--ro-bind", str(entry.resolve()), str(target))


def _lacks_mount_point(folder: Path, inside: PurePosixPath, targets: Sequence[PurePosixPath]) -> bool:
    """Return whether a mount below ``inside`` has no mount point in the folder that becomes it."""
    below = [target.relative_to(inside) for target in targets if inside in target.parents]
    return any(not (folder / path).exists() for path in below)


def _hidden() -> Iterator[str]:
    """Yield options that hide private files of the machine: secrets below /etc, a home folder in an unusual place."""
    home = (home_folder(os.environ) or _MACHINE).resolve()
    if len(home.parts) > 2 and _SYSTEM.fullmatch(home.parts[1]):
        yield from ("--tmpfs", str(home))
    folders = [_ETC]
    while folders:
        folder = folders.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except FileNotFoundError:  # a program that is being installed may remove it
            continue
        except PermissionError:  # closed in another way than by its mode
            yield from ("--tmpfs", str(folder))
            continue
        for entry in entries:
            with suppress(FileNotFoundError):
                if not entry.is_symlink():
                    yield from _hidden_entry(entry, folders)


def _hidden_entry(entry: os.DirEntry[str], folders: list[Path]) -> Sequence[str]:
    """Return options that hide a private file or folder; another folder is added to those whose entries are hidden."""
    mode = entry.stat().st_mode
    if not stat.S_ISDIR(mode):
        return () if mode & stat.S_IROTH else ("--ro-bind", "/dev/null", entry.path)
    if mode & _OPEN_FOLDER != _OPEN_FOLDER:
        return ("--tmpfs", entry.path)
    folders.append(Path(entry.path))
    return ()


@functools.cache
def no_user_namespaces(program: str) -> tuple[str, ...]:
    """Return bwrap's options that forbid user namespaces inside, or none if bwrap does not support them."""
    options = ("--unshare-user", "--disable-userns")
    trial = _run([program, *options, "--ro-bind", "/", "/", "true"])
    if trial.returncode != 0:
        return ()
    return options


def _program() -> str:
    program = shutil.which("bwrap")
    if program is None:
        raise IsolationError("bubblewrap: not installed", _REMEDY)
    return program


def _run(command: Sequence[str], *, seconds: float = 5.0) -> subprocess.CompletedProcess[str]:
    return ask("bubblewrap", command, _REMEDY, seconds=seconds, env={"PATH": _DEFAULT_PATH})
