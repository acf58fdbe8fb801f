"""Submodules described without cloning them, against git's own words; hostile addresses, passwords, dead servers."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from git_world import Repo, daemon, git, modules, status, without_settings

from groundwork.errors import AuditError
from pin_audit.addresses import parse_address
from pin_audit.facts import AuditTarget, SourceOutcome, Submodule
from pin_audit.git_command import run_git
from pin_audit.repositories import Repositories
from pin_audit.request import AuditRequest
from pin_audit.run_sources import outcome_of
from pin_audit.services import Services
from pin_audit.sources import submodules
from pin_audit.sources.submodules import DeclaredModule, parse_modules


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's."""
    without_settings(monkeypatch)


def audit(
    repository: str, cache: Path, *, tag: str = "v1", seconds: float = 60.0, offline: bool = False,
    age: float = 3600.0, reports: list[str] | None = None, tree: Path | None = None,
) -> SourceOutcome:  # fmt: skip
    told: list[str] = [] if reports is None else reports
    services = Services(cache, seconds=seconds, offline=offline, max_age=age, progress=told.append)
    target = AuditTarget(package="p", version="1", repository=repository, tag=tag, wheel="", builds=())
    request = AuditRequest(
        target=target, services=services, repositories=Repositories(services), configs=(), root=cache,
        local_tree=tree,
    )  # fmt: skip
    return outcome_of(request, "submodules", submodules.read)


def described(outcome: SourceOutcome) -> dict[str, str]:
    return {f.name: f"{f.commit} {f.value}" for f in outcome.facts if isinstance(f, Submodule) and f.value}


def troubles(outcome: SourceOutcome) -> str:
    return "\n".join([outcome.trouble, *(one.trouble for one in outcome.facts)])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, ...]]:
    """A superproject with a submodule for each way in which git describes a commit by tags, and one in another."""
    folder = tmp_path_factory.mktemp("world")
    links: dict[str, str] = {}

    def keep(repo: Repo, mark: int) -> Mapping[int, str]:
        made = repo.make()
        git("config", "uploadpack.allowAnySHA1InWant", "true", cwd=repo.path)
        links[repo.name.removesuffix(".git")] = made[mark]
        return made

    repo = Repo(folder / "after.git")  # some commits after an annotated tag, with a nearer lightweight one
    repo.tag("v1.0", repo.commits(3), annotated=True)
    repo.tag("light", repo.commits(2))
    keep(repo, repo.commits(2))
    repo = Repo(folder / "exact.git")  # exactly a lightweight tag, where annotated ones exist elsewhere
    repo.tag("v0.1", repo.commits(2), annotated=True)
    mark = repo.commits(2)
    repo.tag("v0.2", mark)
    keep(repo, mark)
    repo = Repo(folder / "before.git")  # before any tag, on a branch that was merged later
    first = repo.commits(2)
    mark = repo.commit("side", parents=[first])
    merged = repo.commit(parents=[repo.commits(3), repo.commit("side", parents=[mark])])
    repo.tag("v1.0", merged, annotated=True)
    keep(repo, mark)
    repo = Repo(folder / "rewritten.git")  # history rewritten: no branch leads to the commit any more
    base = repo.commits(2)
    repo.tag("v3", base, annotated=True)
    made = keep(repo, repo.commits(2))
    git("update-ref", "refs/heads/main", made[base], cwd=repo.path)
    repo = Repo(folder / "leaf.git")
    repo.tag("0.1", repo.commits(2))
    keep(repo, repo.commits(1))
    repo = Repo(folder / "inner.git")  # with a submodule itself, by relative address
    repo.tag("in-1", repo.commits(1), annotated=True)
    files = {".gitmodules": modules({"deps/leaf": "../leaf.git"})}
    keep(repo, repo.commit(files=files, gitlinks={"deps/leaf": links.pop("leaf")}))
    top = Repo(folder / "super.git")
    texts = {".gitmodules": modules({path: f"../{path}.git" for path in links}), "a/file": b"text"}
    top.tag("v1", top.commit(files=texts, gitlinks=links), annotated=True)
    top.make()
    return folder, tuple(links)


