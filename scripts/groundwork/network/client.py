"""The HTTP client: deadlines, retries of transient errors, no secrets in messages; and whether a server answers."""

from __future__ import annotations

import io
import math
import os
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Mapping
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
    import httpx  # at run time not before something is fetched: it takes a tenth of a second

_ATTEMPTS = 3
_CHANNEL_SECONDS = 5.0
#: Statuses that are worth a retry (RFC 9110, RFC 6585).
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
#: Of a server that does not give parts of files.
NO_PARTS = frozenset({200, 416, 501})
_REMEDY = "check the network and its proxy settings"

Result = TypeVar("Result")


class NetworkError(ProviderError):
    """A server does not answer, refuses, or answers nonsense; ``status`` is that of HTTP, or 0 without an answer."""

    def __init__(self, message: str, remedy: str = _REMEDY, status: int = 0) -> None:
        super().__init__(message, remedy)
        self.status = status


class NotFound(NetworkError):
    """The server answers and has no such thing."""


class _TransientError(Exception):
    """A failure worth a retry."""


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Time limits of one request, in seconds."""

    connect: float = 5.0
    read: float = 10.0  #: between two blocks
    total: float = 40.0  #: all attempts together
    pause: float = 1.0  #: before the second attempt, at most; the third may wait twice as long


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a server sent: its body decoded, headers in lower case, the address it came from after redirects."""

    url: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


