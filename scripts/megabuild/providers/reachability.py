"""Whether a conda channel answers, asked before anything depends on it."""

from __future__ import annotations

import os
from collections.abc import Mapping

import httpx
from rattler import Channel

from megabuild.network.bounded import within

_SECONDS = 5.0
_INDEXES = ("repodata.json.zst", "repodata.json")


def channel_url(name: str, environ: Mapping[str, str] | None = None) -> str:
    """The address of a channel: a URL as it is, a name below CONDA_CHANNEL_ALIAS or the engine's default alias.

    Parameters
    ----------
    name:
        An entry of `channel_sources`, possibly with a label ("conda-forge/label/x").
    environ:
        Environment variables; None for this process's.
    """
    if "://" in name:
        return name.rstrip("/")
    alias = (os.environ if environ is None else environ).get("CONDA_CHANNEL_ALIAS", "").strip()
    return f"{alias.rstrip('/')}/{name}" if alias else _default(name)


def _default(name: str) -> str:
    return str(Channel(name).base_url).rstrip("/")  # rattler knows the public alias: no host name stands here


def why_unreachable(url: str) -> str:
    """Return an empty string if a channel answers within five seconds, else the reason.

    Parameters
    ----------
    url:
        The channel's address, without a platform.
    """
    try:
        return within(_SECONDS, lambda: _ask(url))
    except TimeoutError:
        return f"no answer within {_SECONDS:.0f} seconds"


def _ask(url: str) -> str:
    answer = ""
    try:
        with httpx.Client(timeout=_SECONDS, follow_redirects=True) as client:
            for index in _INDEXES:
                response = client.head(f"{url}/noarch/{index}")
                if response.is_success:
                    return ""
                answer = f"HTTP status {response.status_code}"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return str(error) or type(error).__name__
    return answer
