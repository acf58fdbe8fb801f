"""An HTTP client with deadlines, retries of transient errors and no secrets in messages; checks servers, too."""

from __future__ import annotations

import io
import math
import os
import re
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import cached_property
from netrc import NetrcParseError
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from groundwork import redact
from groundwork.errors import ProviderError
from groundwork.network import certificates

if TYPE_CHECKING:
    import httpx  # at run time imported late: it takes 0.1 s

_ATTEMPTS = 3
#: Not EAI_AGAIN, which is a name server without an answer. Not every system has EAI_NODATA.
_UNKNOWN_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
_CHANNEL_SECONDS = 5.0
#: Index pages as HTML of the simple API (PEP 691), or of an index that does not name its format.
_PAGES = {"Accept": "application/vnd.pypi.simple.v1+html, text/html;q=0.9"}
#: HTTP statuses that are retried (RFC 9110, RFC 6585).
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
#: HTTP statuses of a server without range requests.
NO_PARTS = frozenset({200, 416, 501})
_REMEDY = "check the network and the proxy settings (HTTPS_PROXY)"
#: Encodings that httpx unpacks without a limit: a block of 64 kB can become gigabytes. Those of gzip are 64 MB at most.
_UNBOUNDED = frozenset({"zstd", "br"})
_ERRNO = re.compile(r"^\[Errno -?\d+\] ")

Result = TypeVar("Result")


class NetworkError(ProviderError):
    """A server does not answer, refuses, or sends a malformed answer; ``status`` is the HTTP status, or 0."""

    def __init__(self, message: str, remedy: str = _REMEDY, status: int = 0) -> None:
        super().__init__(message, remedy)
        self.status = status


class NotFound(NetworkError):
    """The server answers that the page does not exist."""


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Time limits of one request, in seconds."""

    connect: float = 5.0
    read: float = 10.0  #: between two blocks of a body
    total: float = 40.0  #: all attempts together
    pause: float = 1.0  #: at most, before the second attempt; twice as long before the third


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A server's answer: the address after redirects, the decoded body, headers in lower case."""

    url: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Client:
    """An HTTP client; thread-safe.

    `seconds`: limit of all requests together. `timeouts`: limits of each request.
    `trusted`: file with the only trusted certificates; None for the system's and certifi's.
    `proxy`: address of the proxy; empty for the environment's (``HTTPS_PROXY``, ``NO_PROXY``).
    """

    def __init__(
        self,
        *,
        seconds: float = math.inf,
        offline: bool = False,
        timeouts: Timeouts | None = None,
        trusted: Path | None = None,
        proxy: str = "",
    ) -> None:
        self.offline = offline
        self._end = time.monotonic() + seconds
        self._timeouts = timeouts or Timeouts()
        self._trusted = trusted
        self._proxy = proxy

    def remaining(self) -> float:
        """Return the seconds left for all requests, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def get(self, url: str, *, headers: Mapping[str, str] | None = None, limit: int = 64 << 20) -> Answer:
        """Return the answer to a GET request of at most ``limit`` bytes.

        With a ``Range`` header, an answer other than status 206 is refused before its body is read.

        Raises NetworkError: No such page (NotFound), no answer, a refusal, an answer over ``limit``, or ``offline``.
        """
        body = io.BytesIO()
        response = self._fetch(url, headers or {}, body, limit)
        return Answer(url=str(response.url), body=body.getvalue(), headers=response.headers)

    def page(self, url: str) -> Answer:
        """Return a page of a package index; raises the errors of `get`."""
        return self.get(url, headers=_PAGES)

    def save(self, url: str, target: Path, *, limit: int = 16 << 30) -> None:
        """Write the answer to a GET request into a file, incomplete after an error; raises the errors of `get`."""
        with target.open("wb") as stream:
            self._fetch(url, {}, stream, limit)

    def _fetch(self, url: str, headers: Mapping[str, str], into: IO[bytes], limit: int) -> httpx.Response:
        import httpx
        import tenacity

        shown = redact.address(url)
        if self.offline:
            raise NetworkError(f"{shown}: not fetched because of --offline", "run once without --offline")
        seconds = min(self._timeouts.total, self.remaining())
        if seconds <= 0:
            raise NetworkError(f"{shown}: no time left", "pass a longer --timeout SECONDS")
        pause = self._timeouts.pause
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(_ATTEMPTS) | tenacity.stop_before_delay(seconds),
            wait=tenacity.wait_random_exponential(multiplier=pause, max=2 * pause),
            retry=tenacity.retry_if_exception(_passes),
            reraise=True,
        )
        try:
            return run_with_deadline(seconds, lambda: retrying(self._once, url, headers, into, limit))
        except (httpx.TimeoutException, TimeoutError) as error:
            reason = f"no answer in time ({type(error).__name__})"
            raise NetworkError(f"{urlsplit(shown).netloc}: {reason}") from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ValueError) as error:
            reason = redact.text(_ERRNO.sub("", str(error)) or type(error).__name__)
            raise NetworkError(f"{urlsplit(shown).netloc}: {reason}") from error

    def _once(self, url: str, headers: Mapping[str, str], into: IO[bytes], limit: int) -> httpx.Response:
        import httpx

        shown = redact.address(url)
        wanted = 200
        if "Range" in headers:
            wanted = 206
        # as pip does: credentials of the netrc file, unless the address has a user
        auth = httpx.USE_CLIENT_DEFAULT if urlsplit(url).username else _netrc()
        with self._open.stream("GET", url, headers=headers, auth=auth) as response:
            _check(response, shown, wanted)
            _check_encoding(response, shown)
            into.seek(0)
            into.truncate()
            for block in response.iter_bytes():
                if into.tell() + len(block) > limit:
                    raise NetworkError(f"{shown}: longer than {limit} bytes")
                into.write(block)
            return response

    @cached_property
    def _open(self) -> httpx.Client:
        """One connection pool for all requests: certificates, DNS and handshakes take longer than most requests."""
        import httpx

        try:
            trusted = self._trusted and ssl.create_default_context(cafile=str(self._trusted))
        except OSError as error:
            raise NetworkError(
                f"{self._trusted}: unreadable certificates: {error}", "check PIP_CERT"
            ) from error
        opened = httpx.Client(
            timeout=httpx.Timeout(self._timeouts.read, connect=self._timeouts.connect),
            follow_redirects=True,
            max_redirects=8,
            verify=trusted or certificates.trusting_context(),
            proxy=self._proxy or None,
            event_hooks={"response": [_no_downgrade]},
            headers={"User-Agent": "megabuild", "Accept-Encoding": "gzip, deflate"},
        )
        weakref.finalize(self, opened.close)
        return opened


def _passes(error: BaseException) -> bool:
    import httpx

    if isinstance(error, NetworkError):
        return error.status in _TRANSIENT
    if not isinstance(error, httpx.TransportError):
        return False
    return not _is_unknown_name(error) and not certificates.is_untrusted(str(error))


def _is_unknown_name(error: BaseException) -> bool:
    """Return whether a name server answered that there is no such host; one that does not answer may do so later."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return cause.errno in _UNKNOWN_NAME
        cause = cause.__cause__ or cause.__context__
    return False


