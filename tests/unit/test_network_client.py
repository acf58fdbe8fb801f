"""Requests against servers that misbehave: bounded, retried, counted, without secrets."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import zstandard
from audit_site import (
    IMPATIENT,
    PATIENT,
    Answer,
    Handler,
    die,
    endless,
    hang,
    redirect,
    services,
    serving,
    trickle,
)

from groundwork import pip_settings, process, redact
from groundwork.errors import ProviderError
from groundwork.network import client, index
from groundwork.network.client import Client, NetworkError


def test_a_partial_answer_is_discarded_before_the_retry(tmp_path: Path) -> None:
    def recover(handler: Handler) -> None:
        if len(handler.server.asked) % 2:
            die(handler)
        else:
            handler.reply(200, b"whole")

    target = tmp_path / "file"
    with serving({"/": recover}) as site:
        assert Client(timeouts=PATIENT).get(f"{site.url}/").body == b"whole"
        Client(timeouts=PATIENT).save(f"{site.url}/", target)
    assert target.read_bytes() == b"whole"


@pytest.mark.parametrize("encoding", ["zstd", "br", "gzip, gzip"])
def test_an_encoding_that_unpacks_without_a_limit_is_refused(encoding: str) -> None:
    def pack(handler: Handler) -> None:
        handler.reply(200, zstandard.compress(bytes(64 << 20)), **{"Content-Encoding": encoding})

    with serving({"/": pack}) as site, pytest.raises(NetworkError, match="which the request did not allow"):
        Client(timeouts=PATIENT).get(f"{site.url}/")


@pytest.mark.parametrize(
    ("answer", "asked"), [(socket.EAI_NONAME, 1), (socket.EAI_NODATA, 1), (socket.EAI_AGAIN, 3)]
)
def test_a_name_that_does_not_exist_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, answer: int, asked: int
) -> None:
    names = []

    def look_up(host: str, *rest: object, **options: object) -> None:
        names.append(host)
        raise socket.gaierror(answer, "no address")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(NetworkError) as caught:
        Client().get("https://mirror.example.org/simple/")
    assert names == ["mirror.example.org"] * asked
    assert caught.value.message == "mirror.example.org: no address"


@pytest.mark.parametrize(("status", "asked"), [(500, 3), (403, 1)])
def test_failures_are_retried_a_few_times_and_refusals_never(status: int, asked: int) -> None:
    with serving({"/": lambda handler: handler.reply(status, b"")}) as site:
        with pytest.raises(NetworkError, match=str(status)) as caught:
            Client(timeouts=PATIENT).get(f"{site.url}/")
        assert len(site.asked) == asked
        assert ("credentials" in caught.value.remedy) == (status == 403)


@pytest.mark.parametrize(
    ("status", "wanted", "told", "remedy"),
    [
        (200, 200, "", ""), (206, 206, "", ""), (206, 200, "HTTP status 206", "network"),
        (200, 206, "does not support range requests (HTTP status 200)", "network"),
        (416, 206, "does not support range requests (HTTP status 416)", "network"),
        (501, 206, "does not support range requests (HTTP status 501)", "network"),
        (416, 200, "h/x: HTTP status 416", "network"), (503, 206, "h/x: HTTP status 503", "network"),
        (401, 200, "HTTP status 401", "credentials"), (403, 206, "HTTP status 403", "credentials"),
        (407, 200, "HTTP status 407", "credentials"),
        (404, 200, "not found (HTTP status 404)", "network"), (410, 206, "not found (HTTP status 410)", "network"),
    ],
)  # fmt: skip
def test_an_answer_other_than_the_asked_one_is_an_error(
    status: int, wanted: int, told: str, remedy: str
) -> None:
    response = httpx.Response(status)
    if not told:
        client._check(response, "h/x", wanted)
        return
    with pytest.raises(NetworkError) as refused:
        client._check(response, "h/x", wanted)
    assert refused.value.message.endswith(told)
    assert refused.value.status == status
    assert remedy in refused.value.remedy
    assert isinstance(refused.value, client.NotFound) == (status in (404, 410))


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        *((NetworkError("x", status=status), True) for status in (408, 425, 429, 500, 502, 503, 504)),
        *(
            (NetworkError("x", status=status), False)
            for status in (0, 200, 400, 401, 403, 404, 410, 416, 501)
        ),
        (httpx.ConnectError("Connection refused"), True),
        (httpx.ReadTimeout("x"), True),
        (httpx.RemoteProtocolError("peer closed connection"), True),
        (httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"), False),
        (httpx.InvalidURL("x"), False),
        (ValueError("x"), False),
    ],
    ids=repr,
)
def test_only_what_may_pass_is_tried_again(error: Exception, passes: bool) -> None:
    assert client._passes(error) == passes


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"/noarch/repodata.json.zst": 200}, ""), ({"/noarch/repodata.json.zst": 206}, ""),
        ({"/noarch/repodata.json.zst": 416}, ""), ({"/noarch/repodata.json": 200}, ""),
        ({"/noarch/repodata.json.zst": 403, "/noarch/repodata.json": 206}, ""),
        ({"/linux-64/repodata.json": 200}, "noarch/repodata.json: not found"),
    ],
)  # fmt: skip
def test_a_channel_with_one_readable_index_is_reachable(
    answers: dict[str, int], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(_: Client, url: str, headers: dict[str, str]) -> None:
        assert headers == {"Range": "bytes=0-0"}, "an index has megabytes"
        client._check(httpx.Response(answers.get(url.removeprefix("https://h"), 404)), url, 206)

    monkeypatch.setattr(Client, "get", get)
    shown = client.why_channel_unreachable("https://h")
    assert told in shown
    assert bool(shown) == bool(told)
    assert client.why_unreachable("s3://bucket/x", 1.0) == ""


def answering(answer: Callable[[httpx.Request], httpx.Response]) -> Client:
    """Return a client whose requests get an answer without a network."""
    made = Client()
    vars(made)["_open"] = httpx.Client(transport=httpx.MockTransport(answer))
    return made


@pytest.mark.parametrize("length", [0, 9, 10, 11, 100_000])
def test_an_answer_has_at_most_as_many_bytes_as_are_asked_for(length: int) -> None:
    given = answering(lambda _: httpx.Response(200, content=b"x" * length))
    if length <= 10:
        assert given.get("https://h/a?b=c", limit=10).body == b"x" * length
        return
    with pytest.raises(NetworkError, match=r"^https://h/a: longer than 10 bytes$"):
        given.get("https://h/a?b=c", limit=10)


def test_what_gives_access_is_not_in_the_words_of_an_error() -> None:
    def fail(_: httpx.Request) -> httpx.Response:
        raise httpx.InvalidURL("[Errno 5] no https://me:s3cret@h/t/s3cret/x?token=s3cret")

    with pytest.raises(NetworkError, match=r"^h: no https://h/t/…/x$"):
        answering(fail).get("https://me:s3cret@h/t/s3cret/x?token=s3cret")


@pytest.mark.parametrize(("user", "sent"), [("own:p@", "own:p"), ("", "other:q")])
def test_credentials_of_an_address_come_before_those_of_netrc(
    user: str, sent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login other password q\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200)

    answering(answer).get(f"https://{user}127.0.0.1/")
    scheme, _, value = asked[0].headers["authorization"].partition(" ")
    assert (scheme, base64.b64decode(value).decode()) == ("Basic", sent)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (hang, "no answer in time|no answer in time"),
        (die, "closed|incomplete"),
        (endless, "longer than"),
        (trickle, "no answer in time|too slowly"),
    ],
    ids=["hangs", "dies", "endless", "trickles"],
)
def test_a_misbehaving_server_ends_in_bounded_time(answer: Answer, told: str) -> None:
    timeouts = IMPATIENT if answer in (hang, trickle) else PATIENT
    with serving({"/": answer}) as site:
        start = time.monotonic()
        with pytest.raises(NetworkError, match=told):
            Client(timeouts=timeouts).get(f"{site.url}/", limit=1 << 20)
        assert time.monotonic() - start < (6.0 if timeouts is IMPATIENT else PATIENT.total)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://[broken", "//"])
def test_a_redirect_to_another_scheme_is_refused(target: str) -> None:
    with serving({"/": redirect(target)}) as site, pytest.raises(NetworkError):
        Client(timeouts=PATIENT).get(f"{site.url}/")


def test_a_proxy_without_a_scheme_is_an_error_of_the_network() -> None:
    with pytest.raises(NetworkError, match=r"^server\.example: .*proxy\.example"):
        Client(proxy="proxy.example:3128").get("https://server.example/")


def test_offline_sends_no_request() -> None:
    with serving({"/": b"x"}) as site:
        with pytest.raises(NetworkError, match="--offline"):
            Client(offline=True).get(f"{site.url}/")
        assert not site.asked


@pytest.mark.parametrize(
    "netrc", [None, b"machine\n", b"no machine", b"machine a login \xff password b\n"], ids=str
)
def test_a_netrc_that_cannot_be_read_stops_no_request(
    netrc: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    (tmp_path / "netrc").mkdir() if netrc is None else (tmp_path / "netrc").write_bytes(netrc)
    with serving({"/": b"page"}) as site:
        assert Client(timeouts=PATIENT).get(f"{site.url}/").body == b"page"


def test_all_requests_of_a_client_end_in_its_time() -> None:
    with serving({"/": hang}) as site:
        with pytest.raises(NetworkError, match="no time left"):
            Client(seconds=0.0, timeouts=PATIENT).get(f"{site.url}/")
        assert not site.asked
        start = time.monotonic()
        with pytest.raises(NetworkError, match="no answer in time"):
            Client(seconds=0.2, timeouts=PATIENT).get(f"{site.url}/")
        assert time.monotonic() - start < PATIENT.total / 2


def test_credentials_are_sent_and_never_shown(tmp_path: Path) -> None:
    told: list[str] = []
    with serving({"/page": b"x", "/bad": lambda handler: handler.reply(401, b"")}) as site:
        given = services(tmp_path, told)
        address = site.url.replace("://", "://user:s3cret@")
        given.client.get(f"{address}/page")
        assert site.headers[-1]["authorization"].startswith("Basic ")
        with pytest.raises(NetworkError) as caught:
            given.client.get(f"{address}/bad?token=s3cret")
        given.report(f"asking {address}/page?token=s3cret, {address}/t/s3cret/channel")
    with pytest.raises(NetworkError, match=r"none\.pem"):
        Client(trusted=tmp_path / "none.pem").get("https://127.0.0.1:9/")
    with pytest.raises(NetworkError, match=r"^127\.0\.0\.1:9: ") as silent:
        Client(timeouts=IMPATIENT).get("http://user:s3cret@127.0.0.1:9/simple?token=s3cret")
    assert "s3cret" not in "".join(f"{error.value} {error.value.remedy}" for error in (caught, silent))
    assert [word for word in ("s3cret", "user") if word in "".join(told)] == []


def test_a_redirect_from_https_to_http_is_refused() -> None:
    response = httpx.Response(302, request=httpx.Request("GET", "https://user:s3cret@host/simple"))
    response.next_request = httpx.Request("GET", "http://host/simple")
    with pytest.raises(NetworkError, match="https to http") as caught:
        client._no_downgrade(response)
    assert "s3cret" not in caught.value.message
    response.next_request = httpx.Request("GET", "https://other/simple")
    client._no_downgrade(response)
    assert Client()._open.event_hooks["response"] == [client._no_downgrade]


@pytest.mark.parametrize("user", ["user:s3cret@", ""], ids=["of the address", "of the file that NETRC names"])
def test_credentials_are_not_sent_to_another_host(
    user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials").write_text("" if user else "machine localhost login bob password s3cret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "credentials"))
    with serving({"/": b"x"}) as other, serving({"/": redirect(f"{other.url}/")}) as site:
        Client(timeouts=PATIENT).get(f"http://{user}localhost:{site.server_port}/")
        assert site.headers[-1]["authorization"].startswith("Basic ")
        assert "authorization" not in other.headers[-1]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:pa@ss@host/simple/?q=1#f", "https://host/simple/"),
        ("https://host/x#token=s3cret&b=1", "https://host/x"),
        ("https://host/t/token-1/conda-forge", "https://host/t/…/conda-forge"),
        ("https://__token__:x@host:8080/a", "https://host:8080/a"),
        ("file:///home/t/sec-out/packages/", "file:///home/t/sec-out/packages/"),
        ("https://host/a@b", "https://host/a@b"),
    ],
)
def test_addresses_are_shown_without_secrets(url: str, shown: str) -> None:
    assert redact.address(url) == shown
    assert redact.text(f"see {url} now").startswith(f"see {shown}")


def test_a_hanging_channel_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_CHANNEL_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections, and never answers
        assert "no answer" in client.why_channel_unreachable(f"http://127.0.0.1:{silent.getsockname()[1]}")


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_channel_that_refuses_is_unreachable(status: int) -> None:
    def refuse(handler: Handler) -> None:
        handler.reply(status, b"")

    with serving({"/noarch/repodata.json.zst": refuse, "/noarch/repodata.json": refuse}) as site:
        assert str(status) in client.why_channel_unreachable(site.url)


def test_names_are_below_the_alias_and_addresses_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDA_CHANNEL_ALIAS", "http://mirror.example/conda/")
    assert client.channel_url("conda-forge") == "http://mirror.example/conda/conda-forge"
    assert client.channel_url("file:///srv/channel/") == "file:///srv/channel"


@pytest.mark.parametrize(
    ("listed", "indexes"),
    [
        ("", ("https://default.invalid/simple",)),
        ("global.index-url='https://own.invalid/simple/'\n", ("https://own.invalid/simple",)),
        ("global.no-index='1'\n", ()),
    ],
)
def test_pip_s_own_index_is_the_one_that_pip_names_unless_another_is_configured(
    listed: str, indexes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ASKED_FOR", listed)  # answers are kept by environment
    help_text = "  -i, --index-url <url>  Base URL (default\n    https://default.invalid/simple)."
    answers = {"config": listed, "download": help_text}
    monkeypatch.setattr(pip_settings, "ask", lambda pip, environ, command, *_: answers[command])
    assert index.configured().indexes == indexes


def test_a_pip_without_a_default_index_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ASKED_FOR", "no default")  # answers are kept by environment
    answers = {"config": "", "download": "  -i, --index-url <url>  Base URL"}
    monkeypatch.setattr(pip_settings, "ask", lambda pip, environ, command, *_: answers[command])
    with pytest.raises(ProviderError, match="does not name its default index"):
        index.configured()


def test_a_pip_that_does_not_answer_is_an_error_and_no_missing_index(monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess[str]([], process.TIMED_OUT, "", "not finished after 60 s")
    monkeypatch.setattr(process, "run", lambda *_, **__: done)
    monkeypatch.setenv("ASKED_FOR", "nothing yet")
    with pytest.raises(ProviderError, match="not finished") as caught:
        index.configured()
    assert caught.value.remedy == "run again on a less busy machine"


def test_a_program_that_cannot_be_started_is_named_with_the_reason(tmp_path: Path) -> None:
    done = process.run([str(tmp_path / "none")], timeout=10)
    assert (done.returncode, done.stderr) == (process.NOT_STARTED, "No such file or directory")
