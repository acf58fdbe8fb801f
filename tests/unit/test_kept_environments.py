"""Environments of a config's last run, kept while its channel gets newer packages."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from channel_server import PASSWORD, USER, served
from msgspec import structs
from package_files import published
from small_files import write
from stop_at_write import every_stop
from tiny import ROOT, Made, Tiny, build_with, make_channel, provider

from groundwork import files
from groundwork.channel import Channel
from groundwork.channel_folder import MADE_OF
from groundwork.errors import (
    BuildError,
    IntegrityError,
    MegabuildError,
    PreflightError,
    ProviderError,
    UsageError,
)
from groundwork.machine import machine_platform
from groundwork.network.channel_logins import Channels, Login, separate_logins
from megabuild.configs.platforms import Platforms
from megabuild.isolation.base import Host, Isolation
from megabuild.isolation.bubblewrap import Bubblewrap
from megabuild.isolation.engine import Engine
from megabuild.plan import environment_record, kept_channels, kept_environments, planning, solving
from megabuild.plan.environment_packages import solve_all
from megabuild.plan.environment_record import EnvironmentRecord, RecordedChannel, RecordedPackage
from megabuild.plan.extensions import ExtensionPlanner
from megabuild.plan.kept_channels import KeptPlace, VanishedError, keep_channels
from megabuild.plan.kept_environments import day
from megabuild.plan.plan import KeptEnvironments, Method, NewerPackage, PlanItem, Task
from megabuild.plan.run_choices import EnvironmentChoice
from megabuild.plan.torch_version import TorchRelease
from megabuild.plan.tree_reuse import TreeUse
from megabuild.providers.environment import Environment, Pending
from megabuild.run.plan_report import plan_document, plan_lines

pytestmark = pytest.mark.skipif(machine_platform() != "linux-64", reason="the tiny config is for linux-64")
KEPT = EnvironmentChoice.KEPT
NEWEST = EnvironmentChoice.NEWEST
NEWER_TOOL = (("tool", "2.0", "0"),)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """A tiny megabuild whose log tells the version of a package of its build environment; tests change its channel.

    Next to its folder are copies of it: new, unfinished and finished. All tests work in its folder, since results of a
    run are bound to one.
    """
    folder = tmp_path_factory.mktemp("shared")
    here = folder / "here"
    channel = make_channel(here / "channel")
    shutil.copytree(ROOT, here / "root")
    script = here / "root" / "recipe" / "build_staging.sh"
    script.write_text(
        f'{script.read_text()}\necho "built with tool $(cat "$BUILD_PREFIX/share/tool/note")"\n'
    )
    tiny = Tiny(output=here / "output", channel=channel, root=here / "root")
    shutil.copytree(here, folder / "new", symlinks=True)
    with pytest.MonkeyPatch.context() as patch:
        build_with(channel, patch)
        fail(tiny, patch)
        shutil.copytree(here, folder / "unfinished", symlinks=True)
        shutil.rmtree(tiny.output)
        tiny.run()
    here.rename(folder / "finished")
    return tiny


def restore(tiny: Tiny, state: str) -> None:
    """Give the folder the content of one of its copies."""
    here = tiny.output.parent
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(here.with_name(state), here, symlinks=True)


@pytest.fixture
def tiny(shared: Tiny, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """The tiny megabuild before its first run."""
    build_with(shared.channel, monkeypatch)
    restore(shared, "new")
    return shared


@pytest.fixture
def unfinished(tiny: Tiny) -> None:
    """Its first run ended before libtorch was compiled."""
    restore(tiny, "unfinished")


@pytest.fixture
def finished(tiny: Tiny) -> None:
    """Its first run is finished."""
    restore(tiny, "finished")


def fail(tiny: Tiny, patch: pytest.MonkeyPatch, **choices: Any) -> None:
    """Run, and end before libtorch is compiled."""
    with patch.context() as failing:
        failing.setenv("TINY_STAGING_FAIL", "ends as it is told to")
        with pytest.raises(BuildError):
            tiny.run(**choices)
    assert "ends as it is told to" in tiny.log_text()


def rewrite(tiny: Tiny, **changes: Any) -> None:
    """Change the record of the last run's environments."""
    path = tiny.options().state / environment_record.NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def lines(tiny: Tiny, **choices: Any) -> list[str]:
    return plan_lines(tiny.outlook(**choices))


@pytest.mark.usefixtures("finished")
def test_a_run_records_the_packages_of_its_environments(tiny: Tiny) -> None:
    record = environment_record.read(tiny.options().state)
    assert record is not None
    assert (record.config, record.provider, record.is_complete) == ("tiny-rehearsal", "conda-forge", True)
    assert [package.label for package in record.packages] == ["python 3.11.7", "python 3.12.1", "tool 1.0"]
    tool = record.packages[-1]
    assert (tool.channel, tool.build, len(tool.sha256)) == (str(tiny.channel), "0", 64)
    assert tool.url == f"{tiny.channel.as_uri()}/linux-64/{tool.file_name}"
    assert abs(record.planned - os.stat(tiny.options().state / environment_record.NAME).st_mtime) < 60


@pytest.mark.usefixtures("finished")
def test_a_finished_config_takes_the_newest_packages_unless_told_otherwise(tiny: Tiny) -> None:
    make_channel(tiny.channel, NEWER_TOOL)
    for choices in ({}, {"environments": NEWEST}):
        outlook = tiny.outlook(**choices)
        assert plan_document(outlook)["environments"] == {
            "use": "newest", "since": None, "automatic": False, "newer": [],
        }  # fmt: skip
    outlook = tiny.outlook(environments=KEPT)
    assert outlook.progress.is_done
    record = environment_record.read(tiny.options().state)
    assert record is not None
    newer = [{"name": "tool", "kept": "1.0", "newest": "2.0"}]
    assert plan_document(outlook)["environments"] == {
        "use": "kept", "since": record.planned, "automatic": False, "newer": newer,
    }  # fmt: skip
    assert f"environments of {day(record.planned)}: 1 package is newer: tool 1.0 -> 2.0" in plan_lines(
        outlook
    )


