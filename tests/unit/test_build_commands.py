"""The lines that a run ends with, from the channels that it made."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from rattler import Channel, VirtualPackage, solve
from rattler.virtual_package.virtual_package import VirtualPackageOverrides
from tiny import Tiny, make_channel, provider

from megabuild.plan import planning
from megabuild.plan.plan import Plan
from megabuild.run.commands import commands, upload
from megabuild.run.summary import Summary


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Plan, Summary]]:
    """A tiny megabuild for a GPU and a glibc that this machine does not have."""
    folder = tmp_path_factory.mktemp("finished")
    channel = make_channel(folder / "channel with blank")
    with pytest.MonkeyPatch.context() as patch:
        wanted = {"__cuda": "13.2", "__glibc": "9.9"}
        patch.setattr(planning, "provide", provider(channel, virtual_packages=wanted))
        patch.setenv("CONDA_OVERRIDE_CUDA", "")  # as without a driver
        tiny = Tiny(output=folder / "output", channel=channel)
        yield tiny.plan(), tiny.run()


def test_each_line_names_the_channels_and_what_this_machine_lacks(finished: tuple[Plan, Summary]) -> None:
    plan, summary = finished
    lines = commands(plan, summary)
    assert list(lines) == ["megabuild", "micromamba", "conda", "pixi"]
    for program, line in lines.items():
        assert "tinypy" in line
        assert "3.12" in line
        assert "CONDA_OVERRIDE_CUDA=13.2 CONDA_OVERRIDE_GLIBC=9.9 " in line, program
    assert lines["megabuild"].endswith(f"tinypy --python 3.12 --from tiny-rehearsal -o {plan.options.output}")
    assert 'libc = { family = "glibc", version = "9.9" }' in lines["pixi"]


@pytest.mark.parametrize("program", ["micromamba", "conda", "pixi"])
def test_a_solver_finds_everything_in_these_channels_in_this_order(
    program: str, finished: tuple[Plan, Summary], monkeypatch: pytest.MonkeyPatch
) -> None:
    variables, channels, specs = _taken_apart(commands(*finished)[program])
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    records = asyncio.run(
        solve(
            [Channel(channel) for channel in channels],
            specs,
            platforms=["linux-64", "noarch"],
            virtual_packages=VirtualPackage.detect(VirtualPackageOverrides.from_env()),
        )
    )
    assert {"tinypy", "tinylib", "python"} <= {record.name.normalized for record in records}


def _taken_apart(line: str) -> tuple[Mapping[str, str], list[str], list[str]]:
    words = shlex.split(line)
    variables = dict(word.split("=", 1) for word in words if word.startswith("CONDA_OVERRIDE_"))
    channels = [words[number + 1] for number, word in enumerate(words) if word == "-c"]
    return variables, channels, words[-2:]


def test_where_nothing_was_built_there_is_nothing_to_use(finished: tuple[Plan, Summary]) -> None:
    plan, summary = finished
    nothing = Summary(
        ok=False, config="tiny", packages=(), seconds=1.0, log=summary.log, channel=summary.channel
    )
    assert commands(plan, nothing) == {}


def test_only_a_whole_real_run_with_conda_forges_packages_ends_with_how_to_upload(
    finished: tuple[Plan, Summary],
) -> None:
    plan, summary = finished
    config = replace(plan.options.config, name="linux_64_cpu", provider="conda-forge")
    real = replace(plan, options=replace(plan.options, config=config, rehearse=False))
    assert upload(real, summary).endswith(f" upload linux_64_cpu --check -o {plan.options.output}")
    assert upload(real, replace(summary, ok=False)) == ""
    assert upload(replace(real, options=replace(real.options, rehearse=True)), summary) == ""
    debian = replace(config, provider="debian")
    assert upload(replace(real, options=replace(real.options, config=debian)), summary) == ""
