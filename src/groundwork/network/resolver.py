"""Resolves requirements to wheels for one Python with uv, which reads only index pages and metadata."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from groundwork import process, redact
from groundwork.errors import IntegrityError, MegabuildError, ProviderError, of_text
from groundwork.network.client import NetworkError, NotFound, Timeouts
from groundwork.network.index import Configured, File, best_first, linked, listed, with_user
from groundwork.user_folders import expanded

REMEDY = (
    "check the network and pip's configuration (pip config list), or set MEGABUILD_CACHE to a filled cache"
)
_SECONDS = 600.0
#: Short, since a firewall may block the index.
PAGE_TIMEOUTS = Timeouts(connect=4.0, read=20.0, total=20.0)
#: uv's variables for trusted certificates; other variables would change the resolution or the indexes.
_KEPT = ("UV_SYSTEM_CERTS",)
#: Variables by which another Python would import this one's modules, or uv print more.
_REMOVED = ("PYTHONPATH", "PYTHONHOME", "RUST_LOG")
#: Passwords come from pip's settings: without a folder for its own ones, uv makes none in the user's home.
_SET = {"UV_HTTP_CONNECT_TIMEOUT": "5", "UV_HTTP_TIMEOUT": "20", "UV_HTTP_RETRIES": "2", "UV_NO_WRAP": "1",
        "UV_CREDENTIALS_DIR": os.devnull}  # fmt: skip
_OPTIONS = ("--quiet", "--color=never", "--no-config", "--no-header", "--format=pylock.toml",
            "--only-binary=:all:", "--index-strategy=unsafe-best-match")  # fmt: skip
#: Minor versions of glibc 2 that wheels for another machine may need: uv's platforms NAME-unknown-linux-gnu.
_NEWEST_GLIBC = 28
_OLDEST_GLIBC = 17
#: The start of uv's message for requirements without a solution.
_NO_SOLUTION = "No solution found"
_WRONG_HASH = "Hash mismatch"


class NoFittingWheels(ProviderError):
    """The indexes answered, and no wheels fit the requirements."""


class UnreachableIndexes(ProviderError):
    """Indexes or folders of pip's configuration could not be read."""

    def __init__(self, message: str, reasons: Sequence[str]) -> None:
        super().__init__("\n".join([message, *reasons]), REMEDY)
        self.reasons = tuple(reasons)  #: one for each of them