class Client:
    """An HTTP client; thread-safe.

    `seconds`, `timeouts`: the limits of all requests together, and of each.
    `trusted`: a file of certificates, the only ones that are trusted; None for the system's and certifi's.
    `proxy`: its address; empty for that of the environment (``HTTPS_PROXY``, ``NO_PROXY``).
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
        self._trusted, self._proxy = trusted, proxy

    def remaining(self) -> float:
        """Return the seconds that are left, never below 0."""
        return max(0.0, self._end - time.monotonic())

    def get(self, url: str, *, headers: Mapping[str, str] | None = None, limit: int = 64 << 20) -> Answer:
        """Return the answer to a GET; user and password in the address are never shown.

        With a ``Range`` among the headers, all but a part is refused before anything of it is read.

        Raises NetworkError: No such thing (NotFound), no answer, a refusal, too long an answer, or ``offline``.
        """
        body = io.BytesIO()
        response = self._fetch(url, headers or {}, body, limit)
        return Answer(url=str(response.url), body=body.getvalue(), headers=response.headers)

    def save(self, url: str, target: Path, *, limit: int = 16 << 30) -> None:
        """Write the answer to a GET into a file, which is left half-written when that fails; raises as `get` does."""
        with target.open("wb") as stream:
            self._fetch(url, {}, stream, limit)

    def _fetch(self, url: str, headers: Mapping[str, str], into: IO[bytes], limit: int) -> httpx.Response:
        import httpx
        import tenacity

        shown = redact.address(url)
        if self.offline:
            raise NetworkError(f"{shown} is not fetched: --offline", "run it once with the network")
        seconds = min(self._timeouts.total, self.remaining())
        if seconds <= 0:
            raise NetworkError(f"{shown}: no time left", "allow more: --timeout SECONDS")
        pause = self._timeouts.pause
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(_ATTEMPTS) | tenacity.stop_before_delay(seconds),
            wait=tenacity.wait_random_exponential(multiplier=pause, max=2 * pause),
            retry=tenacity.retry_if_exception(_passes),
            reraise=True,
        )
        try:
            return run_with_deadline(seconds, lambda: retrying(self._once, url, headers, into, limit))
        except _TransientError as error:
            raise NetworkError(f"{shown} cannot be used: {error}") from error
        except (httpx.TimeoutException, TimeoutError) as error:
            reason = f"no answer in time ({type(error).__name__})"
            raise NetworkError(f"{urlsplit(shown).netloc} cannot be used: {reason}") from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ValueError) as error:
            reason = redact.text(str(error) or type(error).__name__)
            raise NetworkError(f"{urlsplit(shown).netloc} cannot be used: {reason}") from error

    def _once(self, url: str, headers: Mapping[str, str], into: IO[bytes], limit: int) -> httpx.Response:
        import httpx

        shown = redact.address(url)
        # as pip does: the user's netrc file, unless the address has a user itself
        auth = httpx.USE_CLIENT_DEFAULT if urlsplit(url).username else _netrc()
        with self._open.stream("GET", url, headers=headers, auth=auth) as response:
            _check(response, shown, 206 if "Range" in headers else 200)
            into.seek(0)
            into.truncate()
            for block in response.iter_bytes():
                if into.tell() + len(block) > limit:
                    raise NetworkError(f"{shown}: longer than the {limit} bytes it should have at most")
                into.write(block)
            return response

    @cached_property
    def _open(self) -> httpx.Client:
        """One for all requests: loading certificates, a look-up and a handshake take longer than most requests."""
        import httpx

        try:
            trusted = self._trusted and ssl.create_default_context(cafile=str(self._trusted))
        except OSError as error:
            reason = f"no certificates can be read from {self._trusted}: {error}"
            raise NetworkError(reason, "check PIP_CERT") from error
        opened = httpx.Client(
            timeout=httpx.Timeout(self._timeouts.read, connect=self._timeouts.connect),
            follow_redirects=True,
            max_redirects=8,
            verify=trusted or certificates.trusting_context(),
            proxy=self._proxy or None,
            event_hooks={"response": [_no_downgrade]},
            headers={"User-Agent": "megabuild"},
        )
        weakref.finalize(self, opened.close)
        return opened


def _passes(error: BaseException) -> bool:
    import httpx

    passing = isinstance(error, (_TransientError, httpx.TransportError))
    return passing and not certificates.is_untrusted(str(error))


def _netrc() -> httpx.Auth | None:
    import httpx

    try:
        return httpx.NetRCAuth()
    except (OSError, NetrcParseError):  # there is none that can be read
        return None


def _check(response: httpx.Response, shown: str, wanted: int) -> None:
    """Raise the error for a status other than the wanted one."""
    status = response.status_code
    reason = f"HTTP status {status}"
    if status == wanted:
        return
    if wanted == 206 and status in NO_PARTS:
        raise NetworkError(f"{shown}: the server does not give parts of files ({reason})", status=status)
    if status in _TRANSIENT:
        raise _TransientError(reason)
    if status in (404, 410):
        raise NotFound(f"{shown}: there is no such page ({reason})", status=status)
    remedy = "check the credentials of that server" if status in (401, 403, 407) else _REMEDY
    raise NetworkError(f"{shown} cannot be used: {reason}", remedy, status)


def _no_downgrade(response: httpx.Response) -> None:
    """Refuse a redirect that leaves encryption; credentials would follow it."""
    following = response.next_request
    if following is not None and response.url.scheme == "https" and following.url.scheme != "https":
        shown = redact.address(str(response.url))
        raise NetworkError(f"{shown}: it redirects from https to {following.url.scheme}")


def why_unreachable(url: str, seconds: float) -> str:
    """Return why nothing can be had from an address within some seconds, or an empty string."""
    try:
        if urlsplit(url).scheme in ("http", "https"):  # some servers refuse HEAD
            Client(timeouts=Timeouts(read=seconds, total=seconds)).get(url, headers={"Range": "bytes=0-0"})
    except NetworkError as error:
        return "" if error.status in NO_PARTS else error.message
    return ""


def channel_url(name: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the address of a conda channel: a URL as it is, a name below CONDA_CHANNEL_ALIAS or the engine's alias."""
    from rattler import Channel

    if "://" in name:
        return name.rstrip("/")
    alias = (os.environ if environ is None else environ).get("CONDA_CHANNEL_ALIAS", "").strip()
    # rattler knows the public alias: no host name stands here
    return f"{alias.rstrip('/')}/{name}" if alias else str(Channel(name).base_url).rstrip("/")


def why_channel_unreachable(url: str) -> str:
    """Return why the channel at an address is unreachable, or an empty string."""
    reason = why_unreachable(f"{url}/noarch/repodata.json.zst", _CHANNEL_SECONDS)
    return reason and why_unreachable(f"{url}/noarch/repodata.json", _CHANNEL_SECONDS)


def run_with_deadline(seconds: float, action: Callable[[], Result]) -> Result:
    """Return what an action returns, or raise what it raises; TimeoutError after some seconds.

    For what no timeout of a library covers, such as a name server that never answers. An action that has timed out goes
    on in a daemon thread, so it must do no harm by ending late.
    """
    answers: list[Result] = []
    problems: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(action())
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(min(max(seconds, 0.0), threading.TIMEOUT_MAX))
    if problems:
        raise problems[0]
    if not answers:
        raise TimeoutError(f"no end after {seconds:.0f} s")
    return answers[0]
