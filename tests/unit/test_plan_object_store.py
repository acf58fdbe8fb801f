"""Where objects are shared, and who may write there."""

from __future__ import annotations

import socket

import pytest

from groundwork.errors import UsageError
from megabuild.plan.object_store import SHARE_OBJECTS, STORE, notes, object_store, remote_storage


def test_without_an_address_it_is_a_folder_that_is_read() -> None:
    assert remote_storage("/a b", {}) == "file:/a%20b|read-only"
    assert remote_storage("/a", {SHARE_OBJECTS: "1"}) == "file:/a"
    assert remote_storage("/a", {SHARE_OBJECTS: "0"}) == "file:/a|read-only"
    assert object_store({STORE: ""}) is None
    assert notes({}) == []


def test_a_server_is_read_too_and_written_to_by_who_says_so() -> None:
    environ = {STORE: "redis://cache:6379"}
    _, server = remote_storage("/a", environ).split(" ")
    assert server.startswith("redis://cache:6379|")
    assert server.endswith("|read-only")
    assert "read-only" not in remote_storage("/a", {**environ, SHARE_OBJECTS: "1"})


@pytest.mark.parametrize(
    "address",
    [
        "cache:6379", "https://cache", "ftp://cache", "http://", "http://:80", "http://cache:x", "http://cache:99999",
        "http://cache|read-only=false", "http://a file:/etc", "http://a\nb", "http://a/%(x)", "http://[::1",
    ],
)  # fmt: skip
def test_what_the_cache_cannot_use_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match=STORE) as caught:
        object_store({STORE: address})
    assert address not in str(caught.value), "it may have a password"


def test_the_plan_says_who_answers_and_no_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        environ = {STORE: f"redis://me:hidden@127.0.0.1:{port}"}
        (said,) = notes(environ)
        assert said.startswith(f"objects are shared through redis://127.0.0.1:{port} (read only;")
        (said,) = notes({**environ, SHARE_OBJECTS: "1"})
        assert said.endswith("(read, and written to)")
    (said,) = notes(environ)
    assert f"redis://127.0.0.1:{port} does not answer" in said
    assert "hidden" not in said
