"""Every connection trusts a certificate authority of the system, such as a company's."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import certifi
import pytest
from small_files import write

from groundwork.network import certificates
from groundwork.network.client import Client, NetworkError

_WHEEL = "demo-1.0-py3-none-any.whl"
_INDEX = f'<a data-core-metadata="true" href="{_WHEEL}#sha256={64 * "0"}">{_WHEEL}</a>'
_EMPTY_CHANNEL = '{"info":{"subdir":"noarch"},"packages":{},"packages.conda":{},"repodata_version":1}'

#: One program for each library that connects to servers.
_CONNECTIONS = {
    "httpx": "from groundwork.network.client import Client; Client().get(URL + '/channel/noarch/repodata.json')",
    "uv": """
from groundwork.network.index import Configured
from groundwork.network.resolver import Target, resolve
assert resolve(["demo"], Target(version="3.11.0"), Configured(indexes=(URL + "/simple",), links=()))""",
    "rattler": """
import asyncio, rattler
gateway = rattler.Gateway(cache_dir=Path("rattler"))
asyncio.run(gateway.query([rattler.Channel(URL + "/channel")], ["noarch"], ["demo"], recursive=False))""",
    "obstore": "from megabuild.store.server import Store; assert Store(address=URL).find('a/b') is None",
    "git": """
import subprocess
done = subprocess.run(["git", "ls-remote", URL + "/x.git"], capture_output=True, text=True)
assert "not found" in done.stderr, done.stderr""",
}
_HEAD = """
import os, sys, traceback
from pathlib import Path

def end(*error):  # at once: rattler's threads outlive an interpreter, and may abort it
    traceback.print_exception(*error)
    sys.stderr.flush()
    os._exit(1)

