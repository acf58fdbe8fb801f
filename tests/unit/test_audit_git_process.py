"""One git process: bounded in time, silent, and gone afterwards."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from git_world import Repo, git, without_settings

from groundwork.errors import AuditError
from pin_audit.git import GitFailed, shown
from pin_audit.git import git as run


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's."""
    without_settings(monkeypatch)


def _script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_helper_that_hangs_is_killed_with_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    note = tmp_path / "pid"
    helper = _script(tmp_path / "ssh", f"echo $$ > {note}\nexec sleep 60")
    monkeypatch.setenv("GIT_SSH", str(helper))
    started = time.monotonic()
    with pytest.raises(AuditError, match="longer than 1 s"):
        run("ls-remote", "--", "ssh://example.org/x", seconds=1.0, protocols="ssh")
    assert time.monotonic() - started < 10
    time.sleep(0.2)
    pid = int(note.read_text())
    state = Path(f"/proc/{pid}/stat")
    if state.parent.parent.joinpath("self").exists():
        assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"
    else:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_protocols_that_were_not_named_are_not_spoken(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "x.git")
    repo.commits(1)
    repo.make()
    url = f"file://{repo.path}"
    with pytest.raises(GitFailed, match="not allowed"):
        run("ls-remote", "--", url, seconds=20, protocols="https")
    fired = tmp_path / "fired"
    with pytest.raises(GitFailed):
        run("ls-remote", "--", f"ext::sh -c touch% {fired}", seconds=20, protocols="file")
    assert not fired.exists()
    assert b"refs/heads/main" in run("ls-remote", "--", url, seconds=20, protocols="file")


def test_a_repository_s_hooks_and_settings_run_nothing(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "x.git")
    repo.commits(1)
    repo.make()
    fired = tmp_path / "fired"
    hook = f"touch {fired}"
    (repo.path / "hooks").mkdir(exist_ok=True)
    for name in ("reference-transaction", "post-checkout", "pre-auto-gc"):
        _script(repo.path / "hooks" / name, hook)
    git("config", "core.fsmonitor", str(_script(tmp_path / "monitor", hook)), cwd=repo.path)
    git("config", "core.sshCommand", hook, cwd=repo.path)
    commit = git("rev-parse", "main", cwd=repo.path).strip()
    fired.unlink(missing_ok=True)
    run("update-ref", "refs/heads/other", commit, seconds=20, folder=repo.path)
    assert run("describe", "--all", commit, seconds=20, folder=repo.path)
    assert not fired.exists()


def test_the_caller_s_repository_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = Repo(tmp_path / "x.git")
    repo.commits(1)
    repo.make()
    monkeypatch.setenv("GIT_DIR", str(repo.path))
    monkeypatch.chdir(repo.path)
    with pytest.raises(GitFailed):
        run("rev-parse", "--verify", "main", seconds=20)


def test_without_git_one_is_told_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AuditError, match="not installed"):
        run("version", seconds=5)


def test_no_time_left_means_no_start() -> None:
    with pytest.raises(AuditError, match="time limit was reached"):
        run("version", seconds=0.0)


def test_what_a_server_says_is_harmless_to_show() -> None:
    assert shown("a\x1b[2Jb\r\nc https://user:secret@example.org/x") == "a?[2Jb c https://example.org/x"
    assert shown("a\u202egnp\udcffé") == "a?gnp?é"