@pytest.mark.usefixtures("finished")
def test_kept_environments_have_the_values_that_their_provider_had(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the version of the installed compiler, which is another one by now."""
    rewrite(tiny, overrides={"torch_optimization": ["0"]})
    now = provider(tiny.channel, overrides={"torch_optimization": ("2",)})
    monkeypatch.setattr(planning, "choose_provider", now)
    for choice, value in ((KEPT, "0"), (NEWEST, "2")):
        assert tiny.plan(environments=choice).environment.overrides["torch_optimization"] == (value,)


def test_environments_of_extensions_are_kept_too_as_far_as_channels_have_their_packages(tiny: Tiny) -> None:
    """One that cannot be built stops no run; another extension comes from the run, not from a channel."""
    plan = tiny.plan()
    first, *_ = plan.items
    needs = {"ext-a": ("tool 1.*",), "ext-b": ("tool >=1", "ext-a", "tinylib")}
    items = []
    for name, host in needs.items():
        items.append(PlanItem(package=replace(first.package, name=name, host=host, run=(), test=())))
    task = Task(extension="x", python="3.12", recipe=tiny.root, items=tuple(items), overrides={})
    own = {each.specs for each in kept_environments.requirements(plan)}
    more = kept_environments.requirements(replace(plan, extensions=(task,)))
    added = {each.specs: each.is_optional for each in more if each.specs not in own}
    assert added == {("tool 1.*",): True, ("tool >=1",): True}


@pytest.mark.parametrize("machine", ["linux-64", "linux-aarch64"])
def test_a_record_has_all_that_a_later_run_compares_or_takes(
    machine: str, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of the provider alone: those of the run's options are a later run's own."""
    of_provider = {"blas_impl": ("mkl",)}
    monkeypatch.setattr(planning, "choose_provider", provider(tiny.channel, overrides=of_provider))
    plan = tiny.plan(optimization="0", pythons=("3.12",))
    other = Channel.parse("https://a.invalid/x")
    environment = replace(plan.environment, channels=(*plan.environment.channels, other))
    config = replace(plan.options.config, build_platform=machine)
    plan = replace(plan, environment=environment, options=replace(plan.options, config=config))
    monkeypatch.setattr(kept_environments, "solve_all", lambda *_: {})
    kept_environments.keep_record(plan)
    record = environment_record.read(plan.options.state)
    assert record is not None
    assert record.channels == (
        RecordedChannel(address=str(tiny.channel), folder=str(tiny.channel), this_machine=True),
        RecordedChannel(address="https://a.invalid/x", folder=None, this_machine=False),
    )
    assert (record.provider, record.cross_from) == ("conda-forge", "" if machine == "linux-64" else machine)
    assert (record.pythons, record.overrides, record.packages) == (("3.12",), of_provider, ())
    assert not record.is_complete


@pytest.mark.parametrize("number", range(3))
def test_environments_are_not_kept_if_any_package_names_its_channels(number: int, tiny: Tiny) -> None:
    plan = tiny.plan()
    kept_environments.check_keepable(plan)
    items = list(plan.items)
    items[number] = replace(items[number], package=replace(items[number].package, names_channels=True))
    with pytest.raises(PreflightError, match=f"^{items[number].package.name}: .* hash over the channels"):
        kept_environments.check_keepable(replace(plan, items=tuple(items)))


class Asked(Exception):
    """A call that a test ends."""


@pytest.mark.usefixtures("finished")
@pytest.mark.parametrize("isolation", [Host(), Bubblewrap(root=Path("/"))], ids=lambda one: one.name)
@pytest.mark.parametrize("machine", ["linux-64", "linux-aarch64"])
def test_kept_channels_are_for_the_platforms_and_the_caches_of_the_run(
    machine: str, isolation: Isolation, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Builds on the host and isolated ones unpack packages in caches of their own."""

    def keep(record: EnvironmentRecord, given: Environment, place: KeptPlace) -> None:
        raise Asked(record, given.channels, place)

    monkeypatch.setattr(planning, "keep_channels", keep)
    monkeypatch.setattr(planning, "isolation_of", lambda *_, **__: isolation)
    options = tiny.options(environments=KEPT)
    options = replace(options, config=replace(options.config, build_platform=machine))
    rewrite(tiny, cross_from=options.config.platforms.cross_from)
    with pytest.raises(Asked) as asked:
        planning.preview_plan(options, lambda _: None)
    record, channels, place = asked.value.args
    assert record == environment_record.read(options.state)
    assert channels == (Channel.of_folder(tiny.channel, this_machine=True),)
    unpacked = options.unpacked_folder(isolation)
    assert place == KeptPlace(cache=options.cache, unpacked=unpacked, platforms=options.config.platforms)


@pytest.mark.parametrize("of_provider", [None, "provider's"])
@pytest.mark.parametrize("of_user", [None, "user's"])
def test_the_source_is_the_user_s_else_the_provider_s(
    of_user: str | None, of_provider: str | None, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {name: write(tmp_path / name / "a.cpp").parent for name in ("user's", "provider's")}
    release = TorchRelease(source=places.get(of_user or ""))
    made = provider(tiny.channel, source=places.get(of_provider or ""))
    monkeypatch.setattr(planning, "read_release", lambda *_: release)
    monkeypatch.setattr(planning, "choose_provider", made)
    expected = places.get(of_user or of_provider or "")
    assert tiny.plan(rehearse=False, engine=Engine.HOST).environment.source == expected


@pytest.mark.usefixtures("finished")
def test_a_patch_is_tried_on_the_tree_of_the_last_run(tiny: Tiny) -> None:
    make_channel(tiny.channel, NEWER_TOOL)
    write(tiny.root / "rehearsal" / "model" / "t1.c", "patched\n")
    assert tiny.outlook(environments=KEPT).progress.tree.use is TreeUse.RESUME
    before = environment_record.read(tiny.options().state)
    assert tiny.run(environments=KEPT).ok
    assert "[1/1 0.5s]" in tiny.log_text()
    assert "built with tool 1.0" in tiny.log_text()
    assert environment_record.read(tiny.options().state) == before
    write(tiny.root / "rehearsal" / "model" / "t2.c", "patched\n")
    assert tiny.run().ok
    assert "built with tool 2.0" in tiny.log_text()


@pytest.mark.usefixtures("unfinished")
def test_an_unfinished_run_is_resumed_with_its_packages(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [line for line in lines(tiny) if "environments" in line]  # nothing is newer
    make_channel(tiny.channel, NEWER_TOOL)
    outlook = tiny.outlook()
    assert outlook.progress.tree.reasons == ("the last run did not finish it",)
    assert plan_document(outlook)["environments"]["automatic"] is True
    told = plan_lines(outlook)
    assert "they are kept to resume the unfinished run; for the newest: --environments newest" in told
    assert any(line.endswith(": 1 package is newer: tool 1.0 -> 2.0") for line in told)
    assert tiny.outlook(environments=NEWEST).plan.staging != outlook.plan.staging
    fail(tiny, monkeypatch)  # again, with the kept packages
    assert tiny.run().ok
    assert "built with tool 1.0" in tiny.log_text()
    assert tiny.plan().kept is None


@pytest.mark.usefixtures("finished")
def test_a_run_with_kept_packages_is_resumed_with_them(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    make_channel(tiny.channel, NEWER_TOOL)
    write(tiny.root / "rehearsal" / "model" / "t1.c", "patched\n")
    fail(tiny, monkeypatch, environments=KEPT)
    assert tiny.run().ok
    assert "built with tool 1.0" in tiny.log_text()
    assert tiny.plan().kept is None


@pytest.mark.usefixtures("finished")
def test_newest_packages_that_fit_no_longer_are_not_told_as_no_newer_ones(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:

    def solved(needed: Any, given: Environment) -> Any:
        if given.channels[0].folder == tiny.channel:  # not one of kept packages
            raise PreflightError("tool 2.0 needs zlib")
        return solve_all(needed, given)

    monkeypatch.setattr(kept_environments, "solve_all", solved)
    kept = tiny.plan(environments=KEPT).kept
    assert kept is not None
    assert (kept.newer, kept.unknown) == ((), "tool 2.0 needs zlib")


@pytest.mark.usefixtures("unfinished")
def test_the_newest_packages_replace_those_of_an_unfinished_run(tiny: Tiny) -> None:
    make_channel(tiny.channel, NEWER_TOOL)
    assert tiny.run(environments=NEWEST).ok
    assert "built with tool 2.0" in tiny.log_text()


def test_a_run_with_nothing_to_build_does_not_finish_another_one(tiny: Tiny) -> None:
    tiny.run(pythons=("3.12",))
    write(tiny.root / "recipe" / "build_py.sh", "exit 1")
    with pytest.raises(MegabuildError):
        tiny.run(pythons=("3.11",))
    shutil.copy(ROOT / "recipe" / "build_py.sh", tiny.root / "recipe" / "build_py.sh")
    assert all(row.status == "skipped" for row in tiny.run(pythons=("3.12",)).packages)
    make_channel(tiny.channel, NEWER_TOOL)
    assert tiny.plan().kept is not None


@pytest.mark.usefixtures("finished")
def test_a_run_whose_packages_exist_is_finished(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.root / "rehearsal" / "model" / "t1.c"
    text = model.read_text()
    model.write_text("broken\n")
    fail(tiny, monkeypatch)
    model.write_text(text)
    make_channel(tiny.channel, NEWER_TOOL)
    assert tiny.plan().kept is not None
    assert all(row.status == "skipped" for row in tiny.run().packages)
    assert tiny.plan().kept is None


def test_a_later_run_adds_pythons_to_kept_environments(tiny: Tiny) -> None:
    tiny.run(pythons=("3.12",))
    make_channel(tiny.channel, (*NEWER_TOOL, ("python", "3.11.9", "0_cpython")))
    outlook = tiny.outlook(environments=KEPT)
    assert outlook.progress.tree.use is TreeUse.REUSE
    assert outlook.plan.kept is not None
    assert [package.name for package in outlook.plan.kept.newer] == ["python", "tool"]
    assert outlook.plan.kept.newer[0] == NewerPackage(name="python", kept="3.11.7", newest="3.11.9")


def test_a_later_run_of_other_pythons_keeps_the_packages_that_this_run_s_choices_need(tiny: Tiny) -> None:
    """A rehearsal's are recorded, not those of a build of PyTorch."""
    make_channel(tiny.channel, (("further", "1.0", "0"),))
    recipe = tiny.root / "recipe" / "recipe.yaml"
    own = '        - if: torch_source == "model" and match(python, "3.11.*")\n          then: further\n'
    recipe.write_text(
        recipe.read_text().replace("        - python\n      run:", f"        - python\n{own}      run:")
    )
    tiny.run(pythons=("3.12",))
    record = environment_record.read(tiny.options().state)
    assert record is not None
    assert "further 1.0" in [package.label for package in record.packages]


@pytest.mark.usefixtures("finished")
def test_nothing_is_prepared_for_kept_packages_but_wheels_of_pytorch(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pending, left in ((Pending(wheels=1), None), (Pending(wheels=1, sources=1),) * 2):
        monkeypatch.setattr(planning, "choose_provider", provider(tiny.channel, pending=pending))
        assert tiny.plan(environments=KEPT).environment.pending == left
    made = Environment(channels=(), pythons=("3.11", "3.12"), pending=Pending(bytes=1))
    monkeypatch.setattr(planning, "choose_provider", lambda request: Made(request, made))
    with pytest.raises(ProviderError, match="the Debian root of the last run was deleted"):
        tiny.plan(environments=KEPT)
    assert tiny.plan().kept is None


def test_environments_are_not_kept_if_the_recipe_names_its_channels(tiny: Tiny) -> None:
    plan = tiny.plan()
    kept_environments.check_keepable(plan)
    first, *others = plan.items
    named = replace(first, package=replace(first.package, names_channels=True))
    with pytest.raises(PreflightError, match="tinylib: its build string has a hash over the channels"):
        kept_environments.check_keepable(replace(plan, items=(named, *others)))


def test_a_channel_that_does_not_answer_is_no_deleted_root() -> None:
    assert not planning._is_known(Environment(channels=(), pythons=()), is_requested=True)


@pytest.mark.parametrize("place", ["missing", "file"])
def test_a_folder_without_a_run_has_no_environments(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert environment_record.read(tmp_path / place) is None


def test_a_run_can_do_without_the_environments_of_pythons_that_a_later_run_may_add(tiny: Tiny) -> None:
    further = kept_environments._of_further_pythons(tiny.plan(pythons=("3.12",)))
    assert any("3.11" in " ".join(each.specs) for each in further)
    assert all(each.is_optional for each in further)


@pytest.mark.usefixtures("unfinished")
def test_environments_that_fit_no_longer_are_kept_on_request_only(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PreflightError("tinylib: its host environment cannot be solved", "change the recipe")

    monkeypatch.setattr(kept_environments, "check_keepable", refuse)
    plan = tiny.plan()
    assert plan.kept is None
    assert plan.notes[0].startswith("the environments of the last run are not kept: tinylib: its host")
    with pytest.raises(PreflightError, match=r"cannot be kept: tinylib: its host environment") as caught:
        tiny.plan(environments=KEPT)
    assert "--environments newest" in caught.value.remedy


@pytest.mark.usefixtures("unfinished")
def test_without_a_tree_there_is_nothing_to_resume(tiny: Tiny) -> None:
    shutil.rmtree(tiny.options().state / "tree")
    assert tiny.plan().kept is None


@pytest.mark.usefixtures("unfinished")
def test_a_vanished_package_is_named(tiny: Tiny) -> None:
    make_channel(tiny.channel, NEWER_TOOL)
    (package,) = tiny.channel.glob("linux-64/tool-1.0-*.conda")
    package.unlink()
    make_channel(tiny.channel, ())
    with pytest.raises(VanishedError) as error:
        tiny.plan(environments=KEPT)
    assert error.value.message == (
        "tiny-rehearsal: the environments of the last run cannot be kept: 1 package vanished from "
        f"{tiny.channel}: tool 1.0"
    )
    assert error.value.remedy == "pass --environments newest: the run then uses the newest packages"
    plan = tiny.plan()
    assert plan.kept is None
    assert plan.notes[0].startswith("the environments of the last run are not kept: 1 package vanished")
    assert tiny.run().ok
    assert "built with tool 2.0" in tiny.log_text()


@pytest.mark.usefixtures("unfinished")
def test_another_file_of_the_same_name_is_no_kept_package(tiny: Tiny) -> None:
    shutil.rmtree(tiny.options().cache / "rattler")
    make_channel(tiny.channel, (("tool", "1.0", "0"),))  # with another date in it
    (package,) = tiny.channel.glob("linux-64/tool-1.0-*.conda")
    package.write_bytes(package.read_bytes() + b"x")
    for _ in range(2):  # nor is it one that an earlier run has taken
        with pytest.raises(VanishedError, match=r"tool 1\.0"):
            tiny.plan(environments=KEPT)


@pytest.mark.usefixtures("unfinished")
@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "megabuild/environments"}', "\0\xff"])
def test_a_damaged_record_is_named_with_a_way_out(content: str, tiny: Tiny) -> None:
    path = tiny.options().state / environment_record.NAME
    path.write_text(content)
    with pytest.raises(IntegrityError) as error:
        tiny.plan(environments=KEPT)
    assert str(path) in error.value.message
    assert error.value.remedy == f"run: rm {path}; the next run then uses the newest packages"
    plan = tiny.plan()
    assert plan.kept is None
    assert str(path) in plan.notes[0]


@pytest.mark.usefixtures("unfinished")
def test_a_run_replaces_a_damaged_record(tiny: Tiny) -> None:
    state = tiny.options().state
    (state / environment_record.NAME).write_text("{")
    assert tiny.run().ok
    assert environment_record.read(state) is not None


@pytest.mark.usefixtures("finished")
def test_a_link_in_place_of_the_record_is_not_followed(tiny: Tiny, tmp_path: Path) -> None:
    path = tiny.options().state / environment_record.NAME
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IntegrityError, match="is a symbolic link"):
        tiny.plan(environments=KEPT)


def test_environments_are_kept_only_of_a_run_with_the_same_provider(tiny: Tiny) -> None:
    with pytest.raises(UsageError, match="no environments of an earlier run"):
        tiny.plan(environments=KEPT)
    tiny.run()
    rewrite(tiny, provider="local", is_complete=False)
    with pytest.raises(UsageError, match="from provider local") as error:
        tiny.plan(environments=KEPT)
    assert error.value.remedy == "pass --provider local, or --environments newest"
    assert tiny.plan().kept is None


@pytest.mark.usefixtures("finished")
def test_environments_of_a_cross_build_are_not_kept_for_a_native_one(tiny: Tiny) -> None:
    rewrite(tiny, cross_from="linux-aarch64", is_complete=False)
    with pytest.raises(UsageError, match="are of a build on linux-aarch64") as error:
        tiny.plan(environments=KEPT)
    assert error.value.remedy == "pass --environments newest"
    assert tiny.plan().kept is None
    config = replace(tiny.options().config, build_platform="linux-aarch64")
    find = kept_environments.find_record
    assert find(replace(tiny.options(environments=KEPT), config=config)) is not None
    rewrite(tiny, cross_from="")
    assert find(tiny.options(environments=KEPT)) is not None
    with pytest.raises(UsageError, match="are of a build on linux-64"):
        find(replace(tiny.options(environments=KEPT), config=config))


@pytest.mark.usefixtures("unfinished")
def test_a_recipe_that_needs_another_package_gets_the_newest(tiny: Tiny) -> None:
    make_channel(tiny.channel, (("further", "1.0", "0"),))
    recipe = tiny.root / "recipe" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("        - tool\n", "        - tool\n        - further\n"))
    with pytest.raises(PreflightError, match="cannot be kept: staging: build environment cannot be solved"):
        tiny.plan(environments=KEPT)
    assert "further" in tiny.plan().notes[0]
    assert tiny.run().ok


@pytest.mark.usefixtures("unfinished")
@pytest.mark.parametrize(
    ("needs", "method", "is_kept"),
    [
        ("tool", Method.NOTHING, True),  # for want of a source, for example
        ("further", Method.COMPILE, True),
        ("further", Method.NOTHING, False),
        ("nowhere", Method.NOTHING, True),
    ],
)
def test_an_extension_that_needs_another_package_gets_the_newest(
    needs: str, method: Method, is_kept: bool, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless these have no solution either."""
    make_channel(tiny.channel, (("further", "1.0", "0"),))
    item = PlanItem(package=replace(tiny.plan().items[0].package, name="ext", host=(needs,), run=(), test=()))
    task = Task(extension="ext", python="3.12", recipe=tiny.root, items=(item,), overrides={}, method=method)
    monkeypatch.setattr(ExtensionPlanner, "plan", lambda *_: (task,))
    if is_kept:
        assert tiny.plan().kept is not None
        return
    plan = tiny.plan()
    assert plan.kept is None
    assert re.search("not kept: ext .*: host environment cannot be solved", plan.notes[0])
    with pytest.raises(PreflightError, match=r"cannot be kept: ext .*: host environment") as caught:
        tiny.plan(environments=KEPT)
    assert "--environments newest" in caught.value.remedy


@pytest.mark.usefixtures("finished")
def test_other_channels_are_named(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Environment(
        channels=(Channel.of_folder(tiny.channel), Channel.of_folder(tmp_path)), pythons=("3.12",)
    )
    monkeypatch.setattr(planning, "choose_provider", lambda request: Made(request, made))
    with pytest.raises(ProviderError, match=f"channels are others: .*, {tmp_path}; before: {tiny.channel}$"):
        tiny.plan(environments=KEPT)


@pytest.fixture
def server(tiny: Tiny) -> Iterator[str]:
    """A server that asks for a password."""
    with served(tiny.channel.parent) as host:
        yield f"http://{USER}:{PASSWORD.replace('@', '%40')}@{host}/password/channel"


def test_packages_of_a_server_are_kept_and_its_credentials_are_not(
    tiny: Tiny, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGABUILD_CACHE", str(tiny.output / "cache"))
    channels = separate_logins([Channel.parse(server)])
    address = channels.by_priority[0].address
    monkeypatch.setattr(planning, "choose_provider", provider(address, logins=channels.logins))
    assert tiny.run().ok
    packages = published(tiny.options().packages)
    state = tiny.options().state
    text = (state / environment_record.NAME).read_text()
    assert f'"url": "{address}/linux-64/tool-1.0-0.conda"' in text
    assert not [secret for secret in (USER + ":", "hunter2") if secret in text]

    # the same packages, byte for byte, also where they are downloaded again
    make_channel(tiny.channel, NEWER_TOOL)
    for folder in (state / "tree", state / "out", tiny.options().packages, tiny.options().cache / "rattler"):
        shutil.rmtree(folder)
    outlook = tiny.outlook(environments=KEPT)
    (channel,) = outlook.plan.environment.channels
    assert channel.address == address
    assert channel.folder is not None
    assert not list(channel.folder.rglob("*.conda"))
    assert tiny.run(environments=KEPT).ok
    assert "built with tool 1.0" in tiny.log_text()
    assert published(tiny.options().packages) == packages
    beside = (tiny.options().packages / ".megabuild-channels.json").read_text()
    assert json.loads(beside) == [[address]]

    # gone from the server, then from the cache, too
    (package,) = tiny.channel.glob("linux-64/tool-1.0-*.conda")
    package.unlink()
    make_channel(tiny.channel, ())
    for folder in (state / "tree", state / "out", tiny.options().packages):
        shutil.rmtree(folder)
    assert tiny.run(environments=KEPT).ok
    assert "built with tool 1.0" in tiny.log_text()
    shutil.rmtree(tiny.options().cache / "rattler")
    with pytest.raises(VanishedError, match=r"1 package vanished from http.*: tool 1\.0$"):
        tiny.plan(environments=KEPT)


def test_packages_are_those_of_their_channel_however_its_address_is_written(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEGABUILD_CACHE", str(tiny.output / "cache"))
    with served(tiny.channel.parent) as host:
        monkeypatch.setattr(planning, "choose_provider", provider(f"HTTP://{host}/open/channel"))
        kept_environments.keep_record(tiny.plan())
    record = environment_record.read(tiny.options().state)
    assert record is not None
    assert [channel.address for channel in record.channels] == [f"http://{host}/open/channel"]
    assert {package.channel for package in record.packages} == {f"http://{host}/open/channel"}
    assert all(package.url.startswith(f"{package.channel}/linux-64/") for package in record.packages)


def place(tmp_path: Path) -> KeptPlace:
    return KeptPlace(
        cache=tmp_path / "cache", unpacked=tmp_path / "unpacked", platforms=Platforms.native("linux-64")
    )


def test_a_channel_of_this_machine_is_kept_with_its_programs_only(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    for name in ("gxx_linux-64-14.2.0-h1_0.conda", "numpy-2.3.0-h1_0.conda"):
        write(folder / "linux-64" / name, "")
    write(folder / MADE_OF, json.dumps({f"linux-64/{path.name}": "key" for path in folder.rglob("*.conda")}))
    numpy = RecordedPackage(
        name="numpy", version="2.3.0", build="h1_0", sha256="", file_name="numpy-2.3.0-h1_0.conda",
        subdir="linux-64", url="", channel=str(folder), entry={},
    )  # fmt: skip
    record = EnvironmentRecord(
        config="a", provider="local", planned=0.0, is_complete=False, pythons=(), overrides={}, packages=(numpy,),
        channels=(RecordedChannel(address=str(folder), folder=str(folder), this_machine=True),),
    )  # fmt: skip
    write(tmp_path / "now" / MADE_OF, '{"linux-64/a-1-0.conda": "key"}')
    now = Channel.of_folder(tmp_path / "now", this_machine=True)
    same = frozenset({"linux-64/gxx_linux-64-14.2.0-h1_0.conda"})
    given = Environment(channels=(now,), pythons=(), programs=same)
    assert keep_channels(record, given, place(tmp_path)) == (Channel.of_folder(folder, this_machine=True),)
    other = replace(given, programs=frozenset({"linux-64/gxx_linux-64-14.3.0-h2_0.conda"}))
    with pytest.raises(ProviderError, match=r"programs of this machine have changed.*gxx_linux-64-14\.3\.0"):
        keep_channels(record, other, place(tmp_path))
    # with the cache at another place
    moved = tmp_path / "cache" / "channel" / "channels" / "kept"
    moved.parent.mkdir(parents=True)
    folder.rename(moved)
    assert keep_channels(record, given, place(tmp_path)) == (Channel.of_folder(moved, this_machine=True),)
    (moved / "linux-64" / numpy.file_name).unlink()
    with pytest.raises(VanishedError, match=r"numpy 2\.3\.0"):
        keep_channels(record, given, place(tmp_path))
    shutil.rmtree(moved)
    with pytest.raises(VanishedError, match=r"numpy 2\.3\.0"):
        keep_channels(record, given, place(tmp_path))


@pytest.mark.parametrize(("count", "ends"), [(6, "c5 1"), (8, "c5 1 and 2 more")])
def test_of_many_vanished_packages_the_first_are_named(count: int, ends: str, tmp_path: Path) -> None:
    gone = []
    for number in range(count):
        gone.append(
            RecordedPackage(
                name=f"c{number}", version="1", build="0", sha256="", file_name=f"c{number}-1-0.conda",
                subdir="linux-64", url="", channel=str(tmp_path), entry={},
            )
        )  # fmt: skip
    address = str(write(tmp_path / "channel/linux-64/other.txt").parents[1])
    record = EnvironmentRecord(
        config="a", provider="local", planned=0.0, is_complete=False, pythons=(), overrides={},
        packages=tuple(structs.replace(package, channel=address) for package in gone),
        channels=(RecordedChannel(address=address, folder=address, this_machine=False),),
    )  # fmt: skip
    given = Environment(channels=(Channel.of_folder(Path(address)),), pythons=())
    with pytest.raises(VanishedError) as error:
        keep_channels(record, given, place(tmp_path))
    assert error.value.message == (
        f"{count} packages vanished from {address}: c0 1, c1 1, c2 1, c3 1, c4 1, {ends}"
    )
    assert error.value.exit_code == 5


def test_of_many_changed_programs_the_first_are_named(tmp_path: Path) -> None:
    write(tmp_path / "kept" / MADE_OF, '{"linux-64/a-1-0.conda": "key"}')
    address = str(tmp_path / "kept")
    record = EnvironmentRecord(
        config="a", provider="local", planned=0.0, is_complete=False, pythons=(), overrides={}, packages=(),
        channels=(RecordedChannel(address=address, folder=address, this_machine=True),),
    )  # fmt: skip
    given = Environment(
        channels=(Channel.of_folder(tmp_path / "kept", this_machine=True),), pythons=(),
        programs=frozenset(f"linux-64/gcc-1{number}.2.0-h0_0.conda" for number in range(8)),
    )  # fmt: skip
    with pytest.raises(ProviderError) as error:
        keep_channels(record, given, place(tmp_path))
    names = ", ".join(f"gcc-1{number}.2.0-h0_0" for number in range(6))
    said = f"programs of this machine have changed, which no channel keeps: {names} and 2 more"
    assert (error.value.message, error.value.exit_code) == (said, 5)


def record_of(packages: Sequence[RecordedPackage], channels: Sequence[Channel]) -> EnvironmentRecord:
    """The record of an unfinished run with these packages."""
    recorded = [RecordedChannel(address=one.address, folder=None, this_machine=False) for one in channels]
    return EnvironmentRecord(
        config="a", provider="conda-forge", planned=0.0, is_complete=False, pythons=(), overrides={},
        packages=tuple(packages), channels=tuple(recorded),
    )  # fmt: skip


def test_each_channel_keeps_its_own_packages(tmp_path: Path) -> None:
    """Channels of higher priority hide packages of the others."""
    channels = []
    packages = []
    for name in ("a", "b"):
        folder = tmp_path / name
        path = write(folder / f"linux-64/{name}-1-0.conda", name)
        channels.append(Channel.of_folder(folder))
        made = RecordedPackage(
            name=name, version="1", build="0", sha256=files.sha256(path), file_name=path.name, subdir="linux-64",
            url="", channel=channels[-1].address, entry={},
        )  # fmt: skip
        packages.append(made)
    record = record_of(packages, channels)
    kept = keep_channels(record, Environment(channels=tuple(channels), pythons=()), place(tmp_path))
    names = [[path.name for path in cast(Path, one.folder).rglob("*.conda")] for one in kept]
    assert names == [["a-1-0.conda"], ["b-1-0.conda"]]


def test_kept_packages_of_folders_are_in_their_own_subdir_and_kind(tmp_path: Path) -> None:
    """A cross build has packages of two platforms, which may have one file name."""
    names = ("linux-aarch64/a-1-0.conda", "linux-64/a-1-0.conda", "noarch/b-1-0.tar.bz2")
    here = replace(place(tmp_path), platforms=Platforms(build="linux-64", target="linux-aarch64"))
    for is_made_here in (False, True):
        folder = tmp_path / f"made {is_made_here}"
        packages = []
        for name in names:
            path = write(folder / name, name)
            made = RecordedPackage(
                name=path.name[0], version="1", build="0", sha256=files.sha256(path), file_name=path.name,
                subdir=path.parent.name, url="", channel=str(folder), entry={"name": path.name[0]},
            )  # fmt: skip
            packages.append(made)
        if is_made_here:
            write(folder / MADE_OF, json.dumps(dict.fromkeys(names, "key")))
        record = EnvironmentRecord(
            config="a", provider="local", planned=0.0, is_complete=False, pythons=(), overrides={},
            channels=(RecordedChannel(address=str(folder), folder=str(folder), this_machine=is_made_here),),
            packages=tuple(packages),
        )  # fmt: skip
        given = Environment(channels=(Channel.of_folder(folder),), pythons=())
        (kept,) = keep_channels(record, given, here)
        kept_folder = cast(Path, kept.folder)
        found = {
            str(path.relative_to(kept_folder)): path.read_text() for path in kept_folder.glob("*/*-1-0.*")
        }
        assert found == {name: name for name in names}
        if is_made_here:
            assert kept_folder == folder
            (folder / names[1]).unlink()
            with pytest.raises(VanishedError, match="1 package vanished"):
                keep_channels(record, given, here)
            continue
        listed: dict[str, str] = {}
        for path in kept_folder.glob("*/repodata.json"):
            index = json.loads(path.read_text())
            for kind in ("packages", "packages.conda"):
                listed |= {f"{path.parent.name}/{name}": kind for name in index[kind]}
        assert listed == {**dict.fromkeys(names, "packages.conda"), names[2]: "packages"}
        for name in names:
            (folder / name).unlink()
        assert keep_channels(record, given, here) == (kept,), "an earlier run has taken them"


def test_all_recorded_packages_are_looked_for_on_servers_next_to_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def list_packages(*question: object) -> list[frozenset[tuple[str, str]]]:
        asked.extend(question)
        return [frozenset(), frozenset({("a-1-0.conda", "1"), ("b-1-0.conda", "1")})]

    monkeypatch.setattr(solving, "list_packages", list_packages)
    channels = (Channel.of_folder(tmp_path), Channel.parse("https://x.example/c"))
    packages = []
    for name in ("b", "a"):
        made = RecordedPackage(
            name=name, version="1", build="0", sha256="1", file_name=f"{name}-1-0.conda", subdir="linux-64",
            url=f"https://x.example/c/linux-64/{name}-1-0.conda", channel="https://x.example/c", entry={},
        )  # fmt: skip
        packages.append(made)
    record = record_of(packages, channels)
    login = Login(address="https://x.example/c", host="x.example", user="ann")
    given = Environment(channels=channels, pythons=(), logins=(login,))
    keep_channels(record, given, place(tmp_path))
    everything = Channels(by_priority=channels, logins=(login,))
    assert asked == [["a", "b"], everything, place(tmp_path).platforms]


def test_packages_that_fit_no_index_are_named(tmp_path: Path) -> None:
    package = RecordedPackage(
        name="a", version="1", build="0", sha256="", file_name="a-1-0.conda", subdir="linux-64",
        url="https://x.example/c/linux-64/a-1-0.conda", channel="https://x.example/c", entry={},
    )  # fmt: skip
    recorded = RecordedChannel(address="https://x.example/c", folder=None, this_machine=False)
    here = place(tmp_path)
    now = Channel.parse("https://mirror.example/c")
    channel = kept_channels._indexed(recorded, now, [package], here)
    assert channel.folder is not None
    index = json.loads((channel.folder / "linux-64" / "repodata.json").read_text())
    assert index["info"]["base_url"] == "https://mirror.example/c/linux-64/"
    elsewhere = structs.replace(
        package, file_name="b-1-0.conda", url="https://y.example/linux-64/b-1-0.conda"
    )
    with pytest.raises(IntegrityError, match="not with the other packages") as error:
        kept_channels._indexed(recorded, now, [package, elsewhere], here)
    assert error.value.remedy == "delete environments.json in the config's folder, then run again"
    with pytest.raises(IntegrityError, match="not a package for linux-64"):
        kept_channels._indexed(recorded, now, [structs.replace(package, subdir="osx-64")], here)


@pytest.mark.parametrize("changed", ["file_name", "sha256"])
def test_a_package_of_another_name_or_content_is_not_the_recorded_one(changed: str, tmp_path: Path) -> None:
    """A server may have built it again under the same name."""
    package = RecordedPackage(
        name="a", version="1", build="0", sha256="1" * 64, file_name="a-1-0.conda", subdir="linux-64",
        url="https://x.example/c/linux-64/a-1-0.conda", channel="https://x.example/c", entry={},
    )  # fmt: skip
    channel = Channel.parse("https://x.example/c")
    listed = frozenset({(package.file_name, package.sha256)})
    kept_channels._check_available([package], listed, channel, place(tmp_path))
    other = structs.replace(package, **{changed: "other"})
    with pytest.raises(VanishedError, match=r"1 package vanished from https://x\.example/c: a 1$"):
        kept_channels._check_available([package, other], listed, channel, place(tmp_path))


@pytest.mark.parametrize(
    ("index", "is_there"),
    [
        ('{"name": "_openmp_mutex", "subdir": "linux-64"}', True),
        ('{"name": "_openmp_mutex"}', True),  # of an old conda-build
        ('{"name": "_openmp_mutex", "subdir": "linux-aarch64"}', False),
        ("[]", False),
        ("{", False),
        (None, False),
    ],
)
def test_a_vanished_package_is_not_that_of_another_platform(
    index: str | None, is_there: bool, tmp_path: Path
) -> None:
    """conda-forge has _openmp_mutex-4.5-2_gnu for each; a cross build unpacks both platforms' into one folder."""
    package = RecordedPackage(
        name="_openmp_mutex", version="4.5", build="2_gnu", sha256="1" * 64,
        file_name="_openmp_mutex-4.5-2_gnu.tar.bz2", subdir="linux-64", url="", channel="https://x.example/c", entry={},
    )  # fmt: skip
    if index is not None:
        write(tmp_path / "unpacked/pkgs/_openmp_mutex-4.5-2_gnu/info/index.json", index)
    gone = nullcontext() if is_there else pytest.raises(VanishedError, match=r": _openmp_mutex 4\.5$")
    with gone:
        channel = Channel.parse("https://x.example/c")
        kept_channels._check_available([package], frozenset(), channel, place(tmp_path))


def kept(count: int, **changes: Any) -> KeptEnvironments:
    newer = tuple(NewerPackage(name=f"a{number}", kept="1", newest="2") for number in range(count))
    return KeptEnvironments(**{"since": 1.0, "is_automatic": False, "newer": newer, "unknown": "", **changes})


def test_lines_name_the_first_newer_packages() -> None:
    assert kept_environments.lines(kept(0)) == ["environments of 1 January 1970: no package is newer"]
    (line,) = kept_environments.lines(kept(5))
    assert line.endswith(": 5 packages are newer: a0 1 -> 2, a1 1 -> 2, a2 1 -> 2, …")
    (line,) = kept_environments.lines(kept(0, unknown="no tool"))
    assert line.endswith(": the newest packages fit no longer (no tool)")
    assert kept_environments.lines(kept(0, is_automatic=True)) == []
    for unknown in (kept(0, is_automatic=True, unknown="no tool"), kept(1, is_automatic=True)):
        assert len(kept_environments.lines(unknown)) == 2, "a resumed run may have chosen the newest ones"
    assert "(no tool)" in kept_environments.lines(kept(0, is_automatic=True, unknown="no tool"))[0]


@pytest.mark.parametrize(
    ("version", "build", "shown"),
    [("2", "h0_0", ("1", "2")), ("1", "h1_0", ("1 h0_0", "1 h1_0")), ("1", "h0_0", None)],
)
def test_a_package_of_another_version_or_build_is_newer(
    version: str, build: str, shown: tuple[str, str] | None
) -> None:
    def package(version: str, build: str) -> Any:
        return SimpleNamespace(name=SimpleNamespace(source="fmt"), version=version, build=build)

    newer = kept_environments.compare([package("1", "h0_0")], [package(version, build)])
    assert [(each.name, each.kept, each.newest) for each in newer] == ([("fmt", *shown)] if shown else [])


EMPTY = EnvironmentRecord(
    config="a", provider="local", planned=0.0, is_complete=False, pythons=(), overrides={}, packages=(), channels=(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("requested", "recorded", "completes"),
    [
        ((), (), True),
        ((), ("3.11",), True),
        (("3.11",), (), False),
        (("3.11", "3.12"), ("3.12",), True),
        (("3.12",), ("3.11", "3.12"), False),
        (("3.11",), ("3.12",), False),
    ],
)
def test_a_run_completes_a_former_one_if_it_has_all_of_its_pythons(
    requested: tuple[str, ...], recorded: tuple[str, ...], completes: bool, tmp_path: Path
) -> None:
    environment_record.write(tmp_path, structs.replace(EMPTY, pythons=recorded))
    kept_environments.mark_complete(cast(Any, SimpleNamespace(state=tmp_path, pythons=requested)))
    record = environment_record.read(tmp_path)
    assert record is not None
    assert record.is_complete == completes


@pytest.mark.parametrize(
    ("is_complete", "recorded", "requested", "expected"),
    [
        (False, ("3.12",), (), ()),
        (False, ("3.12",), ("3.11",), ("3.12", "3.11")),
        (False, (), ("3.12",), ()),
        (True, ("3.12",), (), ()),
        (True, (), ("3.12",), ("3.12",)),
    ],
)
def test_a_run_with_kept_packages_is_unfinished_for_all_pythons_that_it_and_the_former_one_lack(
    is_complete: bool, recorded: tuple[str, ...], requested: tuple[str, ...], expected: tuple[str, ...],
    tmp_path: Path,
) -> None:  # fmt: skip
    environment_record.write(tmp_path, structs.replace(EMPTY, is_complete=is_complete, pythons=recorded))
    options = SimpleNamespace(state=tmp_path, pythons=requested)
    kept_environments.keep_record(cast(Any, SimpleNamespace(options=options, kept="the former ones")))
    assert environment_record.read(tmp_path) == structs.replace(EMPTY, is_complete=False, pythons=expected)


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"pythons": ["\xff"]}', b'{"x": ' + b"[" * 100_000], ids=range(5)
)
def test_a_damaged_record_is_not_a_missing_one(damage: bytes, tmp_path: Path) -> None:
    write(tmp_path / environment_record.NAME, damage)
    with pytest.raises(IntegrityError, match="damaged, or of another version") as raised:
        environment_record.read(tmp_path)
    assert f"run: rm {tmp_path / environment_record.NAME};" in raised.value.remedy
    kept_environments.mark_complete(cast(Any, SimpleNamespace(state=tmp_path, pythons=())))
    assert (tmp_path / environment_record.NAME).read_bytes() == damage, "the next run names it"


def test_a_record_is_replaced_as_a_whole(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    environment_record.write(here, EMPTY)
    done = structs.replace(EMPTY, is_complete=True)
    for folder in every_stop(here, lambda folder: environment_record.mark(folder, is_complete=True)):
        assert environment_record.read(folder) in (EMPTY, done)
    environment_record.mark(here, is_complete=True)
    assert environment_record.read(here) == done


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")]
)
def test_a_record_that_cannot_be_read_is_not_taken_for_a_missing_one(
    error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run would replace it, with other packages."""

    def refuse(_: Path) -> None:
        raise error

    assert environment_record.read(tmp_path) is None
    monkeypatch.setattr(files, "open_regular", refuse)
    with pytest.raises(IntegrityError, match=str(error.strerror)):
        environment_record.read(tmp_path)
