"""The audit's requests against servers that misbehave: bounded, retried, counted, without secrets."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest
from audit_site import IMPATIENT, Answer, Handler, die, endless, hang, redirect, services, serving, trickle

from megabuild.errors import AuditError
from megabuild.network import redact
from megabuild.network.web import NotFound


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_an_answer_comes_with_its_bytes_counted(tmp_path: Path) -> None:
    with serving({"/page": b"x" * 1000}) as site:
        given = services(tmp_path)
        alone = given.web.separate()
        assert alone.get(f"{site.url}/page").body == b"x" * 1000
        assert 1000 < alone.received < 1500
        assert given.web.received == alone.received


def test_a_page_that_is_not_there_is_told_apart(tmp_path: Path) -> None:
    with serving({}) as site, pytest.raises(NotFound, match="404"):
        services(tmp_path).web.get(f"{site.url}/none")


def test_a_passing_failure_is_tried_again(tmp_path: Path) -> None:
    def recover(handler: Handler) -> None:
        failing = len(handler.server.asked) < 3
        handler.reply(503 if failing else 200, b"" if failing else b"at last")

    with serving({"/": recover}) as site:
        assert services(tmp_path).web.get(f"{site.url}/").body == b"at last"
        assert len(site.asked) == 3


def test_a_lasting_failure_is_not_tried_for_ever(tmp_path: Path) -> None:
    with serving({"/": lambda handler: handler.reply(500, b"")}) as site:
        with pytest.raises(AuditError, match="HTTP status 500"):
            services(tmp_path).web.get(f"{site.url}/")
        assert len(site.asked) == 3


def test_a_refusal_is_not_tried_again(tmp_path: Path) -> None:
    with serving({"/": lambda handler: handler.reply(403, b"")}) as site:
        with pytest.raises(AuditError, match="403") as caught:
            services(tmp_path).web.get(f"{site.url}/")
        assert len(site.asked) == 1
        assert "credentials" in caught.value.remedy


def test_a_server_that_asks_for_a_long_pause_is_given_up_at_once(tmp_path: Path) -> None:
    with serving({"/": lambda handler: handler.reply(429, b"", Retry_After="3600")}) as site:
        start = time.monotonic()
        with pytest.raises(AuditError, match="429"):
            services(tmp_path).web.get(f"{site.url}/")
        assert time.monotonic() - start < 2.0


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (hang, "no answer in time|no end after"),
        (die, "closed|incomplete"),
        (endless, "longer than"),
        (trickle, "no end after|too slowly"),
    ],
    ids=["hangs", "dies", "endless", "trickles"],
)
def test_a_misbehaving_server_ends_in_bounded_time(tmp_path: Path, answer: Answer, told: str) -> None:
    with serving({"/": answer}) as site:
        start = time.monotonic()
        with pytest.raises(AuditError, match=told):
            services(tmp_path, patience=IMPATIENT).web.get(f"{site.url}/", limit=1 << 20)
        assert time.monotonic() - start < 6.0


def test_headers_without_an_end_are_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                try:
                    connection.sendall(b"HTTP/1.1 200 OK\r\n")
                    for number in range(100):
                        connection.sendall(f"X-{number}: y\r\n".encode())
                        time.sleep(0.1)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        start = time.monotonic()
        with pytest.raises(AuditError, match="no end after"):
            services(tmp_path, patience=IMPATIENT).web.get(f"http://127.0.0.1:{server.getsockname()[1]}/")
        assert time.monotonic() - start < 6.0


def test_a_host_that_is_silent_is_asked_only_once(tmp_path: Path) -> None:
    with serving({"/": hang}) as site:
        web = services(tmp_path, patience=IMPATIENT).web
        with pytest.raises(AuditError):
            web.get(f"{site.url}/")
        asked = len(site.asked)
        with pytest.raises(AuditError, match="cannot be used"):
            web.separate().get(f"{site.url}/other")
        assert len(site.asked) == asked


def test_redirects_in_a_circle_end(tmp_path: Path) -> None:
    with (
        serving({"/a": redirect("/b"), "/b": redirect("/a")}) as site,
        pytest.raises(AuditError, match=r"[Rr]edirects"),
    ):
        services(tmp_path).web.get(f"{site.url}/a")


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://[broken", "//"])
def test_a_redirect_to_something_else_is_refused(tmp_path: Path, target: str) -> None:
    with serving({"/": redirect(target)}) as site, pytest.raises(AuditError):
        services(tmp_path).web.get(f"{site.url}/")


def test_no_network_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(AuditError, match="refused") as caught:
        services(tmp_path).web.get(f"http://127.0.0.1:{port}/")
    assert "--offline" in caught.value.remedy


def test_offline_asks_nobody(tmp_path: Path) -> None:
    with serving({"/": b"x"}) as site:
        with pytest.raises(AuditError, match="--offline"):
            services(tmp_path, offline=True).web.get(f"{site.url}/")
        assert not site.asked


def test_nothing_is_asked_when_the_time_is_over(tmp_path: Path) -> None:
    with serving({"/": b"x"}) as site:
        with pytest.raises(AuditError, match="time was over"):
            services(tmp_path, seconds=0.0).web.get(f"{site.url}/")
        assert not site.asked


def test_a_host_is_asked_at_most_four_times_at_once(tmp_path: Path) -> None:
    now, most = [0], [0]
    lock = threading.Lock()

    def slow(handler: Handler) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.1)
        with lock:
            now[0] -= 1
        handler.reply(200, b"x")

    with serving({"/": slow}) as site:
        web = services(tmp_path).web
        threads = [threading.Thread(target=web.get, args=(f"{site.url}/",)) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(site.asked) == 12
    assert 2 <= most[0] <= 4


def test_parts_of_a_file_are_read(tmp_path: Path) -> None:
    content = bytes(range(256)) * 100
    with serving({"/file": content}) as site:
        web = services(tmp_path).web
        tail = web.tail(f"{site.url}/file", 1000)
        assert (tail.data, tail.start, tail.total) == (content[-1000:], len(content) - 1000, len(content))
        assert web.range(f"{site.url}/file", 10, 20) == content[10:20]
        assert web.tail(f"{site.url}/file", 1 << 20).data == content


def test_a_server_without_ranges_from_the_end_is_asked_from_the_beginning(tmp_path: Path) -> None:
    content = b"0123456789" * 10

    def picky(handler: Handler) -> None:
        if handler.headers["Range"].startswith("bytes=-"):
            handler.reply(416, b"")
        else:
            handler.reply(200, content)

    with serving({"/file": picky}) as site:
        tail = services(tmp_path).web.tail(f"{site.url}/file", 15)
        assert (tail.data, tail.start, tail.total) == (content[-15:], 85, 100)


def test_a_server_that_ignores_ranges_is_not_downloaded_from(tmp_path: Path) -> None:
    with serving({"/file": b"x" * (20 << 20)}) as site:
        site.ranges = False
        given = services(tmp_path)
        with pytest.raises(AuditError, match="does not give parts"):
            given.web.tail(f"{site.url}/file", 1000)
        assert given.web.received < 10_000


@pytest.mark.parametrize("claim", ["bytes 0-999/5000", "bytes 5-5/1", "nonsense", "bytes */5000", ""])
def test_a_range_that_makes_no_sense_is_refused(tmp_path: Path, claim: str) -> None:
    def lie(handler: Handler) -> None:
        handler.reply(206, b"xyz", Content_Range=claim)

    with serving({"/file": lie}) as site, pytest.raises(AuditError, match="makes no sense"):
        services(tmp_path).web.range(f"{site.url}/file", 0, 3)


def test_credentials_are_sent_and_never_shown(tmp_path: Path) -> None:
    told: list[str] = []
    with serving({"/page": b"x", "/bad": lambda handler: handler.reply(401, b"")}) as site:
        given = services(tmp_path, told)
        address = site.url.replace("://", "://user:s3cret@")
        given.web.get(f"{address}/page")
        assert site.headers[-1]["authorization"].startswith("Basic ")
        with pytest.raises(AuditError) as caught:
            given.web.get(f"{address}/bad?token=s3cret")
        given.report("web", f"asking {address}/page?token=s3cret, {address}/t/s3cret/channel")
    assert "s3cret" not in caught.value.message + caught.value.remedy + "".join(told)
    assert "user" not in "".join(told)


def test_credentials_do_not_follow_to_another_host(tmp_path: Path) -> None:
    with serving({"/": b"x"}) as other, serving({"/": redirect(f"{other.url}/")}) as site:
        services(tmp_path).web.get(site.url.replace("://", "://user:s3cret@") + "/")
        assert "authorization" in site.headers[-1]
        assert "authorization" not in other.headers[-1]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:pa@ss@host/simple/?q=1#f", "https://host/simple/"),
        ("https://host/t/token-1/conda-forge", "https://host/t/…/conda-forge"),
        ("https://__token__:x@host:8080/a", "https://host:8080/a"),
        ("https://host/a@b", "https://host/a@b"),
    ],
)
def test_addresses_are_shown_without_secrets(url: str, shown: str) -> None:
    assert redact.address(url) == shown
    assert redact.text(f"see {url} now").startswith(f"see {shown}")