@dataclass(frozen=True, kw_only=True)
class Target:
    """The Python for which wheels are resolved."""

    version: str  #: ``3.12.1``
    executable: Path | None = None  #: None if it is not installed here
    free_threaded: bool = False  #: built without the global interpreter lock
    machine: str = (
        ""  #: the processor of another machine that it is for, ``aarch64``; empty for this machine's
    )

    @property
    def python(self) -> str:
        """X.Y, with a "t" for free-threaded builds: ``3.12``, ``3.13t``."""
        minor = ".".join(self.version.split(".")[:2])
        if self.free_threaded:
            return f"{minor}t"
        return minor

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platform tags of wheels for another machine, the best first; none for this machine."""
        if not self.machine:
            return ()
        newest_first = range(_NEWEST_GLIBC, _OLDEST_GLIBC - 1, -1)
        return (
            *(f"manylinux_2_{minor}_{self.machine}" for minor in newest_first),
            f"manylinux2014_{self.machine}",
            f"linux_{self.machine}",
        )


def marker_environment(version: str, machine: str = "") -> dict[str, str]:
    """Return the values of environment markers (PEP 508) for CPython ``3.12.1``, on this ``machine`` or another one."""
    values = {key: str(value) for key, value in default_environment().items()}
    if machine:
        values["platform_machine"] = machine
    values["python_version"] = ".".join(version.split(".")[:2])
    return values | {"implementation_version": version, "python_full_version": version}


def resolve(
    requirements: Sequence[str],
    target: Target,
    where: Configured,
    *,
    dependencies: bool = True,
    cache: Path | None = None,
) -> tuple[File, ...]:
    """Return the wheels for requirements (``numpy==2.*``) and their dependencies, sorted by name.

    An unreachable index is skipped if there are others. uv caches pages and metadata in ``cache``; None: no cache.
    """
    command = _command(target, cache, dependencies=dependencies)
    try:
        return _compile(command, requirements, target, where, cache)
    except ProviderError as error:
        unreachable = _unreachable(where, canonicalize_name(Requirement(requirements[0]).name))
        if not unreachable:
            raise
        message = f"wheels for Python {target.python} cannot be resolved:"
        indexes = tuple(address for address in where.indexes if address not in unreachable)
        links = tuple(address for address in where.links if address not in unreachable)
        try:
            if indexes or links:
                reachable = replace(where, indexes=indexes, links=links)
                return _compile(command, requirements, target, reachable, cache)
        except ProviderError as again:
            if indexes:
                message = again.message
        raise UnreachableIndexes(message, list(unreachable.values())) from error


def _command(target: Target, cache: Path | None, *, dependencies: bool) -> list[str]:
    # not uv.find_uv_bin: it sometimes fails if several threads make the first call
    own_programs = Path(sys.executable).parent
    uv = shutil.which("uv", path=f"{own_programs}{os.pathsep}{os.environ.get('PATH', '')}")
    if uv is None:
        raise ProviderError("uv is not installed", "run: pip install uv")
    command = [uv, "pip", "compile", *_OPTIONS]
    if target.machine:
        command += [f"--python={sys.executable}", f"--python-platform={target.machine}-unknown-linux-gnu"]
    else:
        command.append(f"--python={target.executable or sys.executable}")
    if cache:
        command.append(f"--cache-dir={cache}")
    else:
        command.append("--no-cache")
    if not target.free_threaded:  # uv does not accept the version "3.13t"
        command.append(f"--python-version={target.version}")
    if not dependencies:
        command.append("--no-deps")
    return command


def _compile(
    command: Sequence[str], requirements: Sequence[str], target: Target, where: Configured, cache: Path | None
) -> tuple[File, ...]:
    argv = [*command]
    if not where.indexes:
        argv.append("--no-index")
    argv.append("-")  # standard input
    done = process.run(argv, timeout=_SECONDS, environ=_environment(where), stdin="\n".join(requirements))
    if done.returncode:
        reason = done.stderr.strip() or f"uv ended with exit code {done.returncode}"
        raise _error(reason, target.python, cache)
    lock = msgspec.toml.decode(done.stdout)  # PEP 751
    return tuple(_best(package["wheels"], target, where) for package in lock.get("packages", ()))


def _environment(where: Configured) -> dict[str, str]:
    """Return uv's environment. It holds the addresses: all users can see credentials in a program's arguments."""
    # the first index wins for equal versions; uv asks its default index last
    *others, default = where.indexes or ("",)
    settings = {
        "UV_INDEX": " ".join(others),
        "UV_DEFAULT_INDEX": default,
        "UV_FIND_LINKS": ",".join(link.replace(",", "%2C") for link in _link_pages(where)),
        "SSL_CERT_FILE": str(where.certificates or ""),
    }
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        settings[name] = where.proxy
        settings[name.lower()] = where.proxy
    variables = _inherited_variables() | _SET
    for name, value in settings.items():
        if value:
            variables[name] = value
    return variables


def _inherited_variables() -> dict[str, str]:
    kept: dict[str, str] = {}
    for name, value in os.environ.items():
        is_of_uv = name.startswith("UV_") and name not in _KEPT
        if not is_of_uv and name not in _REMOVED:
            kept[name] = value
    return kept


def _link_pages(where: Configured) -> list[str]:
    """Return the addresses of the pages and existing folders with links, the pages first."""
    pages: list[str] = []
    folders: list[str] = []
    for link in where.links:
        if "://" in link:
            pages.append(link)
            continue
        folder = expanded(link)
        if folder.is_dir():
            folders.append(folder.as_uri())
    return pages + folders


def _best(offers: Sequence[Mapping[str, Any]], target: Target, where: Configured) -> File:
    """Return the wheel that an installer would take, with its index's credentials, which uv removes."""
    wheels: list[File] = []
    for wheel in offers:
        url = f"{wheel['url']}#sha256={wheel.get('hashes', {}).get('sha256', '')}"
        for address in (*where.indexes, *where.links):
            url = with_user(url, address)
        file = linked(url, {})
        if file is not None:
            wheels.append(file)
    fitting = best_first(wheels, target.python, target.platforms) or wheels
    return fitting[0]


def _error(stderr: str, python: str, cache: Path | None) -> MegabuildError:
    """Return uv's error without its hints on options of uv, which users of megabuild cannot set."""
    if cache and "://" not in stderr and (refused := of_text(stderr, str(cache))):
        return refused  # an error of the cache: no locks, space or permission
    text, _, _ = redact.text(stderr).partition("\nhint: ")
    lines = text.strip().splitlines()
    first, *causes = [line.strip().removeprefix("cause: ") for line in lines]
    if _NO_SOLUTION in first:
        return NoFittingWheels(f"no wheels fit Python {python}: " + "\n".join(causes), REMEDY)
    reasons = "\n".join([first.removeprefix("error: "), *causes])
    message = f"wheels for Python {python} cannot be resolved: {reasons}"
    if _WRONG_HASH in reasons:
        return IntegrityError(message, REMEDY)
    return ProviderError(message, REMEDY)


def _unreachable(where: Configured, project: str) -> dict[str, str]:
    """Return unreachable indexes and link pages, with the reasons."""
    client = where.client(PAGE_TIMEOUTS)
    pages = {index: f"{index}/{project}/" for index in where.indexes}
    reasons: dict[str, str] = {}
    for address in (*where.indexes, *where.links):
        try:
            list(listed(pages.get(address, address), client.page))
        except NetworkError as error:
            if not isinstance(error, NotFound) or address not in pages:
                reasons[address] = error.message
    return reasons
