"""Where a channel is, and whether it answers."""

from __future__ import annotations

import socket

import pytest

from groundwork.network import client


def test_a_channel_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_CHANNEL_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections are taken, and nobody answers
        assert "no answer" in client.why_channel_unreachable(f"http://127.0.0.1:{silent.getsockname()[1]}")


def test_names_are_looked_up_below_the_alias_and_addresses_taken_as_they_are() -> None:
    alias = {"CONDA_CHANNEL_ALIAS": "http://mirror.example/conda/"}
    assert client.channel_url("conda-forge", alias) == "http://mirror.example/conda/conda-forge"
    assert client.channel_url("file:///srv/channel/", alias) == "file:///srv/channel"