def _netrc() -> httpx.Auth | None:
    import httpx

    try:
        return httpx.NetRCAuth(os.environ.get("NETRC") or None)
    except (OSError, NetrcParseError, UnicodeDecodeError):  # no netrc file, or an unreadable one
        return None


def _check(response: httpx.Response, shown: str, wanted: int) -> None:
    """Raise an error for a status other than ``wanted``."""
    status = response.status_code
    reason = f"HTTP status {status}"
    if status == wanted:
        return
    if wanted == 206 and status in NO_PARTS:
        raise NetworkError(f"{shown}: the server does not support range requests ({reason})", status=status)
    if status in (404, 410):
        raise NotFound(f"{shown}: not found ({reason})", status=status)
    remedy = _REMEDY
    if status in (401, 403, 407):
        remedy = "check the credentials for this server"
    raise NetworkError(f"{shown}: {reason}", remedy, status)


def _check_encoding(response: httpx.Response, shown: str) -> None:
    """Refuse encodings that the request did not allow, and chains of encodings: they unpack without a limit."""
    named = response.headers.get("content-encoding", "").lower()
    encodings = [word.strip() for word in named.split(",")]
    if len(encodings) > 1 or not _UNBOUNDED.isdisjoint(encodings):
        raise NetworkError(
            f"{shown}: compressed with {', '.join(encodings[:3])}, which the request did not allow"
        )


def _no_downgrade(response: httpx.Response) -> None:
    """Refuse a redirect from https to http; it would send credentials unencrypted."""
    following = response.next_request
    if following is not None and response.url.scheme == "https" and following.url.scheme != "https":
        shown = redact.address(str(response.url))
        raise NetworkError(f"{shown}: redirects from https to {following.url.scheme}")


def why_unreachable(url: str, seconds: float) -> str:
    """Return why an address gives no answer within ``seconds``, or an empty string."""
    if urlsplit(url).scheme not in ("http", "https"):
        return ""
    client = Client(timeouts=Timeouts(read=seconds, total=seconds))
    try:
        client.get(url, headers={"Range": "bytes=0-0"})  # not HEAD, which some servers refuse
    except NetworkError as error:
        if error.status not in NO_PARTS:
            return error.message
    return ""


def channel_url(name: str) -> str:
    """Return a conda channel's address: a URL unchanged, a name below CONDA_CHANNEL_ALIAS or the engine's alias."""
    from rattler import Channel

    if "://" in name:
        return name.rstrip("/")
    alias = os.environ.get("CONDA_CHANNEL_ALIAS", "").strip()
    if alias:
        return f"{alias.rstrip('/')}/{name}"
    # rattler has the public alias, so this file names no host
    return str(Channel(name).base_url).rstrip("/")


def why_channel_unreachable(url: str) -> str:
    """Return why the channel at an address is unreachable, or an empty string."""
    reason = why_unreachable(f"{url}/noarch/repodata.json.zst", _CHANNEL_SECONDS)
    return reason and why_unreachable(f"{url}/noarch/repodata.json", _CHANNEL_SECONDS)


def run_with_deadline(seconds: float, action: Callable[[], Result]) -> Result:
    """Return an action's result or raise its error; raise TimeoutError after ``seconds``.

    For delays that no timeout of a library covers, such as a name server that never answers. After the timeout, the
    action continues in a daemon thread, so it must do no harm by ending late.
    """
    ended: Future[Result] = Future()

    def work() -> None:
        try:
            ended.set_result(action())
        except BaseException as error:
            ended.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    if not wait([ended], min(max(seconds, 0.0), threading.TIMEOUT_MAX)).done:
        raise TimeoutError(f"not finished after {seconds:.0f} s")
    return ended.result()
