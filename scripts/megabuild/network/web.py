"""Requests over HTTP that end in bounded time, with retries, bounded per host, and with their bytes counted."""

from __future__ import annotations

import random
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from httpx import USE_CLIENT_DEFAULT

from megabuild.errors import AuditError
from megabuild.network import redact
from megabuild.network.answers import (
    NETWORK,
    Again,
    NoRange,
    NotFound,
    Part,
    Patience,
    Response,
    check,
    local,
    netrc,
    no_downgrade,
    reason_of,
    trusted,
)
from megabuild.network.bounded import within

__all__ = ["NotFound", "Part", "Patience", "Response", "Web"]

_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


@dataclass
class _State:
    """What a Web and those split off it have in common."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    silent: dict[str, str] = field(default_factory=dict)  # hosts that do not answer, and how that showed
    netrc: httpx.Auth | None = field(default_factory=netrc)


class Web:
    """Asks servers.

    Parameters
    ----------
    remaining:
        Seconds that are left.
    host:
        Holds a place for a host.
    offline:
        Refuse everything but ``file:``.
    patience:
        Time limits.
    certificates:
        A file of trusted certificates; None for those of the environment (``SSL_CERT_FILE``) or certifi's.
    proxy:
        Its address; empty for what the environment says (``HTTPS_PROXY``, ``NO_PROXY``).
    """

    def __init__(
        self,
        remaining: Callable[[], float],
        host: Callable[[str], AbstractContextManager[None]],
        *,
        offline: bool = False,
        patience: Patience,
        certificates: Path | None = None,
        proxy: str = "",
        parent: Web | None = None,
    ) -> None:
        self._remaining, self._host = remaining, host
        self._offline, self._patience = offline, patience
        self._certificates, self._proxy = certificates, proxy
        self._parent = parent
        self._state: _State = parent._state if parent else _State()
        self._client: httpx.Client | None = None
        self._received = 0

    @property
    def received(self) -> int:
        """Bytes that came over the wire so far, headers included."""
        return self._received

    def separate(self, certificates: Path | None = None, proxy: str = "") -> Web:
        """Return a Web that counts its own bytes, here as well; it may trust other certificates, or use a proxy."""
        return Web(
            self._remaining,
            self._host,
            offline=self._offline,
            patience=self._patience,
            certificates=certificates or self._certificates,
            proxy=proxy or self._proxy,
            parent=self,
        )

    def get(self, url: str, *, headers: Mapping[str, str] | None = None, limit: int = 64 << 20) -> Response:
        """Return the answer to a GET.

        Parameters
        ----------
        url:
            ``https:``, ``http:`` or ``file:``; may hold a user and a password, which are never shown.
        limit:
            Largest body in bytes, decoded.

        Raises
        ------
        NotFound
            The server has no such thing.
        AuditError
            No answer, a refusal, too long an answer, or ``offline``.
        """
        if urlsplit(url).scheme == "file":
            return local(url, limit)
        return self._request(url, dict(headers or {}), limit, frozenset({200}))

    def tail(self, url: str, count: int) -> Part:
        """Return at most the last ``count`` bytes of a file on a server.

        Raises
        ------
        AuditError
            As `get` does; or the server ignores ranges: then nothing of the body is read.
        """
        try:
            return self._part(url, f"bytes=-{count}", count)
        except NoRange:
            # Some servers know only ranges with a beginning, and some answer 416 to more than there is.
            total = self._part(url, "bytes=0-0", 1).total
            start = max(0, total - count)
            return self._part(url, f"bytes={start}-{total - 1}", count)

    def range(self, url: str, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` up to, not including, ``end``.

        Raises
        ------
        AuditError
            As `tail` does.
        """
        part = self._part(url, f"bytes={start}-{end - 1}", end - start)
        if part.start != start or len(part.data) != end - start:
            raise AuditError(
                f"{redact.address(url)}: another part of the file came than was asked for", NETWORK
            )
        return part.data

    def _part(self, url: str, wanted: str, limit: int) -> Part:
        headers = {"Range": wanted, "Accept-Encoding": "identity"}
        response = self._request(url, headers, limit, frozenset({206}))
        match = _RANGE.fullmatch(response.headers.get("content-range", "").strip())
        if match is None or int(match[2]) - int(match[1]) + 1 != len(response.body):
            raise AuditError(f"{redact.address(url)}: the server's answer to a range makes no sense", NETWORK)
        return Part(data=response.body, start=int(match[1]), total=int(match[3]))

    def _request(self, url: str, headers: dict[str, str], limit: int, expected: frozenset[int]) -> Response:
        shown, host = redact.address(url), urlsplit(url).hostname or ""
        if self._offline:
            raise AuditError(f"{shown} is not asked: --offline", "run it once with the network")
        with self._host(host):
            seconds = min(self._patience.total, self._remaining())
            if host in self._state.silent:
                raise AuditError(f"{host} cannot be used: {self._state.silent[host]}", NETWORK)
            if seconds <= 0:
                raise AuditError(f"{shown}: the time was over first", "allow more: --timeout SECONDS")
            end = time.monotonic() + seconds
            try:
                return within(seconds, lambda: self._retried(url, headers, limit, expected, end))
            except TimeoutError as error:
                reason = f"no end after {seconds:.0f} s"
                if seconds >= self._patience.total:
                    self._state.silent[host] = reason
                raise AuditError(f"{shown}: {reason}", NETWORK) from error
            except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ValueError, OSError) as error:
                if isinstance(error, (httpx.ConnectError, httpx.TimeoutException)):
                    # others want something there, too: their rows need not wait for the same silence
                    self._state.silent[host] = reason_of(error)
                raise AuditError(f"{shown}: {reason_of(error)}", NETWORK) from error

    def _retried(
        self, url: str, headers: dict[str, str], limit: int, expected: frozenset[int], end: float
    ) -> Response:
        failure: Exception | None = None
        asked_pause = 0.0
        for pause in self._patience.pauses:
            pause = max(pause * random.uniform(1.0, 1.5), asked_pause)
            if failure is not None and time.monotonic() + pause > end:
                break  # said now rather than after a pause that leads to nothing
            time.sleep(pause)
            try:
                return self._once(url, headers, limit, expected, end)
            except Again as error:
                failure, asked_pause = AuditError(f"{redact.address(url)}: {error}", NETWORK), error.pause
            except httpx.TransportError as error:
                failure, asked_pause = error, 0.0
        assert failure is not None
        raise failure

    def _once(
        self, url: str, headers: dict[str, str], limit: int, expected: frozenset[int], end: float
    ) -> Response:
        shown = redact.address(url)
        auth = None if urlsplit(url).username else self._state.netrc
        with self._opened().stream("GET", url, headers=headers, auth=auth or USE_CLIENT_DEFAULT) as response:
            self._count(sum(len(name) + len(value) + 4 for name, value in response.headers.raw))
            check(response, shown, expected)
            body, counted = bytearray(), 0
            for block in response.iter_bytes():
                self._count(response.num_bytes_downloaded - counted)
                counted = response.num_bytes_downloaded
                body += block
                if len(body) > limit:
                    raise AuditError(
                        f"{shown}: longer than the {limit} bytes it should have at most", NETWORK
                    )
                if time.monotonic() > end:
                    raise AuditError(f"{shown}: the answer comes too slowly", NETWORK)
            return Response(
                url=str(response.url),
                status=response.status_code,
                headers={name.lower(): value for name, value in response.headers.items()},
                body=bytes(body),
            )

    def _opened(self) -> httpx.Client:
        with self._state.lock:
            if self._client is None:
                self._client = httpx.Client(
                    timeout=httpx.Timeout(self._patience.read, connect=self._patience.connect),
                    follow_redirects=True,
                    max_redirects=8,
                    verify=trusted(self._certificates),
                    proxy=self._proxy or None,
                    event_hooks={"response": [no_downgrade]},
                    headers={"User-Agent": "megabuild"},
                )
                weakref.finalize(self, self._client.close)
            return self._client

    def _count(self, count: int) -> None:
        with self._state.lock:
            web: Web | None = self
            while web is not None:
                web._received += count
                web = web._parent
