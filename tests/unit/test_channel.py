"""A channel's folder, whatever the spelling of its address."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundwork.channel import Channel
from groundwork.network.channel_logins import separate_logins
from megabuild.providers.environment import Environment


@pytest.mark.parametrize(
    ("address", "folder", "url"),
    [
        ("/my channel", Path("/my channel"), "file:///my%20channel"),
        ("file:///my%20channel", Path("/my channel"), "file:///my%20channel"),
        ("https://host.example/x", None, "https://host.example/x"),
    ],
)
def test_an_address_names_a_folder_or_a_server(address: str, folder: Path | None, url: str) -> None:
    channel = Channel.parse(address)
    assert (channel.address, channel.folder, channel.url) == (address, folder, url)
    assert not channel.this_machine


def test_packages_of_a_folder_for_this_machine_are_of_its_compilers(tmp_path: Path) -> None:
    """Of another system's libraries and compilers, whether from its own files or from a root's."""
    for channels, local in (
        ((Channel.of_folder(tmp_path, this_machine=True), Channel.parse("https://host.example/x")), True),
        ((Channel.of_folder(tmp_path),), False),
        ((), False),
    ):
        assert Environment(channels=channels, pythons=()).local is local


def test_only_a_servers_address_has_credentials(tmp_path: Path) -> None:
    here = Channel.of_folder(tmp_path / "a@b?c#d", this_machine=True)
    there = Channel.parse("https://user:secret@host.example/x")
    channels = separate_logins([here, there])
    assert channels.by_priority == (here, Channel.parse("https://host.example/x"))
    assert [login.user for login in channels.logins] == ["user"]
