"""Addresses that cannot be taken apart are mistakes with a sentence and an exit code, wherever a user writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from groundwork import redact
from groundwork.address import is_on_server, is_readable
from groundwork.channel import Channel
from groundwork.errors import UsageError
from groundwork.network.client import Answer, NetworkError
from groundwork.network.index import listed
from megabuild import upload
from megabuild.store.server import STORE, named_store
from pyg_extensions import sources
from pyg_extensions.pyg_index import PygIndex

BAD = (
    "https://[host/x",
    "https://host:port/x",
    "https://ann:hunter2@host:port/x",
    "https://ann:hunter2@[host/x",
)


@pytest.mark.parametrize(
    ("address", "readable"),
    [
        *((address, False) for address in BAD),
        ("https://[::1]:8080/x", True),
        ("https://host:8080/x", True),
        ("s3://bucket/x", True),
        ("file:///folder", True),
    ],
)
def test_brackets_and_ports_are_checked(address: str, readable: bool) -> None:
    assert is_readable(address) == readable


def test_a_server_has_a_scheme_and_a_host() -> None:
    assert is_on_server("https://host/x", ("https",))
    assert not is_on_server("http://host/x", ("https",))
    assert not is_on_server("https:///x", ("https",))
    assert not any(is_on_server(address, ("https",)) for address in BAD)


def find_extensions(address: str) -> object:
    return sources.find((), {}, address, Path())


def find_store(address: str) -> object:
    return named_store({STORE: address})


@pytest.mark.parametrize("address", BAD)
@pytest.mark.parametrize(
    "use",
    [find_store, Channel.parse, upload._check_server, PygIndex, find_extensions],
    ids=["store", "channel", "upload", "wheels", "sources"],
)
def test_a_mistake_is_named_without_its_password(use: Callable[[str], object], address: str) -> None:
    with pytest.raises(UsageError) as wrong:
        use(address)
    assert "address" in wrong.value.message
    assert "hunter2" not in f"{wrong.value.message} {wrong.value.remedy}"


@pytest.mark.parametrize("address", BAD)
def test_an_index_at_such_an_address_does_not_answer(address: str) -> None:
    def fetch(url: str) -> Answer:
        raise AssertionError(url)

    with pytest.raises(NetworkError, match=r"host\S* ?not an address") as wrong:
        listed(address, fetch)
    assert "hunter2" not in wrong.value.message


@pytest.mark.parametrize("address", BAD)
def test_such_an_address_can_be_shown(address: str) -> None:
    assert "host" in redact.address(address)
    assert "hunter2" not in redact.address(address)
