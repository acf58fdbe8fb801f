"""The driver in somebody else's feedstock: built with this machine's compiler, killed, resumed, the rest left alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import plain_engine
import pytest
from import_path import packages_path
from tiny import make_channel, provider, wait_for

from groundwork.errors import IsolationError
from groundwork.machine import machine_platform
from megabuild.configs.config import CONFIG_FOLDER, load
from megabuild.engine.output_folder import staging_caches
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.isolation.engine import Engine
from megabuild.plan import planning
from megabuild.plan.options import Options
from megabuild.run.outlook import look_ahead
from megabuild.run.session import execute
from megabuild.status.status import Status

ROOT = Path(__file__).resolve().parents[2]
#: A C library is compiled in a staging output; of the two packages made of it, the second takes three seconds.
STAND_IN = ROOT / "tests" / "data" / "greet-feedstock"
CONFIG = "linux_64_"
TOKEN = "token-that-nobody-may-read"
pytestmark = [
    pytest.mark.skipif(machine_platform() != "linux-64", reason="the stand-in has a config for linux-64"),
    pytest.mark.skipif(not shutil.which("gcc"), reason="no C compiler (Debian: g++)"),
]


@pytest.fixture(scope="module")
def engine() -> str:
    """The default, or the host where no namespaces can be made."""
    try:
        Bubblewrap(root=Path("/")).check()
    except IsolationError:
        return "host"
    return "auto"


def command(root: Path, *more: str) -> list[str]:
    program = [sys.executable, "-m", "megabuild", "build", "--root", str(root)]
    return [*program, CONFIG, "--provider", "local", "--json", *more]


def environment() -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": packages_path(ROOT), "BINSTAR_TOKEN": TOKEN}


def content(root: Path) -> dict[str, str]:
    """Every file of the feedstock outside its output folder."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {
        path.relative_to(root).as_posix(): path.read_text()
        for path in files
        if path.relative_to(root).parts[0] != "output"
    }


def build(root: Path, *more: str) -> dict[str, object]:
    done = subprocess.run(
        command(root, *more), env=environment(), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    assert TOKEN not in done.stdout + done.stderr
    return result


def log_of(root: Path) -> str:
    return (root / "output" / CONFIG / "logs" / "latest.log").read_text()


def statuses(result: Mapping[str, object]) -> dict[str, str]:
    packages = result["packages"]
    assert isinstance(packages, list)
    return {row["name"]: row["status"] for row in packages}


def test_a_feedstock_is_built_resumed_after_a_kill_and_otherwise_left_alone(
    tmp_path: Path, engine: str
) -> None:
    root = tmp_path / "greet-feedstock"
    shutil.copytree(STAND_IN, root)
    before = content(root)
    log = root / "output" / CONFIG / "logs" / "latest.log"
    with subprocess.Popen(
        command(root, "--engine", engine), env=environment(), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    ) as driver:  # fmt: skip
        assert wait_for(lambda: log.exists() and "installing the program" in log.read_text(), 240)
        assert wait_for(
            lambda: staging_caches(log.parents[1] / "out")
        )  # flushed to the disk, which may be busy
        driver.send_signal(signal.SIGKILL)
    assert "compiling the library" in log_of(root)

    again = build(root, "--engine", engine)
    assert statuses(again) == {"libgreet": "built", "greet": "built"}
    assert again["staging"] == "reuse"
    assert "compiling the library" not in log_of(root)
    assert "installing the program" in log_of(root)
    assert again["channel"] == str(root / "output" / "packages" / CONFIG)
    assert statuses(build(root, "--engine", engine)) == {"libgreet": "skipped", "greet": "skipped"}
    assert content(root) == before

    (root / "recipe" / "flags.sh").write_text("FLAGS=-O2\n")  # which no output names: a script sources it
    changed = build(root, "--engine", "host")  # where the recipe sees the variables of whoever builds it
    assert statuses(changed) == {"libgreet": "built", "greet": "built"}
    assert "compiling the library" in log_of(root)
    assert "installing the program, with ***" in log_of(root)
    for path in (root / "output").rglob("*.log"):
        assert TOKEN not in path.read_text()


def test_packages_have_the_names_that_conda_smithys_file_gives_them_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = make_channel(tmp_path / "channel")
    root = tmp_path / "named-feedstock"
    (root / "recipe").mkdir(parents=True)
    (root / CONFIG_FOLDER).mkdir()
    recipe = root / "recipe" / "recipe.yaml"
    recipe.write_text(
        "package: {name: named, version: '1'}\nbuild: {script: mkdir -p $PREFIX/n && touch $PREFIX/n/one}\n"
        "requirements: {build: [tool]}\n"
    )
    (root / CONFIG_FOLDER / f"{CONFIG}.yaml").write_text(
        f"channel_sources:\n- {channel.as_uri()}\ntarget_platform:\n- linux-64\n"
    )
    monkeypatch.setattr(planning, "choose_provider", provider(channel, pythons=()))
    config = load(root, CONFIG)
    output = tmp_path / "output"
    options = Options(
        config=config, root=root, output=output, cache=tmp_path / "cache", engine=Engine.HOST, own=False
    )
    plan = planning.make_plan(options, print)
    names = plain_engine.names(config, [recipe], output)
    assert [item.package.file_name for item in plan.items] == names
    # the engine would refuse channels beside those
    assert execute(look_ahead(plan, {}, print), Status(plan.options.run_name, plan.options.state)).ok
    assert not (output / CONFIG / "tree").exists()
