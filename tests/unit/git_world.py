"""Git repositories made for tests, served over file:// and git://, and what git itself says of their submodules."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_START = 1_600_000_000
_STATUS = re.compile(r"(?P<mark>.)(?P<commit>[0-9a-f]{40}) (?P<path>\S+)(?: \((?P<text>.*)\))?")
ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


def git(*words: str, cwd: Path, stdin: bytes = b"", check: bool = True) -> str:
    """Run git without anybody's settings."""
    answer = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", "-c", "advice.detachedHead=false", *words],
        cwd=cwd,
        env={**os.environ, **ENVIRONMENT},
        input=stdin,
        capture_output=True,
    )
    assert not check or answer.returncode == 0, answer.stderr.decode()
    return answer.stdout.decode()


@dataclass
class Repo:
    """A bare repository, written by git fast-import; marks stand for commits until it is made."""

    path: Path
    stream: list[bytes] = field(default_factory=list)
    count: int = 0

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    def commit(
        self,
        branch: str = "main",
        files: Mapping[str, bytes] | None = None,
        gitlinks: Mapping[str, str] | None = None,
        parents: Sequence[int] = (),
    ) -> int:
        """Add a commit on top of a branch, or of other commits; returns its mark."""
        self.count += 1
        mark = self.count
        head = f"commit refs/heads/{branch}\nmark :{mark}\ncommitter T <t@example.org> {_START + 60 * mark} +0000\n"
        body = "".join(
            [f"from :{parents[0]}\n", *(f"merge :{other}\n" for other in parents[1:])] if parents else []
        )
        self.stream.append(f"{head}data 1\nm\n{body}".encode())
        for path, content in {f"file{mark}": b"x", **(files or {})}.items():
            self.stream.append(f"M 100644 inline {path}\ndata {len(content)}\n".encode() + content + b"\n")
        for path, commit in (gitlinks or {}).items():
            self.stream.append(f"M 160000 {commit} {path}\n".encode())
        return mark

    def commits(self, number: int) -> int:
        """Add several commits; returns the last one's mark."""
        return [self.commit() for _ in range(number)][-1]

    def tag(self, name: str, mark: int, *, annotated: bool = False) -> None:
        """Tag a commit."""
        if annotated:
            date = _START + 60 * mark
            text = f"tag {name}\nfrom :{mark}\ntagger T <t@example.org> {date} +0000\ndata 1\nm\n"
        else:
            text = f"reset refs/tags/{name}\nfrom :{mark}\n\n"
        self.stream.append(text.encode())

    def make(self, *, filters: bool = True, object_format: str = "sha1") -> dict[int, str]:
        """Write it; returns the commits by mark."""
        self.path.mkdir(parents=True)
        objects = f"--object-format={object_format}"
        git("init", "--quiet", "--bare", "--initial-branch=main", objects, cwd=self.path)
        git("config", "uploadpack.allowFilter", str(filters).lower(), cwd=self.path)
        marks = self.path / "marks"
        git("fast-import", "--quiet", f"--export-marks={marks}", cwd=self.path, stdin=b"".join(self.stream))
        pairs = (line.split() for line in marks.read_text().splitlines())
        return {int(mark[1:]): commit for mark, commit in pairs}


def modules(entries: Mapping[str, str | None]) -> bytes:
    """Return a .gitmodules with paths and URLs."""
    lines = []
    for path, url in entries.items():
        lines.append(f'[submodule "{path}"]\n\tpath = {path}\n')
        lines.append(f"\turl = {url}\n" if url is not None else "")
    return "".join(lines).encode()


def status(url: str, tag: str, folder: Path, paths: Sequence[str]) -> dict[str, str]:
    """Return git's own "commit description" by path, after a real update of some submodules."""
    work = folder / "work"
    git("clone", "--quiet", f"--branch={tag}", url, str(work), cwd=folder)
    git("submodule", "--quiet", "update", "--init", "--recursive", "--", *paths, cwd=work)
    found = {}
    for line in git("submodule", "status", "--recursive", cwd=work).splitlines():
        match = _STATUS.fullmatch(line)
        assert match is not None, line
        if match["mark"] != "-":
            assert match["mark"] == " ", line
            found[match["path"]] = f"{match['commit']} {match['text']}"
    return found


@contextlib.contextmanager
def daemon(folder: Path, *settings: str) -> Iterator[str]:
    """Serve the repositories in a folder; yields their address, with a slash at its end."""
    if not (Path(git("--exec-path", cwd=folder).strip()) / "git-daemon").exists():
        pytest.skip("git daemon is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["git", *(word for text in settings for word in ("-c", text)), "daemon", "--export-all"]
    words += ["--reuseaddr", "--listen=127.0.0.1", f"--port={port}", f"--base-path={folder}"]
    process = subprocess.Popen(
        words, env={**os.environ, **ENVIRONMENT}, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                break
            time.sleep(0.05)
        yield f"git://127.0.0.1:{port}/"
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep anybody's settings from the git processes of the code under test."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
