"""The lines that a run ends with, from the channels that it made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tiny import Tiny, make_channel, provider

from megabuild.plan import planning
from megabuild.plan.plan import Plan
from megabuild.run.summary import Summary, install_line


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


def test_the_line_names_packages_python_and_what_this_machine_lacks(finished: tuple[Plan, Summary]) -> None:
    plan, summary = finished
    line = install_line(plan, summary)
    assert line.startswith("CONDA_OVERRIDE_CUDA=13.2 CONDA_OVERRIDE_GLIBC=9.9 python3 ")
    assert line.endswith(f"tinypy --python 3.12 --from tiny-rehearsal -o {plan.options.output}")


def test_where_nothing_was_built_there_is_nothing_to_use(finished: tuple[Plan, Summary]) -> None:
    plan, summary = finished
    nothing = Summary(
        ok=False, config="tiny", packages=(), seconds=1.0, log=summary.log, channel=summary.channel
    )
    assert install_line(plan, nothing) == ""
