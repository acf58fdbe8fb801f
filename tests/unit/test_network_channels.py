"""Addresses of channels, and channels that do not answer."""

from __future__ import annotations

import socket

import pytest

from groundwork.network import client


def test_a_hanging_channel_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_CHANNEL_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections, and never answers
        assert "no answer" in client.why_channel_unreachable(f"http://127.0.0.1:{silent.getsockname()[1]}")


def test_names_are_below_the_alias_and_addresses_unchanged() -> None:
    alias = {"CONDA_CHANNEL_ALIAS": "http://mirror.example/conda/"}
    assert client.channel_url("conda-forge", alias) == "http://mirror.example/conda/conda-forge"
    assert client.channel_url("file:///srv/channel/", alias) == "file:///srv/channel"
