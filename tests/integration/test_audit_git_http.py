"""Repositories over http: moved ones, ones that want a password, ssh addresses that are asked over https."""

from __future__ import annotations

import base64
import contextlib
import gzip
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from git_world import Repo, modules, without_settings
from submodule_world import audit

from pin_audit.facts import Submodule


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's."""
    without_settings(monkeypatch)


@dataclass(frozen=True)
class Site:
    """A running server."""

    base: str
    sent: list[int]  #: bytes of each answer
    running: set[bytes]  #: arguments of all processes while a password was asked for


def _arguments_of_processes() -> set[bytes]:
    """Return what everybody on this machine can see of the processes that run."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.add(path.read_bytes())
    return found


class _Handler(BaseHTTPRequestHandler):
    """git's smart protocol as git-http-backend(1) speaks it, for the folder that the server has."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """List branches and tags, or what the server can do."""
        path, service = self._asked()
        if path is None:
            return
        words = ["upload-pack", "--stateless-rpc", "--advertise-refs", str(path)]
        out = b"" if "version=2" in self._version() else b"001e# service=git-upload-pack\n0000"
        self._answer(200, out + self._git(words, b""), f"application/x-{service}-advertisement")

    def do_POST(self) -> None:
        """Send a pack."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        path, _ = self._asked()
        if path is not None:
            words = ["upload-pack", "--stateless-rpc", str(path)]
            self._answer(200, self._git(words, body), "application/x-git-upload-pack-result")

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _version(self) -> str:
        return str(self.headers.get("Git-Protocol", ""))

    def _git(self, words: list[str], body: bytes) -> bytes:
        environment = {"GIT_PROTOCOL": self._version(), "PATH": self.server.path}  # type: ignore[attr-defined]
        environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
        return subprocess.run(
            ["git", *words],
            input=body,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        ).stdout

    def _asked(self) -> tuple[Path | None, str]:
        parts = urlsplit(self.path)
        name = parts.path.removesuffix("/info/refs").removesuffix("/git-upload-pack").strip("/")
        service = parse_qs(parts.query).get("service", [""])[0]
        if name.startswith("old/"):
            self._answer(301, b"", "text/plain", location=self.path.replace("/old/", "/"))
        elif name.startswith("private/"):
            self._answer(401, b"", "text/plain")
        elif name.startswith("locked/"):
            self.server.running.update(_arguments_of_processes())  # type: ignore[attr-defined]
            if self.headers.get("Authorization") == f"Basic {base64.b64encode(b'user:hunter2').decode()}":
                return self.server.folder / name.removeprefix("locked/"), service  # type: ignore[attr-defined]
            self._answer(401, b"", "text/plain")
        elif name.startswith("broken/") or (self.server.folder / "login").exists():  # type: ignore[attr-defined]
            self._answer(200, b"<html>\x1b[31mlogin page</html>", "text/html")
        else:
            return self.server.folder / name, service  # type: ignore[attr-defined]
        return None, service

    def _answer(self, status: int, body: bytes, kind: str, location: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if location:
            self.send_header("Location", location)
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
        self.end_headers()
        self.wfile.write(body)
        self.server.sent.append(len(body))  # type: ignore[attr-defined]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Serve the repositories in ``world``."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    sent: list[int] = []
    server.folder = tmp_path / "world"  # type: ignore[attr-defined]
    server.path = os.environ["PATH"]  # type: ignore[attr-defined]
    server.sent = sent  # type: ignore[attr-defined]
    server.running = running = set[bytes]()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Site(base=f"http://127.0.0.1:{server.server_port}/", sent=sent, running=running)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5.0)


@pytest.fixture
def commit(tmp_path: Path) -> str:
    """The tagged commit of ``lib.git``."""
    repo = Repo(tmp_path / "world" / "lib.git")
    repo.tag("v3", repo.commits(3), annotated=True)
    return repo.make()[3]


def _super(folder: Path, url: str, commit: str) -> None:
    top = Repo(folder / "world" / "super.git")
    top.tag("v1", top.commit(files={".gitmodules": modules({"lib": url})}, gitlinks={"lib": commit}))
    top.make()


def _audit(repository: str, cache: Path) -> Submodule:
    outcome = audit(repository, cache, seconds=30.0)
    assert outcome.trouble == ""
    (found,) = outcome.facts
    assert isinstance(found, Submodule)
    return found


def test_a_history_comes_without_its_files(site: Site, tmp_path: Path) -> None:
    repo = Repo(tmp_path / "world" / "lib.git")
    repo.commit(files={"large": os.urandom(1 << 20)})
    repo.tag("v3", repo.commits(300), annotated=True)
    made = repo.make()
    _super(tmp_path, f"{site.base}lib.git", made[100])  # described from a later tag, by all of the history
    assert _audit(f"{site.base}super.git", tmp_path / "cache").value == "v3~201"
    assert sum(site.sent) < 200_000


def test_a_moved_repository_is_followed(site: Site, commit: str, tmp_path: Path) -> None:
    _super(tmp_path, f"{site.base}old/lib.git", commit)
    found = _audit(f"{site.base}super.git", tmp_path / "cache")
    assert (found.value, found.trouble) == ("v3", "")


def test_a_password_is_not_asked_for(site: Site, commit: str, tmp_path: Path) -> None:
    _super(tmp_path, f"{site.base}private/lib.git", commit)
    started = time.monotonic()
    found = _audit(f"{site.base}super.git", tmp_path / "cache")
    assert "no such repository, or it is private" in found.trouble
    assert time.monotonic() - started < 15


def test_a_web_page_instead_of_a_repository_is_a_sentence(site: Site, commit: str, tmp_path: Path) -> None:
    _super(tmp_path, f"{site.base}broken/lib.git", commit)
    started = time.monotonic()
    found = _audit(f"{site.base}super.git", tmp_path / "cache")
    assert "what answers for lib is not a repository" in found.trouble
    assert time.monotonic() - started < 15
    assert "\x1b" not in found.trouble


def test_a_login_page_leaves_a_clone_as_it_was(site: Site, commit: str, tmp_path: Path) -> None:
    _super(tmp_path, f"{site.base}lib.git", commit)
    super_address, cache, reports = f"{site.base}super.git", tmp_path / "cache", list[str]()
    assert _audit(super_address, cache).value == "v3"
    (tmp_path / "world" / "login").touch()
    (found,) = audit(super_address, cache, seconds=30.0, max_age=-1.0, reports=reports).facts
    assert found.value == "v3"
    assert any("is not a repository: what was fetched" in text for text in reports)


def test_a_user_and_password_in_an_address_are_not_shown(site: Site, commit: str, tmp_path: Path) -> None:
    secret = site.base.replace("http://", "http://user:hunter2@")
    _super(tmp_path, f"{secret}lib.git", commit)
    found = _audit(f"{secret}super.git", tmp_path / "cache")
    assert found.value == "v3"
    assert "hunter2" not in repr(found)
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert not any(b"hunter2" in path.read_bytes() for path in kept)


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs Linux's list of processes")
def test_a_password_opens_a_repository_and_stands_in_nobody_s_arguments_or_files(
    site: Site, commit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody on a machine can read other processes' arguments; git hands addresses on to its helpers there."""
    wrong = '!f() { printf "username=user\\npassword=old\\n"; }; f'
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "credential.helper")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", wrong)
    secret = site.base.replace("http://", "http://user:hunter2@")
    _super(tmp_path, "../lib.git", commit)  # beside its parent: with the parent's password
    reports: list[str] = []
    outcome = audit(f"{secret}locked/super.git", tmp_path / "cache", seconds=30.0, reports=reports)
    assert [(one.value, one.trouble) for one in outcome.facts] == [("v3", "")]
    assert any(b"git-remote-http" in line or b"remote-http" in line for line in site.running)
    assert not any(b"hunter2" in line for line in site.running)
    assert "hunter2" not in repr((outcome, reports))
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert kept
    assert not any(b"hunter2" in path.read_bytes() for path in kept)


def test_an_ssh_address_is_asked_over_https_without_a_key(
    site: Site, commit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.{site.base}.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://code.example.org/")
    monkeypatch.setenv("GIT_SSH", "/nonexistent/ssh")
    _super(tmp_path, "git@code.example.org:lib.git", commit)
    found = _audit("git@code.example.org:super.git", tmp_path / "cache")
    assert (found.value, found.trouble) == ("v3", "")
    assert found.address == "git@code.example.org:lib.git"