@pytest.mark.parametrize("kind", ["file", "git", "no filters"])
def test_descriptions_and_their_order_are_gits_own(
    kind: str, world: tuple[Path, tuple[str, ...]], tmp_path: Path
) -> None:
    folder, paths = world
    truth = status(f"file://{folder}/super.git", "v1", tmp_path, paths)
    with contextlib.ExitStack() as stack:
        setting = ("uploadpack.allowFilter=false",) if kind == "no filters" else ()
        base = f"file://{folder}/" if kind == "file" else stack.enter_context(daemon(folder, *setting))
        outcome = audit(f"{base}super.git", tmp_path / "cache")
        again = audit(f"{base}super.git", tmp_path / "cache", offline=True)
    assert troubles(outcome).strip() == ""
    truth["exact"] = (
        f"{truth['exact'].split()[0]} v0.2"  # the tag itself, where git counts from an annotated one
    )
    assert [*described(outcome).items()] == [*truth.items()]
    assert described(again) == truth
    assert truth["after"].partition(" ")[2].startswith("v1.0-4-g")


@pytest.mark.parametrize("text", [
    "", "ext::sh -c touch% /tmp/x", "fd::17/x", "--upload-pack=touch /tmp/x", "-u./x", "ssh://-oProxyCommand=x/path",
    "git@-oProxyCommand=x:path", "example.org:-u./x", "ftp://example.org/x", "file://server/share", "https://example.org/a%0a.git",
    "https://example.org/a\nhost=other", "https://example.org/\x1b[31mred", "https://example.org/../../x",
    "https://example.org/a/%2e%2e/b", "https://example.org/", "https:///nohost", "https://exa mple.org/x",
    "https://example.org:port/x", "~no-such-user/x", "https://example.org/" + "a" * 5000,
])  # fmt: skip
def test_dangerous_addresses_are_refused(text: str) -> None:
    with pytest.raises(AuditError, match="refused"):
        parse_address(text)


@pytest.mark.parametrize(("text", "parent", "expected"), [
    ("../x.git", "https://example.org/owner/name.git", "https://example.org/owner/x.git"),
    ("../../other/x.git", "https://u:p@example.org/owner/name.git/", "https://u:p@example.org/other/x.git"),
    ("../x.git", "file:///srv/git/name.git", "file:///srv/git/x.git"),
    ("git@github.com:google/flatbuffers.git", "", "https://github.com/google/flatbuffers.git"),
    ("ssh://git@example.org:22/a/b", "", "https://example.org/a/b"),
    ("git://127.0.0.1:9418/x.git", "", "git://127.0.0.1:9418/x.git"),
    ("/srv/git/x.git", "", "file:///srv/git/x.git"),
])  # fmt: skip
def test_addresses_are_understood(text: str, parent: str, expected: str) -> None:
    assert parse_address(text, parent) == expected


@pytest.mark.parametrize(
    "text", ["../../../x.git", "../a/../../../x.git", "file:///etc/x", "/etc/x.git", "~/x", "x.git", ".."]
)
def test_a_remote_parent_leads_neither_here_nor_beyond_its_host(text: str) -> None:
    with pytest.raises(AuditError, match="refused"):
        parse_address(text, "https://example.org/owner/name.git")


def test_gitmodules_are_read_without_what_git_ignores(tmp_path: Path) -> None:
    (tmp_path / "drawn").write_text('[submodule "x"]\npath = x\nurl = https://example.org/x\n')
    found = parse_modules(
        b'[submodule "../../.git/hooks"]\npath = a\nurl = u\n[submodule "no path"]\nurl = u\n'
        b'[submodule "dash"]\npath = -u./x\nurl = u\n[core]\nfsmonitor = touch fired\n'
        + f"[include]\npath = {tmp_path}/drawn\n".encode()
        + b'[submodule "good"]\n\tpath = good\n\turl = ../good.git\n\tupdate = none\n'
    )
    assert [(path, entry.url, entry.update) for path, entry in found.items()] == [
        ("good", "../good.git", "none")
    ]
    for garbage in (b"\0\1\2 garbage [", b'[submodule "a"\npath', b"<!DOCTYPE html>", b"#" * (2 << 20)):
        with pytest.raises(AuditError):
            parse_modules(garbage)


