"""A plan is made once: before a run only its environment is made, unless nothing of that could be known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tiny import Tiny, make_channel, provider

from megabuild.plan import planning
from megabuild.providers.environment import Download, Environment
from megabuild.providers.provider import ProviderRequest


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    return Tiny(output=tmp_path / "output", channel=make_channel(tmp_path / "channel"))


@pytest.mark.parametrize("known", [True, False])
def test_a_run_makes_the_environment_of_its_plan(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    real, index = provider(tiny.channel)(), make_channel(tmp_path / "index")
    rendered: list[object] = []

    def provide(request: ProviderRequest) -> Environment:
        if not request.plan:
            return real
        download = Download(what="wheels", count=1, size=5)
        return replace(
            real, channels=(index,) if known else (), ready=False, downloads=(download,), to_make=9
        )

    def render(options: object, overrides: object) -> object:
        rendered.append(overrides)
        return recipe(options, overrides)  # type: ignore[arg-type]

    recipe = planning.render_recipe
    monkeypatch.setattr(planning, "provide", provide)
    monkeypatch.setattr(planning, "render_recipe", render)
    planned = planning.make_plan(tiny.options(), print, only_plan=True)
    assert (planned.environment.ready, planned.environment.to_make) == (False, 9)
    assert bool(planned.staging.dependency) is known
    before = len(rendered)
    ready = planning.prepare(planned, print)
    assert (len(rendered) == before) is known
    assert ready.environment.channels == real.channels
    assert (ready.environment.ready, ready.environment.downloads, ready.environment.to_make) == (True, (), 0)
    assert [one.package.name for one in ready.items] == [one.package.name for one in planned.items]
    assert ready.staging.dependency
