"""Keeps credentials of conda channels apart from their addresses.

rattler and rattler-build write an address with its credentials into environments, caches and packages. So they get an
address without them, and the credentials as a file in memory.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from netrc import NetrcParseError, netrc
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from groundwork import redact
from groundwork.channel import Channel
from groundwork.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from rattler import Client  # at run time imported late: not every installation has it

#: rattler's variable: the file with credentials by host, in place of its keychain and of ~/.netrc.
_FILE = "RATTLER_AUTH_FILE"
#: The folder of conda's tokens: ``https://host/t/TOKEN/channel``.
_TOKEN = re.compile(r"(?P<folder>.*?)/t/(?P<token>[^/]+)(?P<rest>/.+)$")


@dataclass(frozen=True, kw_only=True)
class Login:
    """The credentials of one channel, or of all channels below an address."""

    address: str  #: without credentials
    host: str  #: without the port, as rattler looks credentials up
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)  #: conda's token in the path
    token_folder: str = ""  #: path above the folder ``t`` of the token

    @property
    def with_token(self) -> str:
        """The address with its token, if it has one."""
        parts = urlsplit(self.address)
        path = parts.path
        if self.token:
            path = f"{self.token_folder}/t/{self.token}{path.removeprefix(self.token_folder)}"
        return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


@dataclass(frozen=True, kw_only=True)
class Channels:
    """Channels by priority, without credentials, and the credentials that their addresses had."""

    by_priority: tuple[Channel, ...]
    logins: tuple[Login, ...] = ()


def separate_logins(given: Iterable[Channel]) -> Channels:
    """Separate channels' addresses from their credentials.

    Raises UsageError: An address has a query or fragment, which rattler ignores.
    """
    channels: list[Channel] = []
    logins: list[Login] = []
    for channel in given:
        if channel.folder is not None:
            channels.append(channel)
            continue
        login = _login_of(channel.address)
        channels.append(replace(channel, address=login.address))
        if login.user or login.token:
            logins.append(login)
    return Channels(by_priority=tuple(channels), logins=tuple(logins))


def _login_of(url: str) -> Login:
    """Return an address without credentials, and its credentials if it has some."""
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise UsageError(
            f"{redact.address(url)}: a channel's address has no ? and no #",
            "pass a token as https://HOST/t/TOKEN/CHANNEL, a password as https://USER:PASSWORD@HOST/CHANNEL",
        )
    host = parts.netloc.rpartition("@")[2]
    path = parts.path
    token = ""
    folder = ""
    found = _TOKEN.match(path)
    if found and parts.scheme in ("http", "https"):
        path = found["folder"] + found["rest"]
        token = found["token"]
        folder = found["folder"]
    return Login(
        address=urlunsplit((parts.scheme, host, path, "", "")),
        host=parts.hostname or "",
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        token=token,
        token_folder=folder,
    )


def logins_of_alias(environ: Mapping[str, str]) -> tuple[Login, ...]:
    """Return the credentials in ``CONDA_CHANNEL_ALIAS``, if there are some."""
    alias = environ.get("CONDA_CHANNEL_ALIAS", "").strip().rstrip("/")
    if "://" not in alias:
        return ()
    channels = separate_logins([Channel.parse(f"{alias}/channel")])
    return tuple(replace(login, address=login.address.removesuffix("/channel")) for login in channels.logins)


def rattler_client(channels: Channels) -> Client:
    """Return rattler's client with the channels' credentials, and those of rattler's keychain and of ~/.netrc.

    Raises ConfigError: As :func:`credentials_file`.
    """
    from rattler import Client
    from rattler.networking import AuthenticationMiddleware, MirrorMiddleware

    middlewares: list[Any] = []  # of several classes without a common base
    # a token is in a mirror's address, also where rattler's file has no place for it
    if mirrors := {f"{login.address}/": [f"{login.with_token}/"] for login in channels.logins if login.token}:
        middlewares.append(MirrorMiddleware(mirrors))
    middlewares.append(AuthenticationMiddleware())
    content = credentials_file(channels, os.environ, tokens=False)
    if not content and not mirrors:
        return _client_without_logins(frozenset(os.environ.items()))
    if not content:
        return Client(middlewares)
    with _file_in_memory(content) as path, _replaced_variable(_FILE, path):
        return Client(middlewares)  # reads the file now


@functools.lru_cache(maxsize=4)
def _client_without_logins(environ: frozenset[tuple[str, str]]) -> Client:
    """Return rattler's client with its own defaults, which reads all certificates: as long as a small solve.

    ``environ``, this process's variables, is only the cache key.
    """
    from rattler import Client
    from rattler.networking import AuthenticationMiddleware

    return Client([AuthenticationMiddleware()])


def credentials_file(channels: Channels, environ: Mapping[str, str], *, tokens: bool = True) -> str:
    """Return the content of rattler's file with credentials; empty if its own defaults are enough.

    It has those of the addresses, of the user's file (``RATTLER_AUTH_FILE``) and of ``NETRC`` or ~/.netrc.

    Raises ConfigError: Two channels of a host have different credentials, a token is below a folder, or the user's
        file is unreadable.
    """
    entries = _of_addresses(channels, tokens=tokens)
    own = _read_own_file(environ)
    for channel in channels.by_priority:
        # of a kept channel, the packages are at its address
        host = urlsplit(channel.address).hostname
        if not host or host in own:
            continue
        found = _find_in_netrc(host, environ)
        if found is not None:
            entries.setdefault(host, found)
    if not entries:
        return ""
    return json.dumps({**own, **entries})


def _of_addresses(channels: Channels, *, tokens: bool) -> dict[str, object]:
    """Return rattler's entries for the credentials that addresses had; raises ConfigError."""
    entries: dict[str, object] = {}
    for login in channels.logins:
        if login.token and not login.user and not tokens:
            continue
        entry = _entry(login)
        if entries.setdefault(login.host, entry) != entry:
            raise ConfigError(
                f"{login.host}: its channels have different users, passwords or tokens",
                "use the same credentials for all channels of a host",
            )
    return entries


