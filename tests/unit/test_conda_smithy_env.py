"""What conda-smithy's variables do here."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundwork.errors import UsageError
from megabuild.isolation.container import Container
from megabuild.plan import conda_smithy_env


def test_without_them_the_defaults_hold() -> None:
    assert list(conda_smithy_env.list_engines({})) == ["docker", "podman"]
    assert conda_smithy_env.read_run_arguments({}) == ()


def test_the_engine_of_conda_smithys_variable_is_the_only_one_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert conda_smithy_env.list_engines({"DOCKER_EXECUTABLE": "podman"}) == ("podman",)
    podman = tmp_path / "podman"
    podman.write_text("#!/bin/sh\n")
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert conda_smithy_env.list_engines({"DOCKER_EXECUTABLE": str(podman)}) == ("podman",)


@pytest.mark.parametrize("program", ["nerdctl", "/nowhere/podman", "podman-remote"])
def test_a_program_that_is_not_driven_is_refused(program: str) -> None:
    with pytest.raises(UsageError, match="DOCKER_EXECUTABLE"):
        conda_smithy_env.list_engines({"DOCKER_EXECUTABLE": program})


def test_arguments_of_docker_run_stand_before_the_image() -> None:
    more = conda_smithy_env.read_run_arguments(
        {"CONDA_FORGE_DOCKER_RUN_ARGS": "--memory 32g -e 'NAME=two words'"}
    )
    assert more == ("--memory", "32g", "-e", "NAME=two words")
    container = Container(name="docker", image="image", network=False, made_here="here", more=more)
    vars(container)["_rootless"] = False
    command = container.command(["true"], mounts=[], env={}, cwd="/", name="one")
    assert command[-6:] == [*more, "image", "true"]


def test_arguments_that_no_shell_would_read_are_refused() -> None:
    with pytest.raises(UsageError, match="No closing quotation"):
        conda_smithy_env.read_run_arguments({"CONDA_FORGE_DOCKER_RUN_ARGS": "-e 'NAME"})
