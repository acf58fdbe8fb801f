"""Kept environments: rehearsals on the host whose index gets a newer wheel, and isolated builds with a server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from channel_server import served
from engines import working
from package_files import published
from rehearsing import command, rehearse
from tiny import Tiny, build_with, make_channel, provider, wait_for
from wheel_files import make_wheel

from groundwork.user_folders import cache_folder
from megabuild.configs.config import load
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.isolation.engine import Engine
from megabuild.plan import planning
from megabuild.plan.run_choices import EnvironmentChoice
from megabuild.providers.local.interpreters import find

CONFIG = "linux_64_cpu"
#: A package of every build environment, and its newer wheel.
NAME = "typing_extensions"
NEWER = "99.0.0"


@dataclass(frozen=True, kw_only=True)
class World:
    """An output folder, a cache of its own, and a folder of wheels that becomes an index."""

    output: Path
    cache: Path
    wheels: Path
    words: tuple[str, ...]

    @property
    def state(self) -> Path:
        return self.output / f"{CONFIG}-rehearsal"

    @property
    def environ(self) -> dict[str, str]:
        return {"MEGABUILD_CACHE": str(self.cache), "PIP_FIND_LINKS": str(self.wheels)}

    def run(self, *options: str) -> str:
        """Rehearse to the end; return the output."""
        done = rehearse(CONFIG, self.output, *self.words, *options, **self.environ)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def plan(self, *options: str) -> dict[str, Any]:
        words = [*command(CONFIG, self.output, *self.words, *options), "--plan", "--json"]
        done = subprocess.run(
            words, env={**os.environ, **self.environ}, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def kill_while_compiling(self) -> None:
        """Run, and kill the driver as soon as the first object is compiled."""
        words = command(CONFIG, self.output, *self.words)
        environ = {**os.environ, **self.environ}
        with subprocess.Popen(
            words, env=environ, stdin=subprocess.DEVNULL, start_new_session=True
        ) as process:
            try:
                compiled = self.state / "tree" / "build"
                assert wait_for(lambda: process.poll() is not None or any(compiled.rglob("*.o")), 1800)
                assert process.poll() is None
            finally:
                process.kill()

    def publish_newer(self) -> None:
        """Offer a newer wheel, and forget which wheels were chosen, as `clean --kind downloads` does."""
        make_wheel(self.wheels, f"{NAME}-{NEWER}-py3-none-any.whl", {f"{NAME}.py": b"is_newer = True\n"})
        shutil.rmtree(self.cache / "wheels" / "locks")

    def installed(self) -> set[str]:
        """The versions of the package that rattler-build has unpacked for an environment."""
        folders = self.cache.glob(f"rattler/*/pkgs/{NAME}-*")
        return {folder.name.split("-")[1] for folder in folders if folder.is_dir()}


@pytest.fixture
def world(repository: Path, tmp_path: Path) -> World:
    pythons = [python for python in load(repository, CONFIG).pythons if python in find(print)]
    if not pythons:
        pytest.skip("needs a Python of the config")
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / ".megabuild").touch()
    for name in ("wheels", "channel"):  # saves downloads and packing
        if (cache_folder(os.environ) / name).is_dir():
            copied = subprocess.run(["cp", "-al", cache_folder(os.environ) / name, cache / name])
            if copied.returncode:  # on another disk
                shutil.rmtree(cache / name)
    wheels = tmp_path / "index"
    wheels.mkdir()
    words = ("--engine", "host", "--optimization", "0", "--python", pythons[-1])
    return World(output=tmp_path / "output", cache=cache, wheels=wheels, words=words)


@pytest.mark.long
def test_a_killed_run_is_resumed_with_its_packages_and_a_finished_one_can_keep_them(world: World) -> None:
    world.kill_while_compiling()
    (before,) = world.installed()
    world.publish_newer()
    plan = world.plan()
    assert plan["environments"]["automatic"] is True
    assert {"name": NAME, "kept": before, "newest": NEWER} in plan["environments"]["newer"]
    assert plan["staging"]["reasons"] == ["the last run did not finish it"]
    changed = f"{NAME} {before} -> {NEWER}"
    newest = world.plan("--environments", "newest")
    assert newest["environments"]["use"] == "newest"
    assert newest["staging"]["fingerprint"] != plan["staging"]["fingerprint"]

    told = world.run()
    assert changed in " ".join(told.split())
    assert "--environments newest" in told
    assert world.installed() == {before}

    # finished: the newest, unless told otherwise
    assert world.plan()["environments"]["use"] == "newest"
    kept = world.plan("--environments", "kept")
    assert (kept["environments"]["use"], kept["environments"]["automatic"]) == ("kept", False)
    assert all(package["exists"] for package in kept["packages"])
    assert "nothing to build" in world.run("--environments", "kept")

    # a package that is gone, and a damaged record
    for folder in world.cache.glob("channel/channels/*"):
        for package in folder.rglob(f"{NAME}-{before}-*.conda"):
            package.unlink()
    error = world.plan("--environments", "kept")["error"]
    assert f"{NAME} {before}" in error["message"]
    assert error["remedy"].startswith("pass --environments newest")
    (world.state / "environments.json").write_text("{")
    error = world.plan("--environments", "kept")["error"]
    assert (error["exit_code"], error["kind"]) == (6, "IntegrityError")
    assert "environments.json" in error["remedy"]


@pytest.mark.parametrize("kind", ["server", "folder"])
def test_an_isolated_build_gets_the_kept_packages(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working(Bubblewrap(root=Path("/")))
    channel = make_channel(tmp_path / "channel")
    build_with(channel, monkeypatch)
    tiny = Tiny(output=tmp_path / "output", channel=channel)
    monkeypatch.setenv("MEGABUILD_CACHE", str(tiny.options().cache))
    with served(tmp_path) as host:
        address = f"http://{host}/open/channel" if kind == "server" else channel
        monkeypatch.setattr(planning, "choose_provider", provider(address))
        tiny.run(engine=Engine.BUBBLEWRAP)
        packages = published(tiny.options().packages)
        make_channel(channel, (("tool", "2.0", "0"), ("python", "3.12.9", "0_cpython")))
        record = (tiny.options().state / "environments.json").read_text()
        for folder in ("tiny-rehearsal", "packages", "cache/rattler"):
            shutil.rmtree(tiny.output / folder)
        tiny.options().state.mkdir()
        (tiny.options().state / "environments.json").write_text(record)
        tiny.run(engine=Engine.BUBBLEWRAP, environments=EnvironmentChoice.KEPT)
    assert published(tiny.options().packages) == packages
    unpacked = {path.name for path in tiny.options().cache.glob("rattler/*/pkgs/*-0*") if path.is_dir()}
    assert {"tool-1.0-0", "python-3.12.1-0_cpython"} <= unpacked
    assert not unpacked & {"tool-2.0-0", "python-3.12.9-0_cpython"}