def _entry(login: Login) -> Mapping[str, object]:
    """Return an entry of rattler's file.

    Raises ConfigError: rattler has no entry for such a token.
    """
    if login.user:
        return _basic(login.user, login.password)
    if login.token_folder:
        raise ConfigError(
            f"{login.address}: rattler-build reads no token below the folder {login.token_folder}",
            "pass a user and password for this host: https://USER:PASSWORD@HOST/CHANNEL, or in ~/.netrc",
        )
    return {"CondaToken": login.token}


def _basic(user: str, password: str | None) -> Mapping[str, object]:
    return {"BasicHTTP": {"username": user, "password": password}}


def _find_in_netrc(host: str, environ: Mapping[str, str]) -> Mapping[str, object] | None:
    try:
        found = netrc(environ.get("NETRC") or None).authenticators(host)
    except (
        OSError,
        NetrcParseError,
        UnicodeDecodeError,
    ):  # as for indexes: no netrc file, or an unreadable one
        return None
    if found is None:
        return None
    user, _, password = found
    return _basic(user, password)


def _read_own_file(environ: Mapping[str, str]) -> Mapping[str, object]:
    """Return the user's entries; raises ConfigError if the file is unreadable."""
    path = environ.get(_FILE, "")
    if not path:
        return {}
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise _unusable(path, str(error)) from error
    if not isinstance(entries, dict):
        raise _unusable(path, "not an object of hosts")
    return entries


def _unusable(path: str, reason: str) -> ConfigError:
    return ConfigError(f"{path}: not a file with credentials: {reason}", f"correct or unset {_FILE}")


@contextmanager
def _file_in_memory(content: str) -> Iterator[str]:
    """Yield the path of a file that no folder has."""
    descriptor = os.memfd_create("logins")
    try:
        os.write(descriptor, content.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


@contextmanager
def _replaced_variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable, then restore it."""
    former = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if former is not None:
            os.environ[name] = former