def test_words_of_gitmodules_are_read_in_any_case() -> None:
    found = parse_modules(b'[Submodule "D"]\n\tPATH = d\n\tUrl = ../d.git\n')
    assert found == {"d": DeclaredModule(url="../d.git", line=1)}


@pytest.mark.parametrize(("default", "named"), [("sha1", "sha256"), ("sha256", "sha1"), ("sha256", "sha256")])
def test_a_repository_is_read_whatever_the_format_of_its_objects(
    default: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DEFAULT_HASH", default)  # git 3 has sha256
    inner, top = Repo(tmp_path / "inner.git"), Repo(tmp_path / "top.git")
    inner.tag("in-1", inner.commits(2))
    commit = inner.make(object_format=named)[2]
    files = {".gitmodules": modules({"inner": "../inner.git"})}
    top.tag("v1", top.commit(files=files, gitlinks={"inner": commit}), annotated=True)
    made = top.make(object_format=named)[1]
    for ref in ("v1", made):
        outcome = audit(top.path.as_uri(), tmp_path / f"cache-{ref}", tag=ref)
        assert described(outcome) == {"inner": f"{commit} in-1"}, troubles(outcome)


def test_hostile_submodules_are_cells_and_nothing_more(tmp_path: Path) -> None:
    fired, folder = tmp_path / "fired", tmp_path / "world"
    lines = {"ext": f"ext::sh -c touch% {fired}", "option": f"--upload-pack=touch {fired}",
             "proxy": f"ssh://-oProxyCommand=touch%20{fired}/x", "file": f"file://{folder}/hostile.git",
             "climbs": "../../../../../../etc", "command": "../hostile.git", "gone": "../hostile.git"}  # fmt: skip
    texts = modules(dict(lines)).replace(
        b"path = command\n", f"path = command\n\tupdate = !touch {fired}\n".encode()
    )
    links = dict.fromkeys([*lines, "undeclared", '"a\\033[2Jb"'], "1" * 40)
    top = Repo(folder / "hostile.git")
    top.tag("v1", top.commit(files={".gitmodules": texts}, gitlinks=links))
    top.make()
    with daemon(folder) as base:
        outcome = audit(f"{base}hostile.git", tmp_path / "cache")
    assert not fired.exists()
    assert {one.name for one in outcome.facts} == {*lines, "undeclared", "a?[2Jb"}
    assert all(one.trouble and not one.value for one in outcome.facts)


def test_a_repositorys_hooks_and_settings_run_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = Repo(tmp_path / "x.git")
    repo.commits(1)
    repo.make()
    fired = tmp_path / "fired"
    (repo.path / "hooks").mkdir(exist_ok=True)
    for name in ("reference-transaction", "post-checkout"):
        (repo.path / "hooks" / name).write_text(f"#!/bin/sh\ntouch {fired}\n")
        (repo.path / "hooks" / name).chmod(0o755)
    git("config", "core.fsmonitor", f"touch {fired}", cwd=repo.path)
    run_git(repo.path, "update-ref", "refs/heads/other", "main")
    with pytest.raises(AuditError):
        run_git(repo.path, "ls-remote", "--", f"ext::sh -c touch% {fired}", GIT_ALLOW_PROTOCOL="file")
    assert not fired.exists()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AuditError, match="not installed"):
        run_git(repo.path, "version")


