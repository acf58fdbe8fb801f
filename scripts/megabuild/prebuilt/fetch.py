"""Pages and files from ``http(s):`` and ``file:`` addresses: in bounded time, with retries, files by atomic rename."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

import httpx

from megabuild.errors import IntegrityError, ProviderError
from megabuild.network import redact
from megabuild.network.bounded import within

_CONNECT = 5.0
_READ = 20.0
_PAGE = 20.0  # a page, all attempts together
_FILE = 900.0  # a wheel with kernels for many GPUs has some tens of megabytes
_PAUSES = (0.0, 0.5, 2.0)  # before each attempt
_NO_NETWORK = "check the network and its proxy settings, or name a local copy of the index: --index FOLDER"
_LOCAL = "check the folder's permissions and the disk"

Answer = TypeVar("Answer")


class _Again(Exception):
    """A failure that may pass."""


def read_page(address: str) -> str | None:
    """Return a page's text, or None where there is no such page.

    Raises
    ------
    ProviderError
        No answer within 20 seconds, or a refusal.
    """
    if urlsplit(address).scheme == "file":
        try:
            return _local(address).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ProviderError(f"cannot read {_local(address)}: {error.strerror}", _LOCAL) from error
    return _bounded(lambda: _retried(lambda: _ask(address)), _PAGE, address)


def fetch(address: str, target: Path, sha256: str | None) -> Path:
    """Copy a file to ``target``, where it appears complete and with the right hash or not at all.

    Parameters
    ----------
    address:
        ``http:``, ``https:`` or ``file:``.
    target:
        The file to make; its folder may be missing.
    sha256:
        The hash it must have, in hex, or None where none is known.

    Raises
    ------
    ProviderError
        No answer, no such file, or the connection broke three times.
    IntegrityError
        The file has another hash.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise ProviderError(f"cannot write to {target.parent}: {error.strerror}", _LOCAL) from error
    os.close(descriptor)
    partial = Path(name)
    try:
        if urlsplit(address).scheme == "file":
            shutil.copyfile(_local(address), partial)
        else:
            _bounded(lambda: _retried(lambda: _download(address, partial)), _FILE, address)
        found = digest(partial)
        if sha256 is not None and found != sha256:
            raise IntegrityError(
                f"{target.name}: sha256 is {found[:12]}…, the index says {sha256[:12]}…",
                "the index or a proxy in between is at fault",
            )
        partial.chmod(0o644)
        partial.replace(target)
    except OSError as error:
        raise ProviderError(f"cannot copy {redact.address(address)}: {error.strerror or error}", _LOCAL) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
    return target


def digest(path: Path) -> str:
    """Return a file's sha256 in hex."""
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def _local(address: str) -> Path:
    return Path(unquote(urlsplit(address).path))


def _client() -> httpx.Client:
    return httpx.Client(timeout=httpx.Timeout(_READ, connect=_CONNECT), follow_redirects=True)


def _ask(address: str) -> str | None:
    with _client() as client:
        response = client.get(address)
        # A bucket behind a web server that may not be listed answers 403 for what it does not have.
        if response.status_code in (403, 404):
            return None
        _check(response, address)
        return response.text


def _download(address: str, partial: Path) -> None:
    with _client() as client, client.stream("GET", address) as response:
        _check(response, address)
        with partial.open("wb") as stream:
            for block in response.iter_bytes(1 << 20):
                stream.write(block)


def _check(response: httpx.Response, address: str) -> None:
    if response.status_code >= 500 or response.status_code == 429:
        raise _Again(f"HTTP status {response.status_code}")
    if not response.is_success:
        raise ProviderError(f"HTTP status {response.status_code}", _NO_NETWORK)


def _retried(action: Callable[[], Answer]) -> Answer:
    problem = ""
    for pause in _PAUSES:
        time.sleep(pause)
        try:
            return action()
        except _Again as error:
            problem = str(error)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            problem = str(error) or type(error).__name__
    raise ProviderError(problem, _NO_NETWORK)


def _bounded(action: Callable[[], Answer], seconds: float, address: str) -> Answer:
    """Give up after some seconds, and name the host in what went wrong."""
    host = urlsplit(redact.address(address)).netloc
    try:
        return within(seconds, action)
    except TimeoutError as error:
        raise ProviderError(f"{host} cannot be used: {error}", _NO_NETWORK) from error
    except ProviderError as error:
        raise ProviderError(f"{host} cannot be used: {error.message}", error.remedy) from error
