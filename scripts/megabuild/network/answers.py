"""What a request can come to: an answer, a part of a file, a failure that may pass, or one that will not."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from netrc import NetrcParseError
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx

from megabuild.errors import AuditError
from megabuild.network import redact

NETWORK = "check the network and its proxy settings, name a local copy, or use what is cached: --offline"
#: Statuses after which the same request may succeed (RFC 9110, RFC 6585).
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class NotFound(AuditError):
    """The server answers and has no such thing."""


class Again(Exception):
    """A failure that may pass.

    Parameters
    ----------
    pause:
        Seconds that the server asks for.
    """

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Time limits of one request, in seconds.

    Parameters
    ----------
    connect:
        For a connection.
    read:
        Of silence.
    total:
        All attempts together.
    pauses:
        Before each attempt; they are stretched at random by up to a half, so that threads do not come back together.
    """

    connect: float = 5.0
    read: float = 10.0
    total: float = 40.0
    pauses: tuple[float, ...] = (0.0, 0.5, 2.0)


@dataclass(frozen=True, kw_only=True)
class Response:
    """An answer.

    Parameters
    ----------
    url:
        Where it came from after redirects; with credentials if the address had some.
    headers:
        With names in lower case.
    body:
        Decoded.
    """

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a file: its bytes, where they begin, and how long the whole file is."""

    data: bytes
    start: int
    total: int


class NoRange(AuditError):
    """The server does not give this part of a file."""


def check(response: httpx.Response, shown: str, expected: frozenset[int]) -> None:
    """Raise what a status means, unless it is an expected one."""
    status = response.status_code
    if status in expected:
        return
    if status in (404, 410):
        raise NotFound(f"{shown}: there is no such page (HTTP status {status})", NETWORK)
    if status in _PASSING:
        raise Again(f"HTTP status {status}", _asked_pause(response))
    if 206 in expected and status in (200, 416, 501):
        raise NoRange(f"{shown}: the server does not give parts of files (HTTP status {status})", NETWORK)
    remedy = "check the credentials of that server" if status in (401, 403, 407) else NETWORK
    raise AuditError(f"{shown}: HTTP status {status}", remedy)


def _asked_pause(response: httpx.Response) -> float:
    asked = response.headers.get("retry-after", "")
    return float(asked) if asked.isdigit() else 0.0


def no_downgrade(response: httpx.Response) -> None:
    """Refuse a redirect that leaves encryption."""
    following = response.next_request
    if following is not None and response.url.scheme == "https" and following.url.scheme != "https":
        shown = redact.address(str(response.url))
        raise AuditError(f"{shown}: it redirects from https to {following.url.scheme}", NETWORK)


def trusted(certificates: Path | None) -> ssl.SSLContext | bool:
    """Return which certificates to trust; True for the client's own choice."""
    if certificates is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(certificates))
    except OSError as error:
        raise AuditError(
            f"no certificates can be read from {certificates}: {error}", "check PIP_CERT"
        ) from error


def netrc() -> httpx.Auth | None:
    """Return the user's netrc file, which pip uses, too, or None where there is none that can be read."""
    try:
        return httpx.NetRCAuth()
    except (OSError, NetrcParseError):
        return None


def reason_of(error: Exception) -> str:
    """Return what went wrong, without secrets."""
    if isinstance(error, httpx.TimeoutException):
        return f"no answer in time ({type(error).__name__})"
    return redact.text(str(error) or type(error).__name__)


def local(url: str, limit: int) -> Response:
    """Return what a ``file:`` address leads to."""
    path = Path(unquote(urlsplit(url).path))
    try:
        with path.open("rb") as stream:
            body = stream.read(limit + 1)
    except FileNotFoundError as error:
        raise NotFound(f"there is no {path}") from error
    except OSError as error:
        raise AuditError(
            f"cannot read {path}: {error.strerror or error}", "check the file and its permissions"
        ) from error
    if len(body) > limit:
        raise AuditError(f"{path}: longer than the {limit} bytes it should have at most")
    return Response(url=url, status=200, headers={}, body=body)
