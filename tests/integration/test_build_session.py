"""Whole runs of the tiny megabuild."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import re
import shutil
import signal
import threading
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from package_files import Entry, entries, rot
from rattler.package_streaming import extract
from tiny import PACKAGES, ROOT, Tiny, build_with, driver, make_channel, provider, wait_for

from groundwork import files, in_use
from groundwork.channel import Channel
from groundwork.errors import (
    BuildError,
    BusyError,
    FailureKind,
    IntegrityError,
    PackageTestError,
    PreflightError,
    ProviderError,
    SwapRefused,
)
from groundwork.machine import Machine
from megabuild.engine.supervisor import strays
from megabuild.isolation.engine import Engine
from megabuild.plan import planning
from megabuild.plan.tree_reuse import TreeUse
from megabuild.run import graph, preflight
from megabuild.run.summary import Summary
from megabuild.status import record as state_file
from megabuild.store.published import channels_beside, records


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, channel: Path) -> tuple[Tiny, Summary]:
    """A finished run, which tests look at, and which is copied for those that begin with one."""
    here = tmp_path_factory.mktemp("shared") / "here"
    shutil.copytree(ROOT, here / "root")
    tiny = Tiny(output=here / "output", channel=channel, root=here / "root")
    with pytest.MonkeyPatch.context() as patch:
        build_with(channel, patch)
        patch.setenv("TORCH_CCACHE", "no-such-cache")
        summary = tiny.run()
    shutil.copytree(here, here.with_name("kept"), symlinks=True)
    return tiny, summary


@pytest.fixture
def built(first: tuple[Tiny, Summary], tiny: Tiny) -> Tiny:
    """A tiny megabuild that has been finished: once, since results are bound to their folder but not to a time."""
    here = first[0].output.parent
    shutil.rmtree(here)
    shutil.copytree(here.with_name("kept"), here, symlinks=True)
    return replace(first[0], seen=[], status=None)


def statuses(tiny: Tiny, **choices: object) -> list[str]:
    """What a run makes of the library and of each Python's package."""
    return [row.status for row in tiny.run(**choices).packages]


def decision(tiny: Tiny) -> tuple[str, str]:
    (decided,) = tiny.decisions()
    return decided


def published(tiny: Tiny) -> dict[str, str]:
    """Packages with their sha256."""
    return {path.name: files.sha256(path) for path in tiny.options().packages.rglob("*.conda")}


def change(path: Path, text: str = "# nothing\n") -> None:
    path.write_text(path.read_text() + text)


