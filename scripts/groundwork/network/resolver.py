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
#: Passwords come from pip's settings: without a folder for its own ones, uv makes none in the user's home.
_SET = {"UV_HTTP_CONNECT_TIMEOUT": "5", "UV_HTTP_TIMEOUT": "20", "UV_HTTP_RETRIES": "2", "UV_NO_WRAP": "1",
        "UV_CREDENTIALS_DIR": os.devnull}  # fmt: skip
_OPTIONS = ("--quiet", "--color=never", "--no-config", "--no-header", "--format=pylock.toml",
            "--only-binary=:all:", "--index-strategy=unsafe-best-match")  # fmt: skip
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

    @property
    def python(self) -> str:
        """X.Y, with a "t" for free-threaded builds: ``3.12``, ``3.13t``."""
        return ".".join(self.version.split(".")[:2]) + ("t" if self.free_threaded else "")


def marker_environment(version: str) -> dict[str, str]:
    """Return the values of environment markers (PEP 508) for CPython ``3.12.1`` on this machine."""
    values = {key: str(value) for key, value in default_environment().items()}
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
        indexes, links = (
            tuple(address for address in addresses if address not in unreachable)
            for addresses in (where.indexes, where.links)
        )
        try:
            if indexes or links:
                reachable = replace(where, indexes=indexes, links=links)
                return _compile(command, requirements, target, reachable, cache)
        except ProviderError as again:
            message = again.message if indexes else message
        raise UnreachableIndexes(message, list(unreachable.values())) from error


def _command(target: Target, cache: Path | None, *, dependencies: bool) -> list[str]:
    # not uv.find_uv_bin: it sometimes fails if several threads make the first call
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if uv is None:
        raise ProviderError("uv is not installed", "run: pip install uv")
    command = [uv, "pip", "compile", *_OPTIONS, f"--python={target.executable or sys.executable}"]
    command.append(f"--cache-dir={cache}" if cache else "--no-cache")
    if not target.free_threaded:  # uv does not accept the version "3.13t"
        command.append(f"--python-version={target.version}")
    return command if dependencies else [*command, "--no-deps"]


def _compile(
    command: Sequence[str], requirements: Sequence[str], target: Target, where: Configured, cache: Path | None
) -> tuple[File, ...]:
    done = process.run(
        [*command, *([] if where.indexes else ["--no-index"]), "-"],
        timeout=_SECONDS,
        environ=_environment(where),
        stdin="\n".join(requirements),
    )
    if done.returncode:
        raise _error(
            done.stderr.strip() or f"uv ended with exit code {done.returncode}", target.python, cache
        )
    lock = msgspec.toml.decode(done.stdout)  # PEP 751
    return tuple(_best(package["wheels"], target, where) for package in lock.get("packages", ()))


def _environment(where: Configured) -> dict[str, str]:
    """Return uv's environment. It holds the addresses: all users can see credentials in a program's arguments."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("UV_") or name in _KEPT}
    for name in ("PYTHONPATH", "PYTHONHOME", "RUST_LOG"):  # another Python would import this one's modules
        kept.pop(name, None)
    # the first index wins for equal versions; uv asks its default index last
    *others, default = where.indexes or ("",)
    folders = [expanded(link) for link in where.links if "://" not in link]
    pages = [link for link in where.links if "://" in link]
    pages += [folder.as_uri() for folder in folders if folder.is_dir()]
    settings = {
        "UV_INDEX": " ".join(others),
        "UV_DEFAULT_INDEX": default,
        "UV_FIND_LINKS": ",".join(link.replace(",", "%2C") for link in pages),
        "SSL_CERT_FILE": str(where.certificates or ""),
    }
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        settings |= {name: where.proxy, name.lower(): where.proxy}
    return kept | _SET | {name: value for name, value in settings.items() if value}


def _best(offers: Sequence[Mapping[str, Any]], target: Target, where: Configured) -> File:
    """Return the wheel that an installer would take, with its index's credentials, which uv removes."""
    wheels: list[File] = []
    for wheel in offers:
        url = f"{wheel['url']}#sha256={wheel.get('hashes', {}).get('sha256', '')}"
        for address in (*where.indexes, *where.links):
            url = with_user(url, address)
        wheels += filter(None, [linked(url, {})])
    return (best_first(wheels, target.python) or wheels)[0]


def _error(stderr: str, python: str, cache: Path | None) -> MegabuildError:
    """Return uv's error without its hints on options of uv, which users of megabuild cannot set."""
    if cache and "://" not in stderr and (refused := of_text(stderr, str(cache))):
        return refused  # an error of the cache: no locks, space or permission
    text, _, _ = redact.text(stderr).partition("\nhint: ")
    first, *causes = [line.strip().removeprefix("cause: ") for line in text.strip().splitlines()]
    if _NO_SOLUTION in first:
        return NoFittingWheels(f"no wheels fit Python {python}: " + "\n".join(causes), REMEDY)
    reasons = "\n".join([first.removeprefix("error: "), *causes])
    kind = IntegrityError if _WRONG_HASH in reasons else ProviderError
    return kind(f"wheels for Python {python} cannot be resolved: {reasons}", REMEDY)


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