sys.excepthook = end
sys.path.insert(0, sys.argv[1])
URL = sys.argv[2]
from groundwork.network.certificates import share_with_programs
share_with_programs(os.environ)
"""


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate authority, laid out as a system's, and with a server's key."""
    if not shutil.which("openssl"):
        pytest.skip("openssl makes the certificates")
    folder = tmp_path_factory.mktemp("company")
    key = ("-newkey", "rsa:2048", "-nodes")
    authority = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
    words = ("-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Company")
    _openssl(folder, "req", "-x509", *key, *words, *authority)
    _openssl(folder, "req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (folder / "names").write_text("subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n")
    signed = ("-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
    _openssl(folder, "x509", *signed, "-days", "2", "-extfile", "names", "-out", "server.pem")
    system = folder / "certs"
    system.mkdir()
    shutil.copy(folder / "ca.pem", system / "ca-certificates.crt")
    shutil.copy(folder / "ca.pem", system / "company.pem")
    _openssl(system, "rehash", str(system))
    return folder


@pytest.fixture(scope="module")
def server(company: Path) -> Iterator[str]:
    """An index, channel and store with a certificate of the company's authority."""
    site = company / "site"
    write(site / "channel" / "noarch" / "repodata.json", _EMPTY_CHANNEL)
    index = site / "simple" / "demo"
    write(index / f"{_WHEEL}.metadata", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
    write(index / "index.html", _INDEX)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    listening = http.server.ThreadingHTTPServer(("localhost", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(company / "server.pem", company / "server.key")
    listening.socket = context.wrap_socket(listening.socket, server_side=True)
    threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True).start()
    yield f"https://localhost:{listening.server_port}"
    listening.shutdown()
    listening.server_close()


def _connect(
    connections: list[str], server: str, folder: Path, repository: Path, before: list[str], **environ: str
) -> subprocess.CompletedProcess[str]:
    code = "\n".join([_HEAD, *(_CONNECTIONS[connection] for connection in connections), "os._exit(0)"])
    program = [sys.executable, "-c", code, str(repository / "src"), server]
    clean = {"PATH": os.environ["PATH"], "HOME": str(folder), "PIP_CONFIG_FILE": os.devnull, **environ}
    return subprocess.run([*before, *program], cwd=folder, env=clean, capture_output=True, text=True)


@pytest.mark.parametrize("way", ["system", "SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_a_company_s_certificate_is_trusted(
    way: str, server: str, company: Path, tmp_path: Path, repository: Path
) -> None:
    before: list[str] = []
    environ: dict[str, str] = {}
    if way == "system":
        before = ["bwrap", "--bind", "/", "/", "--dev-bind", "/dev", "/dev"]
        before += ["--bind", str(company / "certs"), "/etc/ssl/certs"]
        if not shutil.which("bwrap") or subprocess.run([*before, "true"]).returncode:
            pytest.skip("bubblewrap puts other certificates into this system's place")
    else:
        environ[way] = str(company / ("ca.pem" if way == "SSL_CERT_FILE" else "certs"))
    done = _connect([*_CONNECTIONS], server, tmp_path, repository, before, **environ)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("connection", ["httpx", "uv", "rattler", "obstore"])
def test_an_unknown_certificate_is_refused_with_a_hint(
    connection: str, server: str, tmp_path: Path, repository: Path
) -> None:
    done = _connect([connection], server, tmp_path, repository, [])
    assert done.returncode == 1
    assert certificates.is_untrusted(done.stderr)
    assert not certificates.is_untrusted("localhost:1: connection refused")


def test_the_certificates_that_pip_is_given_are_trusted_alone(server: str, company: Path) -> None:
    address = f"{server}/simple/demo/index.html"
    assert Client(trusted=company / "ca.pem").get(address).body.decode() == _INDEX
    with pytest.raises(NetworkError, match="certificate verif"):
        Client(trusted=company / "server.pem").get(address)


def test_certifi_s_certificates_are_trusted_next_to_the_system_s(
    server: str, company: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may have no certificates of its own."""
    monkeypatch.setattr(certifi, "where", lambda: str(company / "ca.pem"))
    assert Client().get(f"{server}/simple/demo/index.html").body.decode() == _INDEX


@pytest.mark.parametrize("platform", ["linux", "darwin"])
@pytest.mark.parametrize("bundle", [None, Path("/bundle")])
@pytest.mark.parametrize("folder", ["", "/folder"])
def test_programs_use_the_system_s_certificates_if_it_has_some(
    platform: str, bundle: Path | None, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "sys", SimpleNamespace(platform=platform))
    monkeypatch.setattr(certificates, "system_bundle", lambda _: bundle)
    environ = {"SSL_CERT_FILE": "/file", "SSL_CERT_DIR": folder}
    certificates.share_with_programs(environ)
    assert (environ.get("UV_SYSTEM_CERTS") == "1") == (
        platform != "linux" or bundle is not None or bool(folder)
    )
    assert (environ["GIT_SSL_CAINFO"], environ.get("GIT_SSL_CAPATH", "")) == ("/file", folder)


def test_the_user_s_own_variables_of_programs_stay() -> None:
    own = {"UV_SYSTEM_CERTS": "0", "GIT_SSL_CAINFO": "/own", "GIT_SSL_CAPATH": "/own"}
    environ = {"SSL_CERT_FILE": "/file", "SSL_CERT_DIR": "/folder", **own}
    certificates.share_with_programs(environ)
    assert {name: environ[name] for name in own} == own


def test_a_named_bundle_that_is_no_file_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = write(tmp_path / "bundle.pem", "")
    monkeypatch.setattr(certificates, "_BUNDLES", (str(tmp_path / "none.pem"), str(bundle)))
    paths = SimpleNamespace(openssl_cafile=str(tmp_path / "none.pem"))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    for named in ("", str(tmp_path), str(tmp_path / "none.pem")):
        assert certificates.system_bundle({"SSL_CERT_FILE": named}) == bundle
    own = write(tmp_path / "own.pem", "")
    monkeypatch.chdir(tmp_path)
    assert certificates.system_bundle({"SSL_CERT_FILE": "own.pem"}) == own
    paths.openssl_cafile = str(own)
    assert certificates.system_bundle({}) == own
    bundle.unlink()
    own.unlink()
    assert certificates.system_bundle({}) is None