# ---- one run, and the next one -----------------------------------------------------------------------------
def test_a_second_run_has_nothing_to_do_and_the_plan_knows_what_the_first_took(
    first: tuple[Tiny, Summary], built: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_CCACHE", "no-such-cache")  # as the first run, or its time would be no measure
    before = published(built)
    assert statuses(built) == ["skipped"] * 3
    assert published(built) == before
    assert len(before) == 3
    assert not built.phases()
    assert built.outlook().estimate.hours == 0
    elsewhere, cache = replace(built, output=tmp_path / "elsewhere"), built.output / "cache"
    assert elsewhere.outlook(cache=cache).estimate.hours * 3600 == pytest.approx(first[1].seconds, abs=5.0)
    of_one = elsewhere.outlook(cache=cache, pythons=("3.12",)).estimate
    assert of_one.hours * 3600 > 30, "a run for another number of Pythons is no measure"


def test_another_day_in_another_folder_gives_the_same_bytes(
    built: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "another" / "place"
    shutil.copytree(built.channel, elsewhere / "channel")
    monkeypatch.setattr(planning, "choose_provider", provider(elsewhere / "channel"))
    second = replace(built, output=elsewhere / "output", channel=elsewhere / "channel")
    assert statuses(second, cache=elsewhere / "cache") == ["built"] * 3
    assert published(second) == published(built)
    marked = (elsewhere / "cache", second.output, second.options().state)
    assert [in_use.is_marked(folder) for folder in marked] == [True] * 3


def test_narrowing_builds_only_the_python_asked_for_and_the_rest_comes_later_from_the_same_staging(
    tiny: Tiny,
) -> None:
    assert statuses(tiny, pythons=("3.12",)) == ["built"] * 2
    out = tiny.options().state / "out" / "linux-64"
    before = published(tiny)
    # and what is published is another file than what a build could write to
    change(
        tiny.root / "recipe" / "build_py.sh",
        f'for file in {out}/tinylib-*.conda; do printf x >> "$file"; done\n',
    )
    tiny.run()
    assert decision(tiny)[0] == "reuse"
    assert "Building C object" not in tiny.log_text()
    assert {
        name: digest for name, digest in published(tiny).items() if "lib" in name
    }.items() <= before.items()


def test_a_damaged_object_in_a_finished_tree_costs_one_object(built: Tiny) -> None:
    change(built.root / "recipe" / "build_py.sh")
    (built.options().state / "tree" / "build" / "t3.o").write_text("damaged")
    assert built.run().ok
    assert [decided for decided, _ in built.decisions()] == ["reuse", "resume"]
    assert len([line for line in built.log_text().splitlines() if "staging          [1/1" in line]) == 1


# ---- what changes between runs -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "reason", "compiled"),
    [("rehearsal/model/t2.c", "source tree changed", 1), ("recipe/common.sh", "script common.sh changed", 0)],
)
def test_a_changed_source_or_script_keeps_the_tree_and_compiles_what_changed(
    built: Tiny, tmp_path: Path, path: str, reason: str, compiled: int
) -> None:
    change(built.root / path, "export changed=1\n")
    summary = built.run()
    assert decision(built) == ("resume", reason)
    assert [row.status for row in summary.packages] == ["built"] * 3
    assert built.log_text().count("staging          [1/1") == compiled
    extract(Path(summary.packages[1].path), tmp_path)
    (linked,) = tmp_path.glob("lib/python*/site-packages/tinypy/linked")
    assert linked.read_text().count("export changed") == compiled


def test_a_source_that_is_brought_is_compiled_once_until_it_changes(tiny: Tiny, tmp_path: Path) -> None:
    tree = tmp_path / "brought"
    tree.mkdir()
    (tree / "version.txt").write_text("1.0\n")
    assert tiny.run(torch_source=tree, pythons=("3.12",)).ok
    assert not tiny.outlook(torch_source=tree, pythons=("3.12",)).progress.missing
    (tree / "t2.c").write_text("int changed;\n")
    decided = tiny.outlook(torch_source=tree, pythons=("3.12",)).progress.tree
    assert (decided.use, "source tree" in str(decided)) == (TreeUse.RESUME, True)


def test_a_new_version_of_a_dependency_recompiles_and_says_which(
    built: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = make_channel(tmp_path / "newer", (*PACKAGES, ("tool", "1.1", "0")))
    monkeypatch.setattr(planning, "choose_provider", provider(newer))
    monkeypatch.setenv("TINY_STAGING_FAIL", "no such header")
    with pytest.raises(BuildError):
        built.run()
    assert decision(built) == ("recompile", "tool 1.0 -> 1.1")
    monkeypatch.delenv("TINY_STAGING_FAIL")
    with monkeypatch.context() as back:
        back.setattr(planning, "choose_provider", provider(built.channel))
        assert not built.outlook().progress.missing, "published packages stay"
    assert built.run().ok
    assert decision(built)[0] == "resume"


@pytest.mark.parametrize("how", [rot, lambda path: path.write_bytes(path.read_bytes()[:-99])])
def test_published_packages_and_their_index_are_not_believed_but_looked_into(
    built: Tiny, how: object
) -> None:
    before = published(built)
    (damaged,) = built.options().packages.rglob("tinylib-*.conda")
    assert callable(how)
    how(damaged)
    index = damaged.parent / "repodata.json"
    index.write_text(index.read_text()[:-50])
    assert built.run().ok
    assert any(damaged.name in text and "damaged" in text for text in built.warnings())
    assert published(built) == before
    assert len(json.loads(index.read_text())["packages.conda"]) == 3


# ---- what a plan refuses -----------------------------------------------------------------------------------
def test_what_this_machine_lacks_is_named_before_anything_is_built(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "choose_provider", provider(tiny.channel, pythons=("3.12",)))
    plan = tiny.plan()
    assert list(dict(plan.left_out)) == ["3.11"]
    assert {item.package.python for item in plan.items} == {None, "3.12"}
    monkeypatch.setattr(
        planning, "choose_provider", provider(make_channel(tmp_path / "without", PACKAGES[1:]))
    )
    with pytest.raises(PreflightError, match="tool"):
        tiny.plan()
    monkeypatch.setattr(planning, "choose_provider", provider(tiny.channel))
    monkeypatch.setattr(preflight, "disk_free", lambda folder: 10**12)  # enough for a real PyTorch
    with pytest.raises(IntegrityError, match="sha256"):
        tiny.run(rehearse=False, engine=Engine.HOST)
    with pytest.raises(PreflightError, match="my output"):
        replace(tiny, output=tmp_path / "my output").run()
    assert not tiny.options().state.exists()


# ---- failures ----------------------------------------------------------------------------------------------
def test_a_failing_compile_is_told_without_secrets_and_the_next_run_takes_its_place(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GH_PAT", "hunter22")
    monkeypatch.setenv("TINY_STAGING_FAIL", "t1.c:1:1: error: expected expression (hunter22)")
    with pytest.raises(BuildError, match=r"t1\.c:1:1: error: expected expression \(\*\*\*\)") as caught:
        tiny.run()
    folder = tiny.options().state
    summary, state = json.loads((folder / "run.json").read_text()), state_file.read(folder)
    assert (summary["ok"], "expected expression" in summary["error"]) == (False, True)
    assert state is not None
    assert (state.status, state.exit_code) == ("failed", BuildError.exit_code)
    assert "expected expression" in state.error
    shown = tiny.log_text() + str(tiny.seen) + str(caught.value) + summary["error"] + state.error
    assert "hunter22" not in shown
    monkeypatch.delenv("TINY_STAGING_FAIL")
    tiny.run()
    state = state_file.read(folder)
    assert state is not None
    assert state.status == "done"


def test_a_refused_swap_has_an_error_of_its_own_and_other_pythons_are_built_if_asked_for(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_FAIL", "swap 3.11")
    with pytest.raises(SwapRefused, match="core object dirty"):
        tiny.run(pythons=("3.11",))
    with pytest.raises(BuildError):
        tiny.run(keep_going=True)
    summary = json.loads((tiny.options().state / "run.json").read_text())
    assert [row["status"] for row in summary["packages"]][1:] == ["failed", "built"]


@pytest.mark.parametrize("keep_going", [False, True])
def test_a_failed_test_ends_the_builds_unless_they_are_to_go_on(tiny: Tiny, keep_going: bool) -> None:
    with_test(tiny, "echo broken\nexit 1\n")
    if not keep_going:
        script = tiny.root / "recipe" / "build_py.sh"
        script.write_text(f"sleep 300\n{script.read_text()}")  # ended long before by the failed test
    with pytest.raises(PackageTestError, match="test of tinylib") as caught:
        tiny.run(keep_going=keep_going)
    assert caught.value.remedy.endswith(str(tiny.options().state / "tests" / "broken"))
    summary = json.loads((tiny.options().state / "run.json").read_text())
    # what needs a package that failed is tested, and not published without it
    assert [row["status"] for row in summary["packages"]] == ["failed", "missing", "missing"]
    assert not published(tiny)
    assert sum(": built" in text for text in tiny.sentences(logging.INFO)) == (3 if keep_going else 1)
    # a channel, so that an environment can be made of the package
    channel = tiny.options().state / "tests" / "broken"
    broken = [path.name.split("-")[0] for path in channel.glob("linux-64/*.conda")]
    assert broken == ["tinylib"]


@pytest.mark.parametrize("faults", [1, 9])
def test_a_package_is_not_blamed_for_the_network(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: int
) -> None:
    monkeypatch.setattr(graph, "NETWORK_PAUSE", 0.1)
    calls = tmp_path / "calls"
    fault = "echo 'curl: (6) Could not resolve host: conda.invalid'; exit 1"
    with_test(tiny, f"echo called >> {calls}; [ $(wc -l < {calls}) -gt {faults} ] || {{ {fault}; }}")
    if faults == 1:
        assert tiny.run(pythons=("3.12",)).ok
    else:
        with pytest.raises(ProviderError, match="Could not resolve host") as caught:
            tiny.run(pythons=("3.12",))
        assert caught.value.failure is not None
        assert caught.value.failure.kind is FailureKind.NETWORK
        assert not list(tiny.options().state.glob("tests/broken/*")), "nothing is wrong with it"
    assert calls.read_text().count("called") == 2


# ---- package tests -----------------------------------------------------------------------------------------
def with_test(tiny: Tiny, text: str) -> None:
    """Give the library's package a test script of its own."""
    recipe = tiny.root / "recipe" / "recipe.yaml"
    plain = "      - package_contents:\n          files: [lib/libtiny.so]\n"
    own = "      - script:\n          file: check.sh\n"
    if own not in recipe.read_text():
        recipe.write_text(recipe.read_text().replace(plain, plain + own))
    (recipe.parent / "check.sh").write_text(text)


def test_a_package_made_again_keeps_modes_and_links_and_is_tested_by_its_own_scripts(
    tiny: Tiny, tmp_path: Path
) -> None:
    def library() -> dict[str, Entry]:
        (package,) = tiny.options().packages.rglob("tinylib-*.conda")
        return {name: entry for name, entry in entries(package).items() if not name.startswith("info/")}

    with_test(tiny, "echo good\n")
    assert tiny.run(pythons=("3.12",)).ok  # the engine has the library unpacked from here on
    before = library()
    assert before["bin/tiny-program"].mode == "0o755"
    assert before["lib/libtiny.so.1"].link == "libtiny.so"
    with_test(tiny, "echo broken\nexit 1\n")
    with pytest.raises(PackageTestError, match="test of tinylib"):
        tiny.run(pythons=("3.12",))
    with_test(tiny, f"echo good again > {tmp_path}/said\n")
    assert tiny.run(pythons=("3.12",)).ok
    assert (tmp_path / "said").read_text() == "good again\n"
    assert decision(tiny)[0] == "reuse"
    assert library() == before


def test_a_package_is_tested_while_the_next_one_is_built_and_never_beside_half_a_package(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_TEST_SECONDS", "2")
    whole = files.copy

    def copy(source: Path, target: Path) -> None:
        whole(source, target)
        if target.is_relative_to(tiny.options().state / "tests"):
            target.with_name(f".tmp-{target.name}").write_bytes(b"half a package")

    monkeypatch.setattr(files, "copy", copy)
    assert tiny.run().ok
    built = min(one.created for one in tiny.seen if one.getMessage().startswith("tinypy 3.12"))
    tested = [one for one in tiny.seen if re.search(r"tinypy 1\.0 py\S+: tested in", one.getMessage())]
    assert built < min(one.created for one in tested)


def test_what_a_killed_run_has_built_but_not_tested_is_only_tested(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_TEST_SECONDS", "2")
    state = tiny.options().state
    with driver(tiny) as process:
        assert wait_for(lambda: list((state / "out" / "linux-64").glob("tinypy-*.conda")))
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert wait_for(lambda: not strays(state), seconds=20)
    library, *pythons = statuses(tiny)
    assert library in ("built", "skipped")  # its test may have been over
    assert pythons == ["built"] * 2
    scripts = [text for text in tiny.phases() if text.endswith(": build script")]
    assert 0 < len(scripts) < 3, "not that of the package that the killed run had built"
    assert any(phase.startswith("testing tinypy 1.0") for phase in tiny.phases())


def test_the_first_published_package_can_be_installed_before_the_run_ends(tiny: Tiny) -> None:
    packages = tiny.options().packages
    with driver(tiny, TINY_SECONDS="0.3") as process:
        assert wait_for(lambda: records(packages) and channels_beside(packages))
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert len(records(packages)) < 3
    assert channels_beside(packages) == [(Channel.of_folder(tiny.channel),)]


# ---- memory, signals, a second driver ----------------------------------------------------------------------
def test_a_compiler_killed_for_want_of_memory_is_started_again_with_fewer_beside_it(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINY_MOST_JOBS", "2")
    kills = itertools.count()  # the kernel's, one more at every look
    monkeypatch.setattr("groundwork.machine.kernel_kills", lambda: next(kills))
    assert tiny.run(cpu_count=4, pythons=("3.12",)).ok
    assert tiny.warnings()[-1].endswith(" 2 jobs")
    assert tiny.decisions()[-1][0] == "resume"


@pytest.fixture
def ample(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which memory does not run out."""
    machine = Machine(cores=4, memory=100, memory_free=90)
    monkeypatch.setattr("groundwork.machine.kernel_kills", lambda: 7)
    monkeypatch.setattr("groundwork.machine.measure", lambda: machine)


def kill_one(tiny: Tiny, command: list[str]) -> threading.Thread:
    """Kill the first program with this command line that a run starts."""

    def find() -> list[psutil.Process]:
        processes = []
        for process in strays(tiny.options().state):
            with contextlib.suppress(psutil.Error):
                processes += [process] if process.cmdline() == command else []
        return processes

    def kill() -> None:
        wait_for(find)
        for process in find():
            with contextlib.suppress(psutil.Error):
                process.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("variable", "what"), [("TINY_SECONDS", "staging"), ("TINY_TEST_SECONDS", "test of")]
)
def test_what_somebody_killed_once_is_tried_once_more(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, ample: None, variable: str, what: str
) -> None:
    monkeypatch.setenv(variable, "1.25")
    killer = kill_one(tiny, ["sleep", "1.25"])
    assert tiny.run(pythons=("3.12",)).ok
    killer.join()
    (warned,) = (text for text in tiny.warnings() if "killed by a signal" in text)
    assert warned.startswith(what)
    assert warned.endswith(": retrying")


def test_who_kills_again_means_it(tiny: Tiny, monkeypatch: pytest.MonkeyPatch, ample: None) -> None:
    monkeypatch.setenv("TINY_MOST_JOBS", "2")
    with pytest.raises(BuildError, match="killed by"):
        tiny.run(cpu_count=4, pythons=("3.12",))
    assert len([text for text in tiny.warnings() if text.endswith(": retrying")]) == 1


def test_only_one_run_at_a_time(tiny: Tiny) -> None:
    with driver(tiny, TINY_SECONDS="2"):
        assert wait_for((tiny.options().state / "state.json").exists)
        with pytest.raises(BusyError, match=tiny.options().run_name):
            tiny.run()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_however_the_driver_ends_nothing_of_it_is_left_and_the_next_run_goes_on(
    tiny: Tiny, number: signal.Signals
) -> None:
    state = tiny.options().state
    with driver(tiny, TINY_SECONDS="0.3") as process:
        assert wait_for(lambda: (state / "tree" / "build" / "t2.o").exists())
        process.send_signal(number)
        process.wait(timeout=60)
    assert wait_for(lambda: not strays(state), seconds=20)
    assert statuses(tiny) == ["built"] * 3
    assert decision(tiny)[0] == "resume"
