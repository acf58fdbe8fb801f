"""Servers that misbehave, a harmed cache, hostile .gitmodules: clear cells, bounded time, nothing run, nothing lost."""

from __future__ import annotations

import os
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import submodule_world
from bad_servers import cutting, server
from git_world import Repo, daemon, modules, without_settings

from pin_audit.facts import SourceOutcome, Submodule


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's."""
    without_settings(monkeypatch)


@dataclass(frozen=True)
class Audit:
    """One run, with what it reported."""

    outcome: SourceOutcome
    reports: list[str]
    seconds: float

    @property
    def values(self) -> dict[str, str]:
        return {one.name: one.value for one in self.outcome.facts}

    @property
    def troubles(self) -> str:
        return "\n".join([self.outcome.trouble, *(one.trouble for one in self.outcome.facts)])


def audit(
    repository: str, cache: Path, *, seconds: float = 60.0, offline: bool = False, age: float = 3600.0
) -> Audit:
    reports: list[str] = []
    started = time.monotonic()
    outcome = submodule_world.audit(
        repository, cache, seconds=seconds, offline=offline, max_age=age, reports=reports
    )
    return Audit(outcome=outcome, reports=reports, seconds=time.monotonic() - started)


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """A folder with ``super.git`` and its submodule ``lib``, four commits after a tag among noise."""
    folder = tmp_path / "world"
    repo = Repo(folder / "lib.git")
    repo.tag("v3", repo.commits(300), annotated=True)
    mark = repo.commits(4)
    made = repo.make()
    top = Repo(folder / "super.git")
    texts = modules({"lib": "../lib.git"})
    noise = {f"noise{number}": os.urandom(40) for number in range(2000)}
    top.tag("v1", top.commit(files={".gitmodules": texts, **noise}, gitlinks={"lib": made[mark]}))
    top.make()
    return folder


def test_a_server_that_hangs_costs_no_more_than_the_audit_may_take(tmp_path: Path) -> None:
    with server(lambda near: time.sleep(60)) as port:
        found = audit(f"git://127.0.0.1:{port}/super.git", tmp_path, seconds=2.0)
    assert found.seconds < 8
    assert "took longer" in found.troubles


def test_a_server_that_answers_garbage_is_a_sentence(tmp_path: Path) -> None:
    with server(lambda near: near.sendall(b"\x1b[31mHTTP/1.1 200 OK\r\n\r\n" + b"\xff\0" * 4000)) as port:
        found = audit(f"git://127.0.0.1:{port}/super.git", tmp_path)
    assert found.troubles.strip()
    assert "\x1b" not in found.troubles


@pytest.mark.parametrize("after", [2000, 40_000])
def test_a_server_that_dies_mid_transfer_leaves_nothing_half_done(
    world: Path, tmp_path: Path, after: int
) -> None:
    with daemon(world) as base:
        with server(cutting(urlsplit(base).port or 0, after)) as port:
            os.environ["GIT_CONFIG_COUNT"] = "1"
            os.environ["GIT_CONFIG_KEY_0"] = f"url.git://127.0.0.1:{port}/.insteadOf"
            os.environ["GIT_CONFIG_VALUE_0"] = base
            try:
                found = audit(f"{base}super.git", tmp_path / "cache")
            finally:
                for name in ("COUNT", "KEY_0", "VALUE_0"):
                    del os.environ[f"GIT_CONFIG_{name}"]
        assert found.seconds < 30
        assert found.outcome.trouble
        good = audit(f"{base}super.git", tmp_path / "cache")
    assert good.values["lib"].startswith("v3-4-g")


def test_no_network_is_a_sentence_and_an_older_answer_still_serves(world: Path, tmp_path: Path) -> None:
    with daemon(world) as base:
        good = audit(f"{base}super.git", tmp_path / "cache")
    none = audit(f"{base}super.git", tmp_path / "empty")
    assert "Connection refused" in none.troubles or "unable to connect" in none.troubles
    later = audit(f"{base}super.git", tmp_path / "cache", age=-1.0)
    assert later.values == good.values
    assert any("is used" in text for text in later.reports)


def test_a_silent_host_is_asked_twice_and_not_once_for_each_submodule(tmp_path: Path) -> None:
    asked: list[int] = []

    def answer(near: socket.socket) -> None:
        asked.append(1)
        time.sleep(60)

    with server(answer) as port:
        names = [f"m{number}" for number in range(12)]
        texts = modules({name: f"git://127.0.0.1:{port}/{name}.git" for name in names})
        top = Repo(tmp_path / "super.git")
        top.tag("v1", top.commit(files={".gitmodules": texts}, gitlinks=dict.fromkeys(names, "1" * 40)))
        top.make()
        found = audit(f"file://{top.path}", tmp_path / "cache", seconds=4.0)
    assert found.seconds < 12
    assert len(asked) <= 4  # the places that a host has
    assert all(one.trouble for one in found.outcome.facts)
    assert len(found.outcome.facts) == 12


