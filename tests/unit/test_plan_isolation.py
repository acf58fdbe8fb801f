"""Which isolation a config gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from groundwork.errors import IsolationError, UsageError
from megabuild.configs.config import Config, load
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.isolation.container import Container
from megabuild.plan import planning, solving
from megabuild.plan.fingerprint import Fingerprint
from megabuild.plan.isolation import choose_isolation, rehearsal_image
from megabuild.plan.options import Options
from megabuild.providers.environment import Environment


def config(**changes: Any) -> Config:
    """A config of conda-forge's, with changes."""
    return replace(load(Path(__file__).parents[2], "linux_64_cpu"), **changes)


def environment(*channels: Path | str, **given: Any) -> Environment:
    """What a provider may have made."""
    return Environment(channels=channels or ("conda-forge",), pythons=(), **given)


REHEARSAL = environment(Path("/channel"), overrides={"torch_source": ("model",)})


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("DOCKER_IMAGE", raising=False)
    return folder


def fake(folder: Path, name: str, answer: str, code: int = 0) -> None:
    program = folder / name
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] || echo "{answer}"\nexit {code}\n')
    program.chmod(0o755)


def test_a_rehearsal_runs_on_the_host(programs: Path) -> None:
    assert choose_isolation(None, config=config(), environment=REHEARSAL).name == "host"


def test_conda_forge_prefers_docker_then_podman(programs: Path) -> None:
    fake(programs, "podman", "5.2.0 rootless=true")
    assert choose_isolation(None, config=config(), environment=environment()).name == "podman"
    fake(programs, "docker", "28.0.1 []")
    assert choose_isolation(None, config=config(), environment=environment()).name == "docker"
    fake(programs, "docker", "", code=1)
    assert choose_isolation(None, config=config(), environment=environment()).name == "podman"


def test_without_an_engine_the_configs_that_work_here_are_named(programs: Path) -> None:
    with pytest.raises(IsolationError) as none:
        choose_isolation(
            None, config=config(), environment=environment(), usable=lambda: ("linux_64_cpu_debian",)
        )
    assert "docker is not installed" in none.value.message
    assert "podman is not installed" in none.value.message
    assert "--engine host" in none.value.remedy
    assert "linux_64_cpu_debian" in none.value.remedy


def test_a_plan_keeps_where_it_is_built_or_why_it_cannot_be(
    programs: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Environment(channels=("https://channel.invalid",), pythons=config().pythons)
    monkeypatch.setattr(planning, "provide", lambda request: made)
    monkeypatch.setattr(
        "megabuild.plan.isolation.usable_configs", lambda options: ("linux_64_cpu --rehearse",)
    )
    monkeypatch.setattr(planning, "_staging", lambda *args: Fingerprint())
    monkeypatch.setattr(solving, "free_threaded_gaps", lambda *args: {})
    options = Options(config=config(), root=repository, output=tmp_path, cache=tmp_path / "cache", pyg="none")
    plan = planning.make_plan(options, print)
    with pytest.raises(IsolationError, match="podman is not installed") as none:
        plan.usable_isolation()
    assert "these can be built here" in none.value.remedy
    fake(programs, "podman", "5.2.0 rootless=true")
    assert planning.make_plan(options, print).usable_isolation().name == "podman"


def test_debian_is_built_in_its_root(tmp_path: Path) -> None:
    made = environment(tmp_path, root=tmp_path, overrides={"torch_source": ("debian",)})
    isolation = choose_isolation(None, config=config(provider="debian"), environment=made)
    assert isolation == Bubblewrap(root=tmp_path, network=False)


def test_wheels_and_other_platforms_are_built_on_the_host() -> None:
    assert choose_isolation(None, config=config(provider="wheel"), environment=environment()).name == "host"
    assert (
        choose_isolation(None, config=config(platform="osx-arm64"), environment=environment()).name == "host"
    )


def test_a_container_rehearsal_uses_the_image_made_here_without_a_network(programs: Path) -> None:
    isolation = choose_isolation("docker", config=config(), environment=REHEARSAL)
    assert isinstance(isolation, Container)
    assert isolation.image == rehearsal_image()
    assert not isolation.network
    assert "make-image.sh docker" in isolation.made_here


def test_a_source_from_elsewhere_keeps_the_network(tmp_path: Path, programs: Path) -> None:
    made = environment(tmp_path, overrides={})
    isolation = choose_isolation("podman", config=config(), environment=made)
    assert isinstance(isolation, Container)
    assert isolation.network


def test_another_image_can_be_named(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_IMAGE", "mine:1")
    isolation = choose_isolation("docker", config=config(), environment=REHEARSAL)
    assert isinstance(isolation, Container)
    assert (isolation.image, isolation.made_here) == ("mine:1", "")


def test_a_config_without_an_image_says_so(programs: Path) -> None:
    with pytest.raises(IsolationError, match="no container image"):
        choose_isolation("docker", config=config(docker_image=""), environment=environment())


@pytest.mark.parametrize(
    ("name", "value"), [("DOCKER_EXECUTABLE", "nerdctl"), ("CONDA_FORGE_DOCKER_RUN_ARGS", "-e 'NAME")]
)
def test_a_variable_of_conda_smithys_that_cannot_be_used_is_named(
    programs: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=name):
        choose_isolation(None, config=config(), environment=environment())


def test_conda_smithys_variables_choose_the_engine_and_its_arguments(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(programs, "docker", "28.0.1 []")
    fake(programs, "podman", "5.2.0 rootless=true")
    monkeypatch.setenv("DOCKER_EXECUTABLE", "podman")
    monkeypatch.setenv("CONDA_FORGE_DOCKER_RUN_ARGS", "--memory 32g -e 'NAME=two words'")
    isolation = choose_isolation(None, config=config(), environment=environment())
    assert isinstance(isolation, Container)
    assert (isolation.name, isolation.more) == ("podman", ("--memory", "32g", "-e", "NAME=two words"))
