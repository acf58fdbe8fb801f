"""Whether a conda channel answers, asked before anything depends on it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rattler import Channel

from megabuild.network.client import why_silent

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
    return why_silent([f"{url}/noarch/{index}" for index in _INDEXES], _SECONDS)