def test_offline_without_a_cache_is_a_sentence(tmp_path: Path) -> None:
    found = audit("https://example.org/super.git", tmp_path, offline=True)
    assert "not in the cache" in found.troubles


def _truncate(store: Path) -> None:
    pack = max((store / "objects/pack").glob("*.pack"), key=lambda path: path.stat().st_size)
    pack.chmod(0o644)
    with pack.open("r+b") as stream:
        stream.truncate(pack.stat().st_size // 2)


def test_a_harmed_store_is_made_again(world: Path, tmp_path: Path) -> None:
    url = f"file://{world}/super.git"
    good = audit(url, tmp_path)
    assert good.values["lib"].startswith("v3-4-g")
    for store in (tmp_path / "git").glob("*.git"):
        _truncate(store)
    again = audit(url, tmp_path, age=-1.0)
    assert (again.values, again.troubles.strip()) == (good.values, "")
    assert any("damaged" in text for text in again.reports)


def test_a_harmed_store_is_noticed_offline(world: Path, tmp_path: Path) -> None:
    with daemon(world) as base:
        audit(f"{base}super.git", tmp_path)
    for store in (tmp_path / "git").glob("lib-*.git"):
        _truncate(store)
    found = audit(f"{base}super.git", tmp_path, offline=True)
    assert found.values["lib"] == ""
    assert "not in the cache" in found.troubles or "damaged" in found.troubles


def test_hostile_submodules_are_cells_and_nothing_more(world: Path, tmp_path: Path) -> None:
    fired = tmp_path / "fired"
    lines = {
        "ext": f"ext::sh -c touch% {fired}",
        "upload-pack": f"--upload-pack=touch {fired}",
        "short-option": f"-u{fired}",
        "proxy-command": f"ssh://-oProxyCommand=touch%20{fired}/x",
        "local-file": f"file://{world}/lib.git",
        "local-path": f"{world}/lib.git",
        "climbs": "../../../../../../etc",
        "line-break": "https://example.org/a%0a",
        "scheme": "dict://example.org/x",
        "long": "https://example.org/" + "a" * 9000,
        "command": "../lib.git",
    }
    texts = modules(dict(lines)).replace(
        b"path = command\n", f"path = command\n\tupdate = !touch {fired}\n".encode()
    )
    texts += b'[submodule "../../../.git/modules/x"]\n\tpath = climbing-name\n\turl = ../lib.git\n'
    texts += b'[submodule "dash"]\n\tpath = -u./x\n\turl = ../lib.git\n'
    gitlinks = dict.fromkeys([*lines, "climbing-name", "-u./x"], "1" * 40)
    top = Repo(world / "hostile.git")
    top.tag("v1", top.commit(files={".gitmodules": texts}, gitlinks=gitlinks))
    top.make()
    before = sorted(path for path in tmp_path.rglob("*") if "cache" not in path.parts)
    with daemon(world) as base:
        found = audit(f"{base}hostile.git", tmp_path / "cache")
    assert found.seconds < 20
    assert not fired.exists()
    assert sorted(path for path in tmp_path.rglob("*") if "cache" not in path.parts) == before
    assert len(found.outcome.facts) == len(gitlinks)
    assert all(one.trouble and not one.value for one in found.outcome.facts)
    cells = {one.name: one.trouble for one in found.outcome.facts}
    assert "not an https" in cells["ext"]
    assert "refused" in cells["upload-pack"]
    assert "folder of this machine" in cells["local-file"]
    assert "climbs" in cells["climbs"]
    assert "sets a command" in cells["command"]
    assert "does not mention it" in cells["climbing-name"]


def test_control_characters_in_a_path_do_not_reach_the_terminal(tmp_path: Path) -> None:
    top = Repo(tmp_path / "super.git")
    top.tag("v1", top.commit(gitlinks={'"a\\033[2Jb"': "1" * 40}))
    top.make()
    found = audit(f"file://{top.path}", tmp_path / "cache")
    assert [one.name for one in found.outcome.facts] == ["a?[2Jb"]


def test_a_user_s_own_rewriting_may_lead_to_this_machine(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.{world}/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://example.org/")
    found = audit("https://example.org/super.git", tmp_path / "cache")
    assert found.values["lib"].startswith("v3-4-g")
    assert [one.address for one in found.outcome.facts if isinstance(one, Submodule)] == [
        "https://example.org/lib.git"
    ]


def test_a_store_left_by_another_user_of_the_cache_is_waited_for(world: Path, tmp_path: Path) -> None:
    """Two runs at once on one cache both end with the same descriptions."""
    url = f"file://{world}/super.git"
    found: list[Audit] = []
    threads = [threading.Thread(target=lambda: found.append(audit(url, tmp_path))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.values["lib"] for one in found}) == 1
    assert all(one.troubles.strip() == "" for one in found)
    left = [path.name for path in (tmp_path / "git").iterdir() if path.name.startswith(".")]
    assert left == []


def test_a_cache_that_cannot_be_written_is_a_sentence(world: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, not a folder")
    found = audit(f"file://{world}/super.git", tmp_path / "cache")
    assert "cannot be written" in found.troubles
