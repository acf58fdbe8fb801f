"""Conda channels on the network: the address of one by its name, and whether it is reachable."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rattler import Channel

from groundwork.network import client

_SECONDS = 5.0
_INDEXES = ("repodata.json.zst", "repodata.json")


def channel_url(name: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the address of a channel: a URL as it is, a name below CONDA_CHANNEL_ALIAS or the engine's own alias.

    `name`: an entry of `channel_sources`, possibly with a label ("conda-forge/label/x").
    """
    if "://" in name:
        return name.rstrip("/")
    alias = (os.environ if environ is None else environ).get("CONDA_CHANNEL_ALIAS", "").strip()
    # rattler knows the public alias: no host name stands here
    return f"{alias.rstrip('/')}/{name}" if alias else str(Channel(name).base_url).rstrip("/")


def why_unreachable(url: str) -> str:
    """Return why the channel at an address is unreachable (five seconds' timeout); an empty string if it is not."""
    reasons = [""]
    for index in _INDEXES:
        reasons.append(client.why_unreachable(f"{url}/noarch/{index}", _SECONDS))
        if not reasons[-1]:
            break
    return reasons[-1]