@contextlib.contextmanager
def server(answer: Callable[[socket.socket], object]) -> Iterator[int]:
    """Answer every connection in a thread, badly; yields the port."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                answer(self.request)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as made:
        made.daemon_threads = True
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield int(made.server_address[1])
        made.shutdown()


def test_servers_that_hang_or_answer_garbage_cost_bounded_time(tmp_path: Path) -> None:
    started = time.monotonic()
    with server(lambda near: time.sleep(60)) as port:
        assert "took longer" in troubles(audit(f"git://127.0.0.1:{port}/x.git", tmp_path, seconds=2.0))
    with server(lambda near: near.sendall(b"\x1b[31mHTTP/1.1 200 OK\r\n\r\n" + b"\xff\0" * 4000)) as port:
        found = troubles(audit(f"git://127.0.0.1:{port}/x.git", tmp_path))
    assert found.strip()
    assert "\x1b" not in found
    assert time.monotonic() - started < 30


def test_an_older_answer_serves(world: tuple[Path, tuple[str, ...]], tmp_path: Path) -> None:
    reports: list[str] = []
    with daemon(world[0]) as base:
        good = audit(f"{base}super.git", tmp_path / "cache")
    later = audit(f"{base}super.git", tmp_path / "cache", age=-1.0, reports=reports)
    assert described(later) == described(good) != {}
    assert any(good.facts[0].where.fetched in text for text in reports)
    assert "--offline" in troubles(audit(f"{base}super.git", tmp_path / "empty", offline=True))


class _Handler(BaseHTTPRequestHandler):
    """git's own git-http-backend; everything below ``locked`` wants a password."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Pass a request on, unless it lacks the password."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                self.server.running.add(path.read_bytes())  # type: ignore[attr-defined]
        body = self._read_body()
        place, _, query = self.path.partition("?")
        login = f"Basic {base64.b64encode(b'user:hunter2').decode()}"
        if place.startswith("/locked/") and self.headers.get("Authorization") != login:
            head, answer = b'Status: 401 no\r\nWWW-Authenticate: Basic realm="x"', b""
        else:
            environ = {
                "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.server.folder),  # type: ignore[attr-defined]
                "GIT_HTTP_EXPORT_ALL": "1", "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "PATH_INFO": place.removeprefix("/locked"), "QUERY_STRING": query, "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            }  # fmt: skip
            command = ["git", "http-backend"]
            done = subprocess.run(command, input=body, env=environ, stdout=subprocess.PIPE, check=True)
            head, _, answer = done.stdout.partition(b"\r\n\r\n")
        fields = message_from_bytes(head)
        self.send_response(int(fields.get("Status", "200").split()[0]))
        for name, value in {**fields, "Content-Length": str(len(answer))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)
        self.server.sent.append(len(answer))  # type: ignore[attr-defined]

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ThreadingHTTPServer]:
    """A server of the repositories in ``world``."""
    made = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    made.folder, made.sent, made.running = tmp_path / "world", [], set()  # type: ignore[attr-defined]
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


def test_a_password_opens_a_repository_and_is_nowhere_to_be_seen(
    site: ThreadingHTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody on a machine can read other processes' arguments. The history comes without its files."""
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "credential.helper")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", '!f() { printf "username=user\\npassword=old\\n"; }; f')
    repo = Repo(tmp_path / "world" / "lib.git")
    repo.commit(files={"large": os.urandom(1 << 20)})
    repo.tag("v3", repo.commits(3), annotated=True)
    made = repo.make()
    top = Repo(tmp_path / "world" / "super.git")
    links = {"lib": made[4], "closed": made[4]}
    texts = modules({"lib": "../lib.git", "closed": f"http://127.0.0.1:{site.server_port}/locked/other.git"})
    top.tag("v1", top.commit(files={".gitmodules": texts}, gitlinks=links))
    top.make()
    reports: list[str] = []
    url = f"http://user:hunter2@127.0.0.1:{site.server_port}/locked/super.git"
    outcome = audit(url, tmp_path / "cache", reports=reports)
    found = {one.name: (one.value, one.trouble) for one in outcome.facts}
    assert found["lib"] == ("v3", "")
    assert found["closed"][1]
    assert any(b"remote-http" in line for line in site.running)  # type: ignore[attr-defined]
    assert not any(b"hunter2" in line for line in site.running)  # type: ignore[attr-defined]
    assert "hunter2" not in repr((outcome, reports))
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert not any(b"hunter2" in path.read_bytes() for path in kept)
    assert sum(site.sent) < 200_000  # type: ignore[attr-defined]


def test_ssh_is_asked_over_https_and_a_users_rewriting_is_followed(
    world: tuple[Path, tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{world[0]}/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://code.example.org/")
    monkeypatch.setenv("GIT_DIR", str(tmp_path))  # a caller's repository is not used
    assert len(described(audit("git@code.example.org:super.git", tmp_path / "cache"))) == 6
